//! What was asked: a configuration with every default resolved and every name looked up.
//!
//! Plain data. Absent, null and explicitly default are the same here; an `Option` is left only where
//! "nothing" is itself something to ask for. Nothing of it depends on the machine: what the kernel
//! can do of it, and how, is for the planner.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;

/// A container that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// The bundle's directory, absolute.
    pub bundle: PathBuf,
    /// `root.path`, absolute.
    pub rootfs: PathBuf,
    /// `root.readonly`.
    pub rootfs_access: Access,
    /// `linux.rootfsPropagation`.
    pub rootfs_propagation: Option<Propagation>,
    /// `process`, which the specification lets a container do without.
    pub process: Option<Process>,
    /// `mounts`, in their order.
    pub mounts: Vec<Mount>,
    /// `hostname`.
    pub hostname: Option<String>,
    /// `domainname`.
    pub domainname: Option<String>,
    /// `linux.namespaces`.
    pub namespaces: Vec<Namespace>,
    /// `linux.uidMappings`.
    pub uid_mappings: Vec<IdMapping>,
    /// `linux.gidMappings`.
    pub gid_mappings: Vec<IdMapping>,
    /// `linux.timeOffsets`.
    pub time_offsets: Vec<TimeOffset>,
    /// `linux.devices`.
    pub devices: Vec<Device>,
    /// `linux.sysctl`, keys with dots.
    pub sysctl: BTreeMap<String, String>,
    /// `linux.maskedPaths`.
    pub masked_paths: Vec<PathBuf>,
    /// `linux.readonlyPaths`.
    pub readonly_paths: Vec<PathBuf>,
    /// `linux.mountLabel`.
    pub mount_label: Option<String>,
    /// `linux.seccomp`.
    pub seccomp: Option<husk_seccomp::Profile>,
    /// `linux.seccomp.listenerPath` with `listenerMetadata`.
    pub seccomp_listener: Option<SeccompListener>,
    /// How unknown system calls in the profile are treated; crun's `seccomp_fail_unknown_syscall`.
    pub unknown_calls: UnknownCalls,
    /// The mount option that `linux.mountLabel` is given by; crun's `mount_context_type`.
    pub mount_context: MountContext,
    /// The socket that the pidfd of the container's process is sent to; crun's `pidfd_receiver`.
    pub pidfd_receiver: Option<PathBuf>,
    /// `linux.personality.domain`: `PER_*`.
    pub personality: Option<u32>,
    /// `linux.memoryPolicy`.
    pub memory_policy: Option<MemoryPolicy>,
    /// `linux.netDevices`, by their names on the host.
    pub net_devices: Vec<NetDevice>,
    /// `linux.intelRdt`.
    pub intel_rdt: Option<IntelRdt>,
    /// `linux.cgroupsPath`.
    pub cgroups_path: Option<String>,
    /// `linux.resources`.
    pub resources: husk_cgroup::Resources,
    /// `hooks`.
    pub hooks: Hooks,
    /// `annotations`.
    pub annotations: BTreeMap<String, String>,
}

/// Whether a tree may be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It may.
    ReadWrite,
    /// It may not.
    ReadOnly,
}

/// Who hears of mounts made below a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Propagation {
    /// The kind.
    pub kind: PropagationKind,
    /// Whether for the mounts below it too.
    pub recursive: bool,
}

/// The four kinds of mount propagation (mount_namespaces(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropagationKind {
    /// Both ways.
    Shared,
    /// From the outside only.
    Slave,
    /// Nobody.
    Private,
    /// Nobody, and it cannot be bound elsewhere.
    Unbindable,
}

/// `process`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// `args`, at least one.
    pub args: Vec<CString>,
    /// `env`: each with its `=`, each name once, the last one of it.
    pub env: Vec<CString>,
    /// `cwd`, absolute.
    pub cwd: PathBuf,
    /// `user.uid`.
    pub uid: u32,
    /// `user.gid`.
    pub gid: u32,
    /// `user.additionalGids`.
    pub additional_gids: Vec<u32>,
    /// Whether the caller's supplementary groups stay; crun's `keep_original_groups`.
    pub keeps_groups: bool,
    /// `user.umask`.
    pub umask: u32,
    /// `terminal` with `consoleSize`.
    pub terminal: Terminal,
    /// `capabilities`.
    pub capabilities: Capabilities,
    /// `rlimits`.
    pub rlimits: Vec<Rlimit>,
    /// `noNewPrivileges`.
    pub no_new_privileges: NoNewPrivileges,
    /// `apparmorProfile`.
    pub apparmor_profile: Option<String>,
    /// `selinuxLabel`.
    pub selinux_label: Option<String>,
    /// `oomScoreAdj`: left alone if nothing is said.
    pub oom_score_adj: Option<i32>,
    /// `scheduler`.
    pub scheduler: Option<Scheduler>,
    /// `ioPriority`: class and level.
    pub io_priority: Option<(u8, u8)>,
    /// `execCPUAffinity`.
    pub exec_affinity: ExecAffinity,
}

