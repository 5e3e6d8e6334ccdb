//! Mounts, by path.

use crate::Result;
use core::ffi::CStr;

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
