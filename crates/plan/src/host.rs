//! What the planner has to know of a machine.

use crate::builder::{Builder, Error};
use husk_bundle::Container;
use husk_bundle::container::IdMapping;
use husk_script::sys::Fd;
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::signal::SignalSet;
use husk_seccomp::Machine;
use std::path::PathBuf;

/// A machine, and who asks. Plain data: probing is the runtime's, and tests write down machines that
/// are not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The caller's effective user.
    pub euid: u32,
    /// The caller's effective group.
    pub egid: u32,
    /// Whether the caller is in the first user namespace, whose root is root over devices.
    pub is_first_user_namespace: bool,
    /// Whether the caller's user namespace lets processes change their groups.
    pub may_set_groups: bool,
    /// For each of the container's namespaces what is at its path, if it has one.
    pub namespaces: Vec<Option<NamespacePath>>,
    /// What the user namespace maps that the container joins.
    pub joined_ids: Option<JoinedIds>,
    /// Whether a procfs can be told which pid namespace to show (Linux 6.17).
    pub procfs_takes_pidns: bool,
    /// Where the host has a procfs or sysfs with nothing covered, outside of the root file system; only
    /// looked for where it is asked for.
    pub revealing: Vec<PathBuf>,
    /// What a mount of type `cgroup` shows.
    pub cgroup: CgroupMount,
    /// Where the host has cgroup v2 mounted. Only looked for where a mount of type `cgroup2` asks for it.
    pub cgroup2: Option<PathBuf>,
    /// How the child comes into the container's cgroup.
    pub entry: CgroupEntry,
    /// The signals that the caller ignores, which exec would leave so.
    pub ignored: SignalSet,
    /// Which of the caller's standard streams are the null device.
    pub null_streams: Vec<Fd>,
    /// For each of `linux.devices` where the host has a node of it. Only looked for where no node can be made.
    pub nodes: Vec<Option<PathBuf>>,
    /// What confines programs by profiles.
    pub apparmor: AppArmor,
    /// What confines programs by labels.
    pub selinux: Selinux,
    /// What shares out caches and the way to memory, if it is mounted.
    pub resctrl: Option<Resctrl>,
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

/// A resctrl file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resctrl {
    /// Where it is.
    pub root: PathBuf,
    /// Whether it shares out the L3 cache.
    pub l3: bool,
    /// Whether it shares out the way to memory.
    pub mb: bool,
}

/// What is at the path of a namespace to join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespacePath {
    /// A namespace.
    Namespace {
        /// Of this kind.
        kind: Namespaces,
        /// Whether the caller is in it.
        own: bool,
    },
    /// Something else.
    Other,
    /// Something that cannot be opened, for this reason.
    Unreadable(String),
}

/// What a user namespace maps, as the caller sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedIds {
    /// Its user ids.
    pub uids: Vec<IdMapping>,
    /// Its group ids.
    pub gids: Vec<IdMapping>,
    /// Whether its processes may change their groups.
    pub may_set_groups: bool,
}

/// How the child comes into the container's cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupEntry {
    /// There is none: it stays in the caller's.
    None,
    /// It is born there, as in version 2.
    Born,
    /// Its parent moves it there when it asks.
    Moved,
}

/// What a mount of type `cgroup` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CgroupMount {
    /// The one hierarchy of cgroup v2.
    V2,
    /// The hierarchies of cgroup v1: the name of each, and the caller's cgroup in it.
    V1(Vec<(String, PathBuf)>),
}

/// `linux.intelRdt`: whether this machine has what is asked for. The group itself is the parent's to make.
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
