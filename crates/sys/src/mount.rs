//! Mounts by path, and by descriptor, which no other process can exchange.

use crate::{Errno, Fd, Result, raw};
use core::ffi::CStr;
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

/// Creates a detached mount of the file system with `attributes` (`MOUNT_ATTR_*`), with `fsmount(FSMOUNT_CLOEXEC)`.
pub fn fsmount(file_system: Fd, attributes: u64) -> Result<Fd> {
    let attributes = u32::try_from(attributes).map_err(|_| Errno::INVAL)?;
    raw::fsmount(file_system, FsMountFlags::FSMOUNT_CLOEXEC.bits(), attributes)
}

/// Says how much of a tree of mounts a call includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    let recursive = match extent {
        Extent::Top => OpenTreeFlags::empty(),
        Extent::All => OpenTreeFlags::AT_RECURSIVE,
    };
    OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | recursive
}

/// Sets and clears attributes (`MOUNT_ATTR_*`) of `mount` with `mount_setattr`. Sets its propagation (`MS_*`) unless
/// that is 0.
///
/// # Errors
///
/// `EPERM` if an attribute to be cleared is locked by an outer user namespace; for the rest see
/// mount_setattr(2).
pub fn mount_setattr(mount: Fd, extent: Extent, set: u64, clear: u64, propagation: u64) -> Result {
    raw::mount_setattr(mount, extent == Extent::All, [set, clear, propagation, 0])
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
    const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;
    raw::mount_setattr(mount, extent == Extent::All, [MOUNT_ATTR_IDMAP, 0, 0, userns.word() as u64])
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
