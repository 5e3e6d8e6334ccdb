//! What the planner has to know of a machine.

use husk_script::sys::signal::SignalSet;
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
    /// The signals that the caller ignores, which exec would leave so.
    pub ignored: SignalSet,
    /// What confines programs by profiles.
    pub apparmor: AppArmor,
    /// What confines programs by labels.
    pub selinux: Selinux,
    /// The ways to make system calls that the kernel knows.
    pub machine: Machine,
    /// The home directory that the image's /etc/passwd has for the container's user.
    pub home: PathBuf,
}

/// Whether the kernel confines programs by AppArmor profiles, and where it is told which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppArmor {
    /// It does not.
    Off,
    /// In `attr/exec`, which was the only place before Linux 5.8.
    Alone,
    /// In `attr/apparmor/exec`, which is AppArmor's own.
    Apart,
}

/// Whether the kernel confines programs by SELinux labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selinux {
    /// It does not.
    Off,
    /// It does.
    On,
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
