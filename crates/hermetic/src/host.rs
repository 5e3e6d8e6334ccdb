//! The facts about a machine and its caller that the planner needs, as plain data.

use crate::cache::view::View;
use husk_script::sys::Fd;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A machine and its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The caller's effective uid. The program runs as this user.
    pub uid: u32,
    /// The caller's effective gid.
    pub gid: u32,
    /// The uid and gid that the program sees as its own.
    pub program: (u32, u32),
    /// The program's working directory.
    pub cwd: PathBuf,
    /// The directory that is shown around the working directory: the repository it is in, or the directory itself.
    pub project: PathBuf,
    /// The caller's home directory.
    pub home: Option<PathBuf>,
    /// The caller's environment.
    pub environment: Arc<[(OsString, OsString)]>,
    /// Those of the program's own directories that exist on the host or in the image.
    pub own: Vec<PathBuf>,
    /// The profile's paths, resolved, in the profile's order.
    pub found: Vec<HostFile>,
    /// The caller's hard limit for each of the profile's [resources](crate::Limits::resources).
    pub most: [Option<u64>; 5],
    /// Whether the program has its own cgroup, which keeps its memory and process limits.
    pub cgroup: bool,
    /// Whether each pid namespace has its own `pid_max`, as since Linux 6.14. Before, one value applied to the machine.
    pub has_pid_max: bool,
    /// Whether the directories in which tools write can be overlaid. Otherwise they are read-only.
    pub overlays_tools: bool,
    /// Whether a user namespace can be created.
    pub user_namespace: bool,
    /// The procfs that the program finds at `/proc`.
    pub procfs: Procfs,
    /// The sysfs that the program finds at `/sys`.
    pub sysfs: Sysfs,
    /// `CLOCK_MONOTONIC`, which stands still while the machine sleeps, and `CLOCK_BOOTTIME`. Zero without an
    /// [uptime](crate::Profile::uptime), because nothing else needs them.
    pub clocks: (Duration, Duration),
    /// Whether the kernel has POSIX message queues.
    pub mqueue: bool,
    /// Whether only fatal signals can be made to interrupt a call that a seccomp listener has received, as since Linux
    /// 5.19.
    pub wait_killable: bool,
    /// The access rights that Landlock handles, if the kernel supports it.
    pub landlock: Option<Landlock>,
    /// Whether each of the caller's standard streams is open for writing.
    pub written: [bool; 3],
    /// The caller's standard streams that are the null device.
    pub null_streams: Vec<Fd>,
    /// The network namespace that the program joins. Otherwise it gets one of its own.
    pub network: Option<JoinedNetwork>,
    /// Whether the profile's image lacks mount points. Unless it is writable, they are then created in a layer that is
    /// thrown away.
    pub lacks_places: bool,
    /// The files that the program sees, if the profile declares inputs.
    pub view: Option<Arc<View>>,
}

impl Host {
    /// Returns whether the pid namespace limits root's processes, to which no rlimit applies.
    pub(crate) fn limits_pids(&self) -> bool {
        self.uid == 0 && !self.cgroup && self.has_pid_max && self.procfs == Procfs::Own
    }
}

/// A network namespace that several sandboxes share, as descriptors of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinedNetwork {
    /// The user namespace that owns it, if it has one of its own. It maps the caller's ids to themselves.
    pub user: Option<Fd>,
    pub net: Fd,
}

/// A path of the profile, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFile {
    /// The path inside the sandbox, without symlinks.
    pub path: PathBuf,
    pub is_directory: bool,
    /// Its permissions, which an overlay of it gets too.
    pub mode: u32,
}

/// The procfs that a sandbox has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Procfs {
    /// A new one, which shows only the program's own processes.
    Own,
    /// The caller's. The kernel refuses a new one if parts of the visible procfs are covered.
    Callers,
}

/// The sysfs that a sandbox has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sysfs {
    /// A new one, which shows only the network devices of the program's own network.
    Own,
    /// The caller's, or none if nothing is mounted there.
    Callers,
}

/// The access that Landlock can restrict on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landlock {
    /// `LANDLOCK_ACCESS_FS_*`: everything except reading and executing.
    pub rights: u64,
    /// `LANDLOCK_SCOPE_*`.
    pub scopes: u64,
}
