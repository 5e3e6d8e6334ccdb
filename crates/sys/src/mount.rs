//! Mounts by path, and by descriptor, which no other process can exchange.

use crate::{Fd, Result, raw, set_of_bits};
use core::ffi::CStr;
use linux_raw_sys::general as nr;
use rustix::mount::{FsMountFlags, FsOpenFlags, FsPickFlags, MoveMountFlags, OpenTreeFlags};

pub use rustix::mount::{MountFlags, MountPropagationFlags};

/// Mounts a new file system of type `fstype` at `target`, with `mount`.
pub fn mount(source: &CStr, target: &CStr, fstype: &CStr, flags: MountFlags, data: &CStr) -> Result {
    rustix::mount::mount(source, target, fstype, flags, data)
}

/// Bind mounts the tree at `source` on `target`, with `mount(MS_BIND | MS_REC)`.
pub fn mount_bind_recursive(source: &CStr, target: &CStr) -> Result {
    rustix::mount::mount_bind_recursive(source, target)
}

/// Sets the propagation of the mount at `target`, with `mount`.
pub fn mount_change(target: &CStr, flags: MountPropagationFlags) -> Result {
    rustix::mount::mount_change(target, flags)
}

/// Makes `new_root` the root and moves the old root to `put_old`, with `pivot_root`.
pub fn pivot_root(new_root: &CStr, put_old: &CStr) -> Result {
    rustix::process::pivot_root(new_root, put_old)
}

/// Unmounts the tree at `target` at once, with `umount2(MNT_DETACH)`. Its file systems end when their last user is
/// gone.
pub fn umount_detach(target: &CStr) -> Result {
    rustix::mount::unmount(target, rustix::mount::UnmountFlags::DETACH)
}

/// Opens a context for configuring a file system of type `fstype`, with `fsopen(FSOPEN_CLOEXEC)`.
///
/// # Errors
///
/// `ENODEV` if the kernel does not support the type; for the rest see fsopen(2).
pub fn fsopen(fstype: &CStr) -> Result<Fd> {
    raw::fsopen(fstype, FsOpenFlags::FSOPEN_CLOEXEC.bits())
}

/// Sets a parameter of the file system, with `fsconfig(FSCONFIG_SET_STRING)`.
///
/// # Errors
///
/// `EINVAL` if the file system does not know the parameter or the value.
pub fn fsconfig_set_string(file_system: Fd, key: &CStr, value: &CStr) -> Result {
    rustix::mount::fsconfig_set_string(file_system.lend(), key, value)
}

/// Sets a flag of the file system, with `fsconfig(FSCONFIG_SET_FLAG)`.
///
/// # Errors
///
/// `EINVAL` if the file system does not know the flag.
pub fn fsconfig_set_flag(file_system: Fd, key: &CStr) -> Result {
    rustix::mount::fsconfig_set_flag(file_system.lend(), key)
}

/// Sets a parameter of the file system to a descriptor, with `fsconfig(FSCONFIG_SET_FD)`.
///
/// # Errors
///
/// `EINVAL` if the file system does not know the parameter.
pub fn fsconfig_set_fd(file_system: Fd, key: &CStr, fd: Fd) -> Result {
    rustix::mount::fsconfig_set_fd(file_system.lend(), key, fd.lend())
}

/// Creates the configured file system, with `fsconfig(FSCONFIG_CMD_CREATE)`.
pub fn fsconfig_create(file_system: Fd) -> Result {
    rustix::mount::fsconfig_create(file_system.lend())
}

/// A set of mount attributes (`MOUNT_ATTR_*`).
///
/// The way in which access times are updated is one value in several bits: `RELATIME`, `NOATIME` or `STRICTATIME`. A
/// call that sets one of them for an existing mount must also clear `ATIME` (mount_setattr(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountAttributes(u32);

