//! Creates and joins namespaces.

use crate::raw::{self, Numeric, numbers};
use crate::{Fd, Result, set_of_bits};
use linux_raw_sys::general as nr;

pub use rustix::system::{setdomainname, sethostname};

/// A set of kinds of namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Namespaces(u32);

impl Namespaces {
    /// Time: the offsets of the monotonic and boot clocks.
    pub const TIME: Self = Self(nr::CLONE_NEWTIME);
    /// Mount: the file system tree.
    pub const MOUNT: Self = Self(nr::CLONE_NEWNS);
    /// Cgroup: the apparent root of the cgroup tree.
    pub const CGROUP: Self = Self(nr::CLONE_NEWCGROUP);
    /// UTS: host name and domain name.
    pub const UTS: Self = Self(nr::CLONE_NEWUTS);
    /// IPC: System V objects and POSIX message queues.
    pub const IPC: Self = Self(nr::CLONE_NEWIPC);
    /// User: ids and capabilities.
    pub const USER: Self = Self(nr::CLONE_NEWUSER);
    /// Pid: process numbers.
    pub const PID: Self = Self(nr::CLONE_NEWPID);
    /// Network: devices, addresses, ports.
    pub const NET: Self = Self(nr::CLONE_NEWNET);
    /// All eight kinds.
    pub const ALL: Self = Self::TIME
        .union(Self::MOUNT)
        .union(Self::CGROUP)
        .union(Self::UTS)
        .union(Self::IPC)
        .union(Self::USER)
        .union(Self::PID)
        .union(Self::NET);

    /// All eight kinds with their names in `/proc/PID/ns`.
    pub const NAMES: [(Self, &'static str); 8] = [
        (Self::USER, "user"),
        (Self::MOUNT, "mnt"),
        (Self::PID, "pid"),
        (Self::NET, "net"),
        (Self::IPC, "ipc"),
        (Self::UTS, "uts"),
        (Self::CGROUP, "cgroup"),
        (Self::TIME, "time"),
    ];

    /// Returns the set with these bits, without those that are not kinds of namespaces.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// Returns whether this set contains every kind in `other`.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

set_of_bits!(Namespaces);

/// Creates new namespaces for the caller with `unshare`; those of time and pid are for its next children.
pub fn unshare(namespaces: Namespaces) -> Result {
    numbers(Numeric::Unshare, [namespaces.0 as usize, 0, 0]).map(drop)
}

/// Brings up the loopback device of the caller's network namespace, with `ioctl(SIOCSIFFLAGS)`.
pub fn loopback_up() -> Result {
    // Any socket works; this kind exists without a network address family.
    let socket = raw::socket_unix()?;
    let set = raw::ioctl_loopback_up(socket);
    raw::close(socket);
    set
}

/// Creates a network namespace for the calling thread, with `unshare`, and returns a descriptor of it. If `loopback` is
/// set, brings its loopback device up.
pub fn new_net(loopback: bool) -> Result<Fd> {
    unshare(Namespaces::NET)?;
    let socket = raw::socket_unix()?;
    let up = if loopback { raw::ioctl_loopback_up(socket) } else { Ok(()) };
    let namespace = up.and_then(|()| raw::ioctl_socket_namespace(socket));
    raw::close(socket);
    namespace
}

/// Succeeds if nothing else uses the caller's memory, and changes nothing, with `unshare(CLONE_VM)`.
///
/// # Errors
///
/// `EINVAL` if the process has other threads, or if another process shares its memory.
pub fn unshare_vm() -> Result {
    numbers(Numeric::Unshare, [linux_raw_sys::general::CLONE_VM as usize, 0, 0]).map(drop)
}

/// Returns the kind of namespace that `fd` refers to, from `ioctl(NS_GET_NSTYPE)`.
///
/// # Errors
///
/// `ENOTTY` if `fd` is not a namespace.
pub fn ioctl_ns_get_nstype(fd: Fd) -> Result<Namespaces> {
    let kind = raw::ioctl_ns_get_nstype(fd)?;
    Ok(Namespaces(u32::try_from(kind).unwrap_or(0)))
}

/// Gives the calling thread its own root, working directory and umask, with `unshare(CLONE_FS)`. A thread that shares
/// them cannot join a mount namespace.
pub fn unshare_fs() -> Result {
    numbers(Numeric::Unshare, [linux_raw_sys::general::CLONE_FS as usize, 0, 0]).map(drop)
}

/// Joins the namespace that `fd` refers to, with `setns`. If `fd` is a pidfd, joins the namespaces of its process that
/// are in `kinds`.
///
/// # Errors
///
/// `EINVAL` if `fd` is not a namespace of one of these kinds. `EUSERS` for a time namespace if the caller shares its
/// memory. For the rest see setns(2).
pub fn setns(fd: Fd, kinds: Namespaces) -> Result {
    numbers(Numeric::Setns, [fd.word(), kinds.0 as usize, 0]).map(drop)
}
