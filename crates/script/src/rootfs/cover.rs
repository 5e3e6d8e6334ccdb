//! Covers paths that a container must not see or change.
//!
//! The cover is mounted on the descriptor of the file that was found below the root. It therefore covers that file
//! under every name, whatever happens to the names.

use crate::sys::at::{is_directory, is_null_device, openat2_in_root};
use crate::sys::clone::InChild;
use crate::sys::mount::{
    AttributeChange, Extent, MountAttributes, MountFlags, MountPropagationFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, mount, mount_change, mount_setattr, move_mount, open_tree_clone_of,
    umount_detach,
};
use crate::sys::{Errno, Fd, Result, file};
use core::ffi::CStr;

/// The attributes of a device of the host. It can still be opened and written to, but its owner and permissions, which
/// are the host's, cannot be changed.
const DEVICE: MountAttributes =
    MountAttributes::RDONLY.union(MountAttributes::NOSUID).union(MountAttributes::NOEXEC);
/// The attributes of an empty mount.
const SEALED: MountAttributes = DEVICE.union(MountAttributes::NODEV);
/// Leaves the propagation of a mount as it is.
const SAME: MountPropagationFlags = MountPropagationFlags::empty();

/// Covers `path`. Returns the mount of an empty directory if it had to create one, for use by the next call.
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
        mount_setattr(copy, Extent::Top, AttributeChange::set(DEVICE), SAME)?;
        attach(child, copy, place)?;
        return Ok(None);
    }
    if let Some(empty) = empty {
        attach(child, open_tree_clone_of(empty, Extent::Top)?, place)?;
        return Ok(None);
    }
    // One file system serves all: creating and destroying one for each would cost time.
    let made = empty_directory(child)?;
    move_mount(made, place)?;
    Ok(Some(made))
}

/// Unmounts `path`, or covers it if it is locked.
pub(crate) fn hide(path: &CStr) -> Result {
    match mount_change(path, MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC) {
        // It was unmounted together with the mount that it was on.
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

/// Makes `path` and everything below it read-only.
pub(crate) fn read_only(child: &InChild, root: Fd, path: &CStr) -> Result {
    let Some(place) = find(root, path)? else { return Ok(()) };
    let covered = open_tree_clone_of(place, Extent::All).and_then(|copy| {
        mount_setattr(copy, Extent::All, AttributeChange::set(MountAttributes::RDONLY), SAME)?;
        attach(child, copy, place)
    });
    file::close(child, place);
    covered
}

/// Finds `path` below the root; `None` if it does not exist and so needs no cover.
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
