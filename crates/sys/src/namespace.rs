//! Namespaces.

use crate::raw::{self, Numeric, numbers};
use crate::{Fd, Result};
use core::ops::{BitOr, BitOrAssign};
use linux_raw_sys::general as nr;

pub use rustix::system::{setdomainname, sethostname};

/// A set of kinds of namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Namespaces(u32);

impl Namespaces {
    /// None.
    pub const EMPTY: Self = Self(0);
    /// Time: the offsets of the monotonic and boot clocks.
    pub const TIME: Self = Self(nr::CLONE_NEWTIME);
    /// Mount: the file system tree.
    pub const MOUNT: Self = Self(nr::CLONE_NEWNS);
    /// Cgroup: what looks like the root of the cgroup tree.
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
    /// Each of the eight.
    pub const ALL: Self = Self::TIME
        .union(Self::MOUNT)
        .union(Self::CGROUP)
        .union(Self::UTS)
        .union(Self::IPC)
        .union(Self::USER)
        .union(Self::PID)
        .union(Self::NET);

    /// Each of the eight with the name that `/proc/PID/ns` has for it.
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

    /// The `CLONE_NEW*` bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The set of these bits; those that are no kind are left out.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// Whether every kind of `other` is in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The kinds that are in either set: what `|` is, for constants.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This set without the kinds of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The kinds that are in both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for Namespaces {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl BitOrAssign for Namespaces {
    fn bitor_assign(&mut self, other: Self) {
        *self = self.union(other);
    }
}

/// `unshare`: new namespaces for the caller, and for time and pid for its next children.
///
/// # Errors
///
/// See unshare(2).
pub fn unshare(namespaces: Namespaces) -> Result {
    numbers(Numeric::Unshare, [namespaces.0 as usize, 0, 0]).map(drop)
}

/// `ioctl(SIOCSIFFLAGS)`: the loopback device of the caller's network namespace is up.
///
/// # Errors
///
/// See netdevice(7).
pub fn loopback_up() -> Result {
    // Any socket will do; this kind is there without an address family for networks.
    let socket = raw::socket_unix()?;
    let set = raw::ioctl_loopback_up(socket);
    raw::close(socket);
    set
}

/// `ioctl(NS_GET_NSTYPE)`: the kind of namespace that `fd` is.
///
/// # Errors
///
/// `ENOTTY` if it is none.
pub fn ioctl_ns_get_nstype(fd: Fd) -> Result<Namespaces> {
    let kind = raw::ioctl_ns_get_nstype(fd)?;
    Ok(Namespaces(u32::try_from(kind).unwrap_or(0)))
}

/// `unshare(CLONE_FS)`: root, working directory and umask are the calling thread's own from here on, as
/// they have to be for it to join a mount namespace.
///
/// # Errors
///
/// See unshare(2).
pub fn unshare_fs() -> Result {
    numbers(Numeric::Unshare, [linux_raw_sys::general::CLONE_FS as usize, 0, 0]).map(drop)
}

/// `setns`: joins the namespace that `fd` stands for, or of the process whose pidfd it is, those of
/// `kinds`.
///
/// # Errors
///
/// `EINVAL` if `fd` is no namespace of one of these kinds, `EUSERS` for a time namespace when the
/// caller shares its memory with anybody; for the rest see setns(2).
pub fn setns(fd: Fd, kinds: Namespaces) -> Result {
    numbers(Numeric::Setns, [fd.word(), kinds.0 as usize, 0]).map(drop)
}