impl MountAttributes {
    /// Refuses all writes, except to devices, sockets and FIFOs.
    pub const RDONLY: Self = Self(nr::MOUNT_ATTR_RDONLY);
    /// Ignores set-user-ID bits, set-group-ID bits and file capabilities.
    pub const NOSUID: Self = Self(nr::MOUNT_ATTR_NOSUID);
    /// Refuses to open device nodes.
    pub const NODEV: Self = Self(nr::MOUNT_ATTR_NODEV);
    /// Refuses to execute programs.
    pub const NOEXEC: Self = Self(nr::MOUNT_ATTR_NOEXEC);
    /// Does not update the access times of directories.
    pub const NODIRATIME: Self = Self(nr::MOUNT_ATTR_NODIRATIME);
    /// Does not follow symlinks.
    pub const NOSYMFOLLOW: Self = Self(nr::MOUNT_ATTR_NOSYMFOLLOW);
    /// All bits of the value for access times. It can be cleared, but not set.
    pub const ATIME: Self = Self(nr::MOUNT_ATTR__ATIME);
    /// Updates an access time only if it is older than the modification time, or than a day. This is the default and
    /// equals [`EMPTY`](Self::EMPTY).
    pub const RELATIME: Self = Self(nr::MOUNT_ATTR_RELATIME);
    /// Never updates access times.
    pub const NOATIME: Self = Self(nr::MOUNT_ATTR_NOATIME);
    /// Always updates access times.
    pub const STRICTATIME: Self = Self(nr::MOUNT_ATTR_STRICTATIME);
    const IDMAP: Self = Self(nr::MOUNT_ATTR_IDMAP);

    /// All attributes except `RELATIME`, with their names in mount(8). `ATIME` is named `atime`.
    pub const NAMES: &[(Self, &'static str)] = &[
        (Self::RDONLY, "ro"),
        (Self::NOSUID, "nosuid"),
        (Self::NODEV, "nodev"),
        (Self::NOEXEC, "noexec"),
        (Self::NODIRATIME, "nodiratime"),
        (Self::NOSYMFOLLOW, "nosymfollow"),
        (Self::NOATIME, "noatime"),
        (Self::STRICTATIME, "strictatime"),
        (Self::ATIME, "atime"),
    ];

    /// Returns whether this set contains every attribute in `other`. If `other` has a value for access times, this set
    /// must have the same value: `ATIME` does not contain `NOATIME`.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        let mask = if other.intersects(Self::ATIME) { other.union(Self::ATIME) } else { other };
        self.intersection(mask).0 == other.0
    }

    /// Returns whether the two sets have a bit in common.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

set_of_bits!(MountAttributes);

/// A change to the attributes of a mount. An attribute in both sets is set, because `clear` applies first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributeChange {
    /// The attributes to set.
    pub set: MountAttributes,
    /// The attributes to clear.
    pub clear: MountAttributes,
}

impl AttributeChange {
    /// Changes nothing.
    pub const NONE: Self = Self::set(MountAttributes::EMPTY);

    /// Sets `attributes` and clears none.
    #[must_use]
    pub const fn set(attributes: MountAttributes) -> Self {
        Self { set: attributes, clear: MountAttributes::EMPTY }
    }
}

/// Creates a detached mount of the file system with `attributes`, with `fsmount(FSMOUNT_CLOEXEC)`.
///
/// # Errors
///
/// See fsmount(2).
pub fn fsmount(file_system: Fd, attributes: MountAttributes) -> Result<Fd> {
    raw::fsmount(file_system, FsMountFlags::FSMOUNT_CLOEXEC.bits(), attributes.0)
}

/// How much of a tree of mounts is included. The larger extent is the greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extent {
    /// The mount alone.
    Top,
    /// The mount and all mounts below it.
    All,
}

/// Returns a detached copy of the mount at `path`, from `open_tree(OPEN_TREE_CLONE)`.
pub fn open_tree_clone(path: &CStr, extent: Extent) -> Result<Fd> {
    raw::open_tree(None, path, clone_flags(extent).bits())
}

/// Like [`open_tree_clone`], but copies the mount that `fd` was opened on, with `fd` as its root.
///
/// # Errors
///
/// `EINVAL` if `fd` is in another mount namespace; for the rest see open_tree(2).
pub fn open_tree_clone_of(fd: Fd, extent: Extent) -> Result<Fd> {
    let flags = clone_flags(extent) | OpenTreeFlags::AT_EMPTY_PATH;
    raw::open_tree(Some(fd), c"", flags.bits())
}

