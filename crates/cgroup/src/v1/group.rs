//! One cgroup of version 1: its open directory, and what its tree is for.

use crate::stats::Files;
use rustix::fd::OwnedFd;
use std::path::PathBuf;

/// A cgroup of one tree.
#[derive(Debug)]
pub(super) struct Group {
    /// What the tree is for: controllers, or a name.
    pub(super) controllers: Vec<String>,
    pub(super) directory: OwnedFd,
    pub(super) path: PathBuf,
}

impl Group {
    /// The controllers, and the files from which their statistics are read.
    pub(super) fn files(&self) -> (&[String], Files<'_>) {
        (&self.controllers, Files { directory: &self.directory, path: &self.path })
    }
}
