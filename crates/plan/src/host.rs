//! The facts about a machine that the planner needs.

use crate::builder::{Builder, Error};
use husk_bundle::Container;
use husk_bundle::container::IdMapping;
use husk_script::sys::Fd;
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::signal::SignalSet;
use husk_seccomp::Machine;
use std::path::PathBuf;

/// Describes a machine and the caller. This is plain data: the runtime probes the machine, and tests describe
/// machines that do not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The caller's effective user id.
    pub euid: u32,
    /// The caller's effective group id.
    pub egid: u32,
    /// Whether the caller is in the initial user namespace. Only there does root control devices.
    pub is_first_user_namespace: bool,
    /// Whether the caller's user namespace lets processes change their groups.
    pub may_set_groups: bool,
    /// The result of checking the path of each of the container's namespaces; `None` for one without a path.
    pub namespaces: Vec<Option<NamespacePath>>,
    /// The ids that the user namespace to join maps.
    pub joined_ids: Option<JoinedIds>,
    /// Whether procfs has a mount option for the pid namespace that it shows (Linux 6.17).
    pub procfs_takes_pidns: bool,
    /// The host's uncovered procfs and sysfs mounts outside the root file system. Filled only when needed.
    pub revealing: Vec<PathBuf>,
    /// The hierarchies that a mount of type `cgroup` shows.
    pub cgroup: CgroupMount,
    /// The path of the host's cgroup v2 mount. Filled only when a mount of type `cgroup2` needs it.
    pub cgroup2: Option<PathBuf>,
    /// How the child enters the container's cgroup.
    pub entry: CgroupEntry,
    /// The signals that the caller ignores; the program would inherit that at exec.
    pub ignored: SignalSet,
    /// The caller's standard streams that are the null device.
    pub null_streams: Vec<Fd>,
    /// For each of `linux.devices`, the host's node of that device. Filled only where nodes cannot be made.
    pub nodes: Vec<Option<PathBuf>>,
    /// Whether AppArmor is on, and which file sets a profile.
    pub apparmor: AppArmor,
    /// Whether SELinux is on.
    pub selinux: Selinux,
    /// The mounted resctrl file system, which allocates cache and memory bandwidth; `None` if not mounted.
    pub resctrl: Option<Resctrl>,
    /// The system call ABIs that the kernel supports.
    pub machine: Machine,
    /// The home directory that the image's /etc/passwd gives the container's user.
    pub home: PathBuf,
}

/// Whether the kernel confines programs by AppArmor profiles, and which file sets the profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppArmor {
    /// AppArmor is off.
    Off,
    /// `attr/exec`, which was the only file before Linux 5.8.
    Alone,
    /// `attr/apparmor/exec`, which only AppArmor uses.
    Apart,
}

/// Whether the kernel confines programs by SELinux labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selinux {
    /// SELinux is off.
    Off,
    /// SELinux is on.
    On,
}

/// A resctrl file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resctrl {
    /// The mount point.
    pub root: PathBuf,
    /// Whether it allocates the L3 cache.
    pub l3: bool,
    /// Whether it allocates memory bandwidth.
    pub mb: bool,
}

/// The file at the path of a namespace to join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespacePath {
    Namespace {
        /// The kind of the namespace.
        kind: Namespaces,
        /// Whether the caller is in it.
        own: bool,
    },
    /// A file that is not a namespace.
    Other,
    /// The file cannot be opened, for this reason.
    Unreadable(String),
}

/// The ids that a user namespace maps, as the caller sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedIds {
    /// The mapped user ids.
    pub uids: Vec<IdMapping>,
    /// The mapped group ids.
    pub gids: Vec<IdMapping>,
    /// Whether its processes may change their groups.
    pub may_set_groups: bool,
}

/// How the child enters the container's cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CgroupEntry {
    /// The container has no cgroup; the child stays in the caller's.
    None,
    /// The child is cloned into it, as with cgroup v2.
    Born,
    /// The parent moves the child there at the child's request.
    Moved,
    /// The child moves itself to these cgroups of version 1, which exist.
    Enters(Vec<PathBuf>),
}

/// The hierarchies that a mount of type `cgroup` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CgroupMount {
    /// The single hierarchy of cgroup v2.
    V2,
    /// The hierarchies of cgroup v1, each with its name and the path of the caller's cgroup in it.
    V1(Vec<(String, PathBuf)>),
}

/// Checks that this machine supports `linux.intelRdt`. The parent makes the group itself.
pub(crate) fn check_resctrl(container: &Container, host: &Host, plan: &mut Builder<'_>) -> Result<(), Error> {
    let Some(asked) = &container.intel_rdt else { return Ok(()) };
    plan.at("linux.intelRdt");
    let Some(resctrl) = &host.resctrl else {
        return Err(plan.error("intelRdt is specified in config, but Intel RDT is not enabled"));
    };
    if asked.l3_cache_schema.is_some() && !resctrl.l3 {
        let reason = "intelRdt.l3CacheSchema is specified in config, but Intel RDT/CAT is not enabled";
        return Err(plan.at("linux.intelRdt.l3CacheSchema").error(reason));
    }
    if asked.mem_bw_schema.is_some() && !resctrl.mb {
        let reason = "intelRdt.memBwSchema is specified in config, but Intel RDT/MBA is not enabled";
        return Err(plan.at("linux.intelRdt.memBwSchema").error(reason));
    }
    Ok(())
}
