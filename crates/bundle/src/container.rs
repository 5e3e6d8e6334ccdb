//! The resolved configuration, with every default filled in and every name looked up.
//!
//! These are plain data. Absent, null and explicitly default values are the same here; an `Option` remains only
//! where "nothing" is a choice of its own. No value depends on the machine: what the kernel supports is for the
//! planner to find out.

use husk_sys::mount::{AttributeChange, Extent};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;

/// A container as its configuration describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// The bundle's directory, absolute.
    pub bundle: PathBuf,
    /// `root.path`, absolute.
    pub rootfs: PathBuf,
    /// The layers that `husk bundle` has given the bundle, from the highest to the lowest: entries of
    /// [`LAYERS`](crate::LAYERS). The root file system is an overlay of them; if there are none, the directory itself.
    pub layers: Vec<PathBuf>,
    /// `root.readonly`.
    pub rootfs_access: Access,
    /// `linux.rootfsPropagation`; `None` if absent or empty.
    pub rootfs_propagation: Option<Propagation>,
    /// `process`, which the specification makes optional.
    pub process: Option<Process>,
    /// `mounts`, in the order of the file.
    pub mounts: Vec<Mount>,
    /// `hostname`; `None` if absent or empty.
    pub hostname: Option<String>,
    /// `domainname`; `None` if absent or empty.
    pub domainname: Option<String>,
    /// `linux.namespaces`, each kind at most once.
    pub namespaces: Vec<Namespace>,
    /// `linux.uidMappings`.
    pub uid_mappings: Vec<IdMapping>,
    /// `linux.gidMappings`.
    pub gid_mappings: Vec<IdMapping>,
    /// `linux.timeOffsets`, monotonic before boottime.
    pub time_offsets: Vec<TimeOffset>,
    /// `linux.devices`, in the order of the file.
    pub devices: Vec<Device>,
    /// `linux.sysctl`, with dots as separators in the keys.
    pub sysctl: BTreeMap<String, String>,
    /// `linux.maskedPaths`, absolute and without duplicates.
    pub masked_paths: Vec<PathBuf>,
    /// `linux.readonlyPaths`, absolute.
    pub readonly_paths: Vec<PathBuf>,
    /// `linux.mountLabel`; `None` if absent or empty.
    pub mount_label: Option<String>,
    /// `linux.seccomp`, not compiled yet.
    pub seccomp: Option<husk_seccomp::Profile>,
    /// `linux.seccomp.listenerPath` with `listenerMetadata`.
    pub seccomp_listener: Option<SeccompListener>,
    /// How unknown system calls in the profile are treated; crun's `seccomp_fail_unknown_syscall`.
    pub unknown_calls: UnknownCalls,
    /// The mount option that passes `linux.mountLabel`; crun's `mount_context_type`.
    pub mount_context: MountContext,
    /// The socket that receives the pidfd of the container's process; crun's `pidfd_receiver`.
    pub pidfd_receiver: Option<PathBuf>,
    /// `linux.personality.domain`: `PER_*`.
    pub personality: Option<u32>,
    /// `linux.memoryPolicy`.
    pub memory_policy: Option<MemoryPolicy>,
    /// `linux.netDevices`, sorted by their names on the host.
    pub net_devices: Vec<NetDevice>,
    /// `linux.intelRdt`.
    pub intel_rdt: Option<IntelRdt>,
    /// `linux.cgroupsPath`; `None` if absent or empty.
    pub cgroups_path: Option<String>,
    /// `linux.resources`.
    pub resources: husk_cgroup::Resources,
    pub hooks: Hooks,
    pub annotations: BTreeMap<String, String>,
}

impl Container {
    /// Returns the options of the overlay of the layers, and the directory from which it is mounted; `None` without
    /// layers.
    ///
    /// All options are names in that directory, so no path becomes part of them. They must fit in a page (mount(2));
    /// fsconfig(2) would take 255 bytes for all layers, and single layers only since Linux 6.7.
    #[must_use]
    pub fn overlay(&self) -> Option<(PathBuf, String)> {
        if self.layers.is_empty() {
            return None;
        }
        let names: Vec<_> = (0..self.layers.len()).map(|number| number.to_string()).collect();
        // With `userxattr` root and users have the same format of whiteouts, so they can use each other's layers.
        // With `index`, the kernel refuses to use `upper` for two containers at a time (fs/overlayfs/super.c,
        // `ovl_report_in_use`), except on file systems without file handles.
        let options = format!("lowerdir={},upperdir=upper,workdir=work,userxattr,index=on", names.join(":"));
        Some((self.bundle.join(crate::LAYERS), options))
    }
}

/// Whether the root file system is writable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The root file system is writable.
    ReadWrite,
    ReadOnly,
}

/// How mount events pass between a mount and its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Propagation {
    pub kind: PropagationKind,
    /// Whether it applies to the mounts below as well.
    pub extent: Extent,
}