/// Whether the process has a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminal {
    /// None.
    No,
    /// One of its own, of this many rows and columns if that was said.
    Yes(Option<(u16, u16)>),
}

/// Whether exec may give privileges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoNewPrivileges {
    /// It may not.
    Set,
    /// It may.
    Unset,
}

/// The five sets, a bit for each capability by its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// What can ever be gained.
    pub bounding: u64,
    /// What is in force.
    pub effective: u64,
    /// What files may give on exec.
    pub inheritable: u64,
    /// What may be put in force.
    pub permitted: u64,
    /// What survives exec without files.
    pub ambient: u64,
}

/// One of `process.rlimits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rlimit {
    /// `RLIMIT_*` by its number.
    pub resource: u32,
    /// What is enforced; `u64::MAX` is unlimited.
    pub soft: u64,
    /// How far the process may raise it.
    pub hard: u64,
}

/// `process.scheduler`, in the numbers of sched_setattr(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scheduler {
    /// `SCHED_*`.
    pub policy: u32,
    /// `SCHED_FLAG_*`.
    pub flags: u64,
    /// For the ordinary policies.
    pub nice: i32,
    /// For the real-time policies.
    pub priority: u32,
    /// For `SCHED_DEADLINE`, as the other two.
    pub runtime: u64,
    /// See `runtime`.
    pub deadline: u64,
    /// See `runtime`.
    pub period: u64,
}

/// `process.execCPUAffinity`: CPU lists, for `exec` only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecAffinity {
    /// Before the process is moved to the container's cgroup.
    pub initial: Option<CpuList>,
    /// After.
    pub finally: Option<CpuList>,
}

/// Who decides about the system calls that a profile notifies of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeccompListener {
    /// `listenerPath`: the socket where it waits, absolute.
    pub path: PathBuf,
    /// `listenerMetadata`, for it alone.
    pub metadata: Option<String>,
}

/// How a name in a seccomp profile is treated that is not a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownCalls {
    /// It is left out.
    Ignored,
    /// The container is refused.
    Refused,
}

/// SELinux's mount options (mount(8)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountContext {
    /// `context`: for everything in the file system.
    Whole,
    /// `fscontext`: for the file system itself.
    FileSystem,
    /// `defcontext`: for files without a label.
    Default,
    /// `rootcontext`: for the root inode.
    Root,
}

impl MountContext {
    const NAMES: [(Self, &str); 4] = [
        (Self::Whole, "context"),
        (Self::FileSystem, "fscontext"),
        (Self::Default, "defcontext"),
        (Self::Root, "rootcontext"),
    ];

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::NAMES.into_iter().find(|(_, known)| *known == name).map(|(context, _)| context)
    }

    /// The name of the option.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.into_iter().find(|(context, _)| *context == self).map_or("context", |(_, name)| name)
    }
}

/// `linux.memoryPolicy`, in the numbers of set_mempolicy(2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPolicy {
    /// `MPOL_*` with `MPOL_F_*`.
    pub mode: u32,
    /// Nodes by number.
    pub nodes: Vec<usize>,
}

/// One of `linux.netDevices`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NetDevice {
    /// Its name on the host.
    pub name: String,
    /// `name`: its name in the container.
    pub new_name: String,
}

/// `linux.intelRdt`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntelRdt {
    /// `closID`: a group that is shared, or the container's own if there is none.
    pub clos_id: Option<String>,
    /// `l3CacheSchema`.
    pub l3_cache_schema: Option<String>,
    /// `memBwSchema`.
    pub mem_bw_schema: Option<String>,
    /// `schemata`, a line each.
    pub schemata: Vec<String>,
    /// `enableMonitoring`.
    pub monitoring: Monitoring,
}

/// Whether a container has a resctrl monitoring group of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Monitoring {
    /// It has.
    Own,
    /// It has none.
    None,
}

/// CPUs by number.
pub type CpuList = Vec<usize>;

/// One of `linux.namespaces`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// `type`.
    pub kind: NamespaceKind,
    /// `path`: the namespace to join, or a new one if there is none.
    pub path: Option<PathBuf>,
}

/// The eight kinds of namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NamespaceKind {
    /// Ids and capabilities.
    User,
    /// The file system tree.
    Mount,
    /// Process numbers.
    Pid,
    /// Devices, addresses, ports.
    Network,
    /// System V objects and POSIX message queues.
    Ipc,
    /// Host name and domain name.
    Uts,
    /// What looks like the root of the cgroup tree.
    Cgroup,
    /// Clock offsets.
    Time,
}

/// One of `linux.uidMappings` or `linux.gidMappings`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdMapping {
    /// `containerID`.
    pub container_id: u32,
    /// `hostID`.
    pub host_id: u32,
    /// `size`.
    pub size: u32,
}

