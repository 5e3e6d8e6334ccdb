//! What the planner has to know of a machine and of who asks. Plain data.

use husk_script::sys::Fd;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// A machine, and the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The caller's effective user, who the program is too.
    pub uid: u32,
    /// The caller's effective group.
    pub gid: u32,
    /// Who the caller is in the sandbox: user and group.
    pub program: (u32, u32),
    /// The program's working directory.
    pub cwd: PathBuf,
    /// What is shown of where the working directory is: itself, or the repository it is in.
    pub project: PathBuf,
    /// The caller's home directory.
    pub home: Option<PathBuf>,
    /// The caller's environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Those of the directories that the program has for its own which are here, or in the image.
    pub own: Vec<PathBuf>,
    /// For each path of the profile what it is.
    pub found: Vec<Found>,
    /// What the caller may have of each of the profile's [resources](crate::Limits::resources).
    pub most: [Option<u64>; 5],
    /// Whether the program has a cgroup of its own, which its limits of memory and processes are.
    pub cgroup: bool,
    /// Whether a pid namespace has a `pid_max` of its own, as since Linux 6.14. Before, it was the machine's.
    pub has_pid_max: bool,
    /// Whether a user namespace can be made.
    pub user_namespace: bool,
    /// What the program finds in `/proc`.
    pub procfs: Procfs,
    /// What the clocks say that begin with the machine: the one that stands still while it sleeps, and the other.
    pub clocks: (Duration, Duration),
    /// Whether the kernel has POSIX message queues.
    pub mqueue: bool,
    /// What Landlock offers, if the kernel has it.
    pub landlock: Option<Landlock>,
    /// Which of the caller's standard streams are open for writing.
    pub written: [bool; 3],
    /// Which of the caller's standard streams are the null device.
    pub null_streams: Vec<Fd>,
    /// Whether places are missing in the profile's image: they are then made, where nobody finds them.
    pub lacks_places: bool,
}

impl Host {
    /// Whether root's processes, of which no rlimit holds, are limited by their pid namespace.
    pub(crate) fn limits_pids(&self) -> bool {
        self.uid == 0 && !self.cgroup && self.has_pid_max && self.procfs == Procfs::Own
    }
}

/// What a path is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The path as the program knows it, without symlinks in it.
    pub path: PathBuf,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// A procfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Procfs {
    /// A new one, which shows the program's own processes.
    Own,
    /// The caller's, where the kernel lets nobody mount a new one because parts of this one are covered.
    Callers,
}

/// What Landlock can take away on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landlock {
    /// `LANDLOCK_ACCESS_FS_*`: everything but reading and executing.
    pub rights: u64,
    /// `LANDLOCK_SCOPE_*`.
    pub scopes: u64,
}