/// The four kinds of mount propagation (mount_namespaces(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropagationKind {
    /// Mount events propagate in both directions.
    Shared,
    /// Mount events propagate from the master to this mount only.
    Slave,
    /// Mount events do not propagate.
    Private,
    /// In neither direction, and the mount cannot be bind mounted.
    Unbindable,
}

/// The process of `config.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// `args`, at least one.
    pub args: Vec<CString>,
    /// `env` as NAME=VALUE, each name once. The last value of a name counts.
    pub env: Vec<CString>,
    /// `cwd`, absolute.
    pub cwd: PathBuf,
    /// `user.uid`.
    pub uid: u32,
    /// `user.gid`.
    pub gid: u32,
    /// `user.additionalGids`.
    pub additional_gids: Vec<u32>,
    /// Whether the caller's supplementary groups are kept; crun's `keep_original_groups`.
    pub keeps_groups: bool,
    /// `user.umask`, 022 by default.
    pub umask: u32,
    /// `terminal` with `consoleSize`.
    pub terminal: Terminal,
    pub capabilities: Capabilities,
    pub rlimits: Vec<Rlimit>,
    pub no_new_privileges: NoNewPrivileges,
    /// `None` if absent or empty.
    pub apparmor_profile: Option<String>,
    /// `None` if absent or empty.
    pub selinux_label: Option<String>,
    /// `oomScoreAdj`; `None` keeps the inherited score.
    pub oom_score_adj: Option<i32>,
    pub scheduler: Option<Scheduler>,
    /// `ioPriority`: class and level.
    pub io_priority: Option<(u8, u8)>,
    /// `execCPUAffinity`.
    pub exec_affinity: ExecAffinity,
}

/// Whether the process has a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminal {
    /// The process has no terminal.
    No,
    /// A terminal of its own, with this many rows and columns if the configuration gives them.
    Yes(Option<(u16, u16)>),
}

/// Whether exec may grant privileges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoNewPrivileges {
    /// exec grants no privileges.
    Set,
    /// exec may grant privileges.
    Unset,
}

/// The five capability sets, with a bit for each capability number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// The limit of what the process can ever gain.
    pub bounding: u64,
    /// The capabilities that the kernel checks.
    pub effective: u64,
    /// The capabilities that a file may grant on exec.
    pub inheritable: u64,
    /// The capabilities that the process may make effective.
    pub permitted: u64,
    /// The capabilities that stay across exec of an ordinary file.
    pub ambient: u64,
}

/// An element of `process.rlimits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rlimit {
    /// The number of an `RLIMIT_*` constant.
    pub resource: u32,
    /// The limit that is enforced; `u64::MAX` is unlimited.
    pub soft: u64,
    /// The highest value to which the process may raise the soft limit.
    pub hard: u64,
}

/// `process.scheduler`, in the numbers of sched_setattr(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scheduler {
    /// `SCHED_*`.
    pub policy: u32,
    /// `SCHED_FLAG_*`.
    pub flags: u64,
    /// The nice value, for the ordinary policies.
    pub nice: i32,
    /// The priority, for the real-time policies.
    pub priority: u32,
    /// For `SCHED_DEADLINE`: the CPU time in each period, in nanoseconds.
    pub runtime: u64,
    /// For `SCHED_DEADLINE`: the time from the start of a period to the deadline, in nanoseconds.
    pub deadline: u64,
    /// For `SCHED_DEADLINE`: the length of a period, in nanoseconds.
    pub period: u64,
}

/// `process.execCPUAffinity`: CPU lists, for `exec` only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecAffinity {
    /// The CPUs before the process moves to the container's cgroup.
    pub initial: Option<CpuList>,
    /// The CPUs after the move.
    pub finally: Option<CpuList>,
}

/// The receiver of a profile's notifications, which decides about the calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeccompListener {
    /// `listenerPath`: the socket on which the receiver listens, absolute.
    pub path: PathBuf,
    /// `listenerMetadata`, which is sent to the receiver only.
    pub metadata: Option<String>,
}

/// How a profile's name that is not a system call is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownCalls {
    /// The name is ignored.
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

    /// Returns the name of the mount option.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.into_iter().find(|(context, _)| *context == self).map_or("context", |(_, name)| name)
    }
}

/// `linux.memoryPolicy`, in the numbers of set_mempolicy(2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPolicy {
    /// An `MPOL_*` constant with `MPOL_F_*` flags.
    pub mode: u32,
    /// The numbers of the nodes.
    pub nodes: Vec<usize>,
}

/// An entry of `linux.netDevices`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NetDevice {
    /// The name on the host.
    pub name: String,
    /// `name`: the name in the container; the host's if absent.
    pub new_name: String,
}

/// `linux.intelRdt`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntelRdt {
    /// `closID`: the name of a shared group. `None` gives the container a group of its own.
    pub clos_id: Option<String>,
    pub l3_cache_schema: Option<String>,
    pub mem_bw_schema: Option<String>,
    /// `schemata`, one line for each element.
    pub schemata: Vec<String>,
    pub monitoring: Monitoring,
}

/// Whether a container has a resctrl monitoring group of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Monitoring {
    /// The container has one.
    Own,
    /// The container has none.
    None,
}

