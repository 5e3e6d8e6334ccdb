//! One cgroup of version 1: its open directory and the controllers of its tree.

use crate::stats::Files;
use rustix::fd::OwnedFd;
use std::path::PathBuf;

#[derive(Debug)]
pub(super) struct Group {
    /// The tree's controllers, or its name such as `name=systemd`.
    pub(super) controllers: Vec<String>,
    pub(super) directory: OwnedFd,
    pub(super) path: PathBuf,
}

impl Group {
    /// Returns the controllers, and the files that hold their statistics.
    pub(super) fn files(&self) -> (&[String], Files<'_>) {
        (&self.controllers, Files { directory: &self.directory, path: &self.path })
    }
}
