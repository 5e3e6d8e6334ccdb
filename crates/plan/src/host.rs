//! What the planner has to know of a machine.

use husk_seccomp::Machine;
use std::path::PathBuf;

/// A machine, and who asks. Plain data: probing is the runtime's, and tests write down machines that
/// are not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The caller's effective user.
    pub euid: u32,
    /// For each of the container's mounts what kind of file its source is.
    pub sources: Vec<FileKind>,
    /// What a mount of type `cgroup` shows.
    pub cgroup: CgroupMount,
    /// The ways to make system calls that the kernel knows.
    pub machine: Machine,
    /// The home directory that the image's /etc/passwd has for the container's user.
    pub home: PathBuf,
}

/// What a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A directory.
    Directory,
    /// Anything else that is there.
    File,
    /// Nothing, or nothing that the caller may look at.
    Missing,
}

/// What a mount of type `cgroup` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CgroupMount {
    /// The one hierarchy of cgroup v2.
    V2,
    /// The hierarchies of cgroup v1: the name of each, and the caller's cgroup in it.
    V1(Vec<(String, PathBuf)>),
}