impl IdMapping {
    /// Returns the host's id for an id of the container, if one of the mappings covers it.
    #[must_use]
    pub fn host_id_in(mappings: &[Self], id: u32) -> Option<u32> {
        mappings.iter().find_map(|map| {
            let offset = id.checked_sub(map.container_id).filter(|offset| *offset < map.size)?;
            map.host_id.checked_add(offset)
        })
    }
}

/// One of `linux.timeOffsets`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeOffset {
    /// Which clock.
    pub clock: Clock,
    /// Seconds.
    pub secs: i64,
    /// Nanoseconds.
    pub nanosecs: u32,
}

/// The clocks that a time namespace has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// `CLOCK_MONOTONIC`.
    Monotonic,
    /// `CLOCK_BOOTTIME`.
    Boottime,
}

/// One of `linux.devices`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// `path`, absolute in the container.
    pub path: PathBuf,
    /// `type` with its numbers.
    pub kind: DeviceKind,
    /// `fileMode`, permissions only.
    pub mode: u32,
    /// `uid`.
    pub uid: u32,
    /// `gid`.
    pub gid: u32,
}

/// What a device node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// `c` or `u`.
    Character(u32, u32),
    /// `b`.
    Block(u32, u32),
    /// `p`.
    Fifo,
}

impl Display for DeviceKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Character(major, minor) => write!(f, "c {major}:{minor}"),
            Self::Block(major, minor) => write!(f, "b {major}:{minor}"),
            Self::Fifo => f.write_str("p"),
        }
    }
}

/// `hooks`, each list in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hooks {
    /// In the runtime's namespaces, after the container's exist.
    pub prestart: Vec<Hook>,
    /// The same, right after.
    pub create_runtime: Vec<Hook>,
    /// In the container's namespaces, before the root is changed.
    pub create_container: Vec<Hook>,
    /// In the container, before its program starts.
    pub start_container: Vec<Hook>,
    /// In the runtime's namespaces, after its program started.
    pub poststart: Vec<Hook>,
    /// In the runtime's namespaces, after the container is deleted.
    pub poststop: Vec<Hook>,
    /// Where the standard output and the standard error of all hooks are appended; crun's `hooks.stdout` and
    /// `hooks.stderr`.
    pub streams: HookStreams,
}

/// Files for the output of hooks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookStreams {
    /// For standard output.
    pub stdout: Option<PathBuf>,
    /// For standard error.
    pub stderr: Option<PathBuf>,
}

/// A program to run at one point of a container's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// `path`, absolute.
    pub path: PathBuf,
    /// `args`, its name first.
    pub args: Vec<CString>,
    /// `env`, or what the caller has if nothing is said.
    pub env: Option<Vec<CString>>,
    /// `timeout` in seconds.
    pub timeout_seconds: Option<u64>,
}

/// One of `mounts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// `destination`, absolute.
    pub destination: PathBuf,
    /// What is mounted there.
    pub source: Source,
    /// What its own mount gets.
    pub attributes: Attributes,
    /// What it and all mounts below it get.
    pub recursive_attributes: Attributes,
    /// Who hears of mounts below it, one after the other.
    pub propagation: Vec<Propagation>,
    /// The ids its files show.
    pub id_mapping: Option<MountIdMapping>,
}

/// What a mount shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file or directory of the host, absolute.
    Bind {
        /// What to show.
        path: PathBuf,
        /// Whether with the mounts below it.
        recursive: bool,
    },
    /// A new file system.
    New {
        /// `type`.
        fstype: String,
        /// `source`.
        name: String,
        /// What of `options` is for the file system itself: `mode=755`, `sync`.
        options: Vec<String>,
        /// Whether what the image has there is copied into it, `tmpcopyup`.
        copy_up: bool,
    },
    /// What is mounted there already, which changes.
    Remount {
        /// What changes of the file system itself, or `None` if its mount alone does.
        file_system: Option<Reconfiguration>,
    },
    /// The container's cgroups, whatever hierarchy the host has.
    Cgroup {
        /// The options for the file system of cgroup v2, such as `nsdelegate`.
        options: Vec<String>,
    },
}

/// A change to a file system that is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reconfiguration {
    /// `type`.
    pub fstype: String,
    /// What of `options` is for the file system itself.
    pub options: Vec<String>,
}

/// Mount attributes in the bits of mount_setattr(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// `attr_set`.
    pub set: u64,
    /// `attr_clr`.
    pub clear: u64,
}

/// The ids that the files of a mount show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountIdMapping {
    /// Whether for the mounts below it too, `ridmap`.
    pub recursive: bool,
    /// `uidMappings`, or the container's own if there are none.
    pub uids: Vec<IdMapping>,
    /// `gidMappings`, or the container's own if there are none.
    pub gids: Vec<IdMapping>,
}