/// CPU numbers.
pub type CpuList = Vec<usize>;

/// An element of `linux.namespaces`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// `type`.
    pub kind: NamespaceKind,
    /// `path`: the namespace to join; `None` for a new one.
    pub path: Option<PathBuf>,
}

/// The eight kinds of namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NamespaceKind {
    /// User and group ids, and capabilities.
    User,
    /// The mount tree.
    Mount,
    /// Process ids.
    Pid,
    /// Network devices, addresses and ports.
    Network,
    /// System V objects and POSIX message queues.
    Ipc,
    /// Host name and domain name.
    Uts,
    /// The root of the visible cgroup tree.
    Cgroup,
    /// Clock offsets.
    Time,
}

/// An element of `linux.uidMappings` or `linux.gidMappings`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdMapping {
    /// `containerID`: the first id in the container.
    pub container_id: u32,
    /// `hostID`: the first id on the host.
    pub host_id: u32,
    /// `size`: the number of ids.
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

/// An entry of `linux.timeOffsets`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeOffset {
    pub clock: Clock,
    pub secs: i64,
    /// The nanoseconds, below 1,000,000,000.
    pub nanosecs: u32,
}

/// The clocks that a time namespace can offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// `CLOCK_MONOTONIC`.
    Monotonic,
    /// `CLOCK_BOOTTIME`.
    Boottime,
}

/// An element of `linux.devices`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// `path`, absolute in the container.
    pub path: PathBuf,
    /// `type`, with `major` and `minor`.
    pub kind: DeviceKind,
    /// `fileMode`, reduced to the permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

/// The type and number of a device node.
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

/// `hooks`, each list in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hooks {
    /// Run in the runtime's namespaces, after the container's namespaces exist.
    pub prestart: Vec<Hook>,
    /// Run directly after `prestart`, also in the runtime's namespaces.
    pub create_runtime: Vec<Hook>,
    /// Run in the container's namespaces, before the root is changed.
    pub create_container: Vec<Hook>,
    /// Run in the container, before its program starts.
    pub start_container: Vec<Hook>,
    /// Run in the runtime's namespaces, after the program has started.
    pub poststart: Vec<Hook>,
    /// Run in the runtime's namespaces, after the container is deleted.
    pub poststop: Vec<Hook>,
    /// The files to which the output of all hooks is appended; crun's `hooks.stdout` and `hooks.stderr`.
    pub streams: HookStreams,
}

/// Files for the output of hooks; `None` where crun's annotation is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookStreams {
    /// The file for standard output.
    pub stdout: Option<PathBuf>,
    /// The file for standard error.
    pub stderr: Option<PathBuf>,
}

/// A program that runs at one point of a container's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// `path`, absolute.
    pub path: PathBuf,
    /// `args`, with the program's name first.
    pub args: Vec<CString>,
    /// `env`. Without it `startContainer` hooks get the program's environment, `createContainer` hooks an empty
    /// one, and the others the runtime's.
    pub env: Option<Vec<CString>>,
    /// `timeout` in seconds; `None` waits without limit.
    pub timeout_seconds: Option<u64>,
}

/// An element of `mounts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// `destination`, absolute.
    pub destination: PathBuf,
    /// The file system or tree that is mounted.
    pub source: Source,
    /// The attributes of the mount itself.
    pub attributes: AttributeChange,
    /// The attributes of the mount and of all mounts below it.
    pub recursive_attributes: AttributeChange,
    /// The propagation changes, applied in this order.
    pub propagation: Vec<Propagation>,
    /// The id mapping of an idmapped mount.
    pub id_mapping: Option<MountIdMapping>,
}

/// The contents of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file or directory of the host.
    Bind {
        /// The absolute path on the host.
        path: PathBuf,
        /// Whether the mounts below the path are included.
        extent: Extent,
    },
    /// A new file system.
    New {
        /// `type`.
        fstype: String,
        /// `source`.
        name: String,
        /// The part of `options` for the file system itself: `mode=755`, `sync`.
        options: Vec<String>,
        /// `tmpcopyup`: whether the image's files at the destination are copied into the new file system.
        copy_up: bool,
    },
    /// A change to an existing mount.
    Remount {
        /// The change to the file system itself; `None` if only the mount changes.
        file_system: Option<Reconfiguration>,
    },
    /// The container's cgroups, in whichever hierarchies the host has.
    Cgroup {
        /// The options for the file system of cgroup v2, such as `nsdelegate`.
        options: Vec<String>,
    },
}

/// A change to a mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reconfiguration {
    /// `type`.
    pub fstype: String,
    /// The part of `options` for the file system itself.
    pub options: Vec<String>,
}

/// How a mount translates the ids of its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountIdMapping {
    /// `idmap` or `ridmap`: whether the mounts below it are idmapped too.
    pub extent: Extent,
    /// `uidMappings`; the container's own mappings if empty.
    pub uids: Vec<IdMapping>,
    /// `gidMappings`; the container's own mappings if empty.
    pub gids: Vec<IdMapping>,
}