fn clone_flags(extent: Extent) -> OpenTreeFlags {
    OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | recursion(extent)
}

/// Returns `AT_RECURSIVE` for an extent that includes the mounts below.
fn recursion(extent: Extent) -> OpenTreeFlags {
    match extent {
        Extent::Top => OpenTreeFlags::empty(),
        Extent::All => OpenTreeFlags::AT_RECURSIVE,
    }
}

/// Changes the attributes of `mount` with `mount_setattr`. Sets its propagation, unless `propagation` is empty.
///
/// # Errors
///
/// `EPERM` if an attribute to be cleared is locked by an outer user namespace; for the rest see
/// mount_setattr(2).
pub fn mount_setattr(
    mount: Fd,
    extent: Extent,
    change: AttributeChange,
    propagation: MountPropagationFlags,
) -> Result {
    let AttributeChange { set, clear } = change;
    let words = [set.0.into(), clear.0.into(), propagation.bits().into(), 0];
    raw::mount_setattr(mount, recursion(extent).bits(), words)
}

/// Attaches a detached mount to `target` with `move_mount`. `target` is a descriptor, so that no name is looked up
/// again.
pub fn move_mount(mount: Fd, target: Fd) -> Result {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(mount.lend(), c"", target.lend(), c"", flags)
}

/// Maps the ids of a detached mount's files as the user namespace `userns` does, with
/// `mount_setattr(MOUNT_ATTR_IDMAP)`.
///
/// # Errors
///
/// `EINVAL` if the file system does not support it, `EPERM` without privileges over it; for the rest see
/// mount_setattr(2).
pub fn mount_setattr_idmap(mount: Fd, extent: Extent, userns: Fd) -> Result {
    let words = [MountAttributes::IDMAP.0.into(), 0, 0, userns.word() as u64];
    raw::mount_setattr(mount, recursion(extent).bits(), words)
}

/// Opens the file system of `mount` for reconfiguration, with `fspick(FSPICK_CLOEXEC | FSPICK_EMPTY_PATH)`.
///
/// # Errors
///
/// `EINVAL` if `mount` is not the root of a mount; for the rest see fspick(2).
pub fn fspick(mount: Fd) -> Result<Fd> {
    raw::fspick(mount, FsPickFlags::FSPICK_CLOEXEC.union(FsPickFlags::FSPICK_EMPTY_PATH).bits())
}

/// Applies a new configuration, with `fsconfig(FSCONFIG_CMD_RECONFIGURE)`.
///
/// # Errors
///
/// `EPERM` without privileges over the file system; for the rest see mount(2).
pub fn fsconfig_reconfigure(file_system: Fd) -> Result {
    rustix::mount::fsconfig_reconfigure(file_system.lend())
}

#[cfg(test)]
mod tests {
    use super::{Extent, MountAttributes};

    #[test]
    fn value_for_access_times_is_compared_as_a_whole() {
        use MountAttributes as Is;
        let (noatime, all) = (Is::NOATIME | Is::RDONLY, Is::ATIME | Is::RDONLY);
        assert!(noatime.contains(Is::NOATIME) && noatime.contains(Is::RDONLY) && all.contains(Is::ATIME));
        assert!(!noatime.contains(Is::ATIME) && !noatime.contains(Is::STRICTATIME));
        assert!(!all.contains(Is::NOATIME) && all.intersects(Is::NOATIME));
        assert!(!noatime.contains(Is::RDONLY | Is::NODEV) && noatime.contains(Is::RELATIME));
    }

    #[test]
    fn each_attribute_has_one_name() {
        for (attribute, name) in MountAttributes::NAMES {
            let mut names = MountAttributes::NAMES.iter().filter(|(other, _)| attribute.contains(*other));
            assert_eq!((names.next().map(|(_, name)| name), names.next()), (Some(name), None));
        }
    }

    #[test]
    fn extent_that_includes_the_mounts_below_is_the_greater_one() {
        assert!(Extent::Top < Extent::All && None < Some(Extent::Top));
    }
}
