//! Mounts: by path, and by descriptor, which nobody can exchange under us.

use crate::{Errno, Fd, Result, raw};
use core::ffi::CStr;
use rustix::mount::{FsMountFlags, FsOpenFlags, MoveMountFlags, OpenTreeFlags};

pub use rustix::mount::{MountFlags, MountPropagationFlags};

/// `mount`: a new file system of type `fstype` at `target`.
///
/// # Errors
///
/// See mount(2).
pub fn mount(source: &CStr, target: &CStr, fstype: &CStr, flags: MountFlags, data: &CStr) -> Result {
    rustix::mount::mount(source, target, fstype, flags, data)
}

/// `mount(MS_BIND | MS_REC)`: the tree at `source` also at `target`.
///
/// # Errors
///
/// See mount(2).
pub fn mount_bind_recursive(source: &CStr, target: &CStr) -> Result {
    rustix::mount::mount_bind_recursive(source, target)
}

/// `mount` with propagation flags: who hears of mounts made below `target` from now on.
///
/// # Errors
///
/// See mount(2).
pub fn mount_change(target: &CStr, flags: MountPropagationFlags) -> Result {
    rustix::mount::mount_change(target, flags)
}

/// `pivot_root`: `new_root` becomes the root, and the old one is put at `put_old`.
///
/// # Errors
///
/// See pivot_root(2).
pub fn pivot_root(new_root: &CStr, put_old: &CStr) -> Result {
    rustix::process::pivot_root(new_root, put_old)
}

/// `umount2(MNT_DETACH)`: takes the tree at `target` away at once; its file systems end when the
/// last user is gone.
///
/// # Errors
///
/// See umount(2).
pub fn umount_detach(target: &CStr) -> Result {
    rustix::mount::unmount(target, rustix::mount::UnmountFlags::DETACH)
}

/// `fsopen(FSOPEN_CLOEXEC)`: a file system of type `fstype`, yet to be configured.
///
/// # Errors
///
/// `ENODEV` if the kernel has no such type; for the rest see fsopen(2).
pub fn fsopen(fstype: &CStr) -> Result<Fd> {
    raw::fsopen(fstype, FsOpenFlags::FSOPEN_CLOEXEC.bits())
}

/// `fsconfig(FSCONFIG_SET_STRING)`.
///
/// # Errors
///
/// `EINVAL` if the file system knows no such parameter or value.
pub fn fsconfig_set_string(file_system: Fd, key: &CStr, value: &CStr) -> Result {
    rustix::mount::fsconfig_set_string(file_system.lend(), key, value)
}

/// `fsconfig(FSCONFIG_SET_FLAG)`.
///
/// # Errors
///
/// `EINVAL` if the file system knows no such flag.
pub fn fsconfig_set_flag(file_system: Fd, key: &CStr) -> Result {
    rustix::mount::fsconfig_set_flag(file_system.lend(), key)
}

/// `fsconfig(FSCONFIG_SET_FD)`.
///
/// # Errors
///
/// `EINVAL` if the file system knows no such parameter.
pub fn fsconfig_set_fd(file_system: Fd, key: &CStr, fd: Fd) -> Result {
    rustix::mount::fsconfig_set_fd(file_system.lend(), key, fd.lend())
}

/// `fsconfig(FSCONFIG_CMD_CREATE)`.
///
/// # Errors
///
/// See mount(2).
pub fn fsconfig_create(file_system: Fd) -> Result {
    rustix::mount::fsconfig_create(file_system.lend())
}

/// `fsmount(FSMOUNT_CLOEXEC)`: a mount of it that is nowhere yet, with `attributes`
/// (`MOUNT_ATTR_*`).
///
/// # Errors
///
/// See fsmount(2).
pub fn fsmount(file_system: Fd, attributes: u64) -> Result<Fd> {
    let attributes = u32::try_from(attributes).map_err(|_| Errno::INVAL)?;
    raw::fsmount(file_system, FsMountFlags::FSMOUNT_CLOEXEC.bits(), attributes)
}

/// How much of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The mount alone.
    Top,
    /// The mounts below it too.
    All,
}

/// `open_tree(OPEN_TREE_CLONE)`: a copy, that is nowhere yet, of the mount at `path`.
///
/// # Errors
///
/// See open_tree(2).
pub fn open_tree_clone(path: &CStr, extent: Extent) -> Result<Fd> {
    raw::open_tree(None, path, clone_flags(extent).bits())
}

/// The same of what `fd` is, rather than of a path.
///
/// # Errors
///
/// `EINVAL` if it is in another mount namespace; for the rest see open_tree(2).
pub fn open_tree_clone_of(fd: Fd, extent: Extent) -> Result<Fd> {
    let flags = clone_flags(extent) | OpenTreeFlags::AT_EMPTY_PATH;
    raw::open_tree(Some(fd), c"", flags.bits())
}

fn clone_flags(extent: Extent) -> OpenTreeFlags {
    let recursive = match extent {
        Extent::Top => OpenTreeFlags::empty(),
        Extent::All => OpenTreeFlags::AT_RECURSIVE,
    };
    OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | recursive
}

/// `mount_setattr`: sets and clears attributes (`MOUNT_ATTR_*`) of the mount that `mount` is, and its
/// propagation (`MS_*`) unless that is 0.
///
/// # Errors
///
/// `EPERM` if an attribute to be cleared is locked by an outer user namespace; for the rest see
/// mount_setattr(2).
pub fn mount_setattr(mount: Fd, extent: Extent, set: u64, clear: u64, propagation: u64) -> Result {
    raw::mount_setattr(mount, extent == Extent::All, [set, clear, propagation, 0])
}

/// `move_mount`: puts a mount that is nowhere yet onto what `target` is, a descriptor of it, so that
/// no name is looked up again.
///
/// # Errors
///
/// See move_mount(2).
pub fn move_mount(mount: Fd, target: Fd) -> Result {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(mount.lend(), c"", target.lend(), c"", flags)
}
