//! Covering what a container must not see or change.
//!
//! The cover is mounted on the descriptor of what was found below the root, so whatever name it has,
//! and whatever happens to that name, it is what is covered.

use crate::sys::at::{is_directory, is_null_device, openat2_in_root};
use crate::sys::clone::InChild;
use crate::sys::mount::{
    Extent, MountFlags, MountPropagationFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount,
    mount_change, mount_setattr, move_mount, open_tree_clone_of, umount_detach,
};
use crate::sys::{Errno, Fd, Result, file};
use core::ffi::CStr;

/// `MOUNT_ATTR_RDONLY`, and with it `NOSUID`, `NODEV` and `NOEXEC` for what holds nothing.
const RDONLY: u64 = 0x1;
/// `MOUNT_ATTR_RDONLY`, `NOSUID` and `NOEXEC`: a device can still be opened and written to, but nobody can change its
/// owner or permissions, which are the host's.
const DEVICE: u64 = 0xb;
const SEALED: u64 = 0xf;

/// Covers `path`. Returns the mount of an empty directory if it had to make one, for the next.
pub(crate) fn mask(
    child: &InChild,
    root: Fd,
    path: &CStr,
    null: Fd,
    empty: Option<Fd>,
) -> Result<Option<Fd>> {
    let Some(place) = find(root, path)? else { return Ok(None) };
    let covered = cover(child, place, null, empty);
    file::close(child, place);
    covered
}

fn cover(child: &InChild, place: Fd, null: Fd, empty: Option<Fd>) -> Result<Option<Fd>> {
    if !is_directory(place)? {
        if !is_null_device(null)? {
            return Err(Errno::NODEV);
        }
        let copy = open_tree_clone_of(null, Extent::Top)?;
        mount_setattr(copy, Extent::Top, DEVICE, 0, 0)?;
        attach(child, copy, place)?;
        return Ok(None);
    }
    if let Some(empty) = empty {
        attach(child, open_tree_clone_of(empty, Extent::Top)?, place)?;
        return Ok(None);
    }
    // One file system for all: each would be made and torn down for itself.
    let made = empty_directory(child)?;
    move_mount(made, place)?;
    Ok(Some(made))
}

/// Takes what is mounted at `path` away, or covers it.
pub(crate) fn hide(path: &CStr) -> Result {
    match mount_change(path, MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC) {
        // It went with what it was mounted on.
        Err(Errno::NOENT) => return Ok(()),
        done => done?,
    }
    match umount_detach(path) {
        // An outer user namespace has locked it.
        Err(Errno::INVAL | Errno::PERM) => mount(c"tmpfs", path, c"tmpfs", MountFlags::empty(), c""),
        done => done,
    }
}

fn empty_directory(child: &InChild) -> Result<Fd> {
    let configured = fsopen(c"tmpfs")?;
    let made = fsconfig_set_string(configured, c"mode", c"555")
        .and_then(|()| fsconfig_create(configured))
        .and_then(|()| fsmount(configured, SEALED));
    file::close(child, configured);
    made
}

/// Makes `path` and all below it read-only.
pub(crate) fn read_only(child: &InChild, root: Fd, path: &CStr) -> Result {
    let Some(place) = find(root, path)? else { return Ok(()) };
    let covered = open_tree_clone_of(place, Extent::All).and_then(|copy| {
        mount_setattr(copy, Extent::All, RDONLY, 0, 0)?;
        attach(child, copy, place)
    });
    file::close(child, place);
    covered
}

/// What is not there needs no cover.
fn find(root: Fd, path: &CStr) -> Result<Option<Fd>> {
    match openat2_in_root(root, path) {
        Ok(place) => Ok(Some(place)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn attach(child: &InChild, mount: Fd, place: Fd) -> Result {
    let attached = move_mount(mount, place);
    file::close(child, mount);
    attached
}
