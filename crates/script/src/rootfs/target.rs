//! Finds or creates the targets of mounts below a root file system.
//!
//! The tree is an image's: any component may be a symlink, or become one at any time if others write to a volume. So
//! no path is looked up from `/`, and missing components are created by calls that follow no symlink. The result is a
//! descriptor, not a name.

use super::missing::{self, Last};
use crate::sys::at::{
    ProcfsKind, is_directory, openat2_directory_in_root, openat2_in_root, openat2_ordinary_directory_in_root,
    procfs,
};
use crate::sys::clone::InChild;
use crate::sys::{Errno, Fd, Result, file};
use core::ffi::CStr;

/// A path below a root.
#[derive(Clone, Copy)]
pub struct PathInRoot<'a> {
    /// The whole path, relative to the root: `dev/pts`.
    pub path: &'a CStr,
}

/// The kind of file that a mount target must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountPoint {
    /// A directory, which is created with mode 0755 if it is missing.
    Directory,
    /// Any file that is not a directory.
    File,
    /// The same kind as the mount: a directory, or any other file.
    Alike,
    /// A directory that is not a symlink, for mounts that must be at their exact path.
    Ordinary,
    /// Like `Alike`, but on a procfs: a file that the mount replaces.
    ProcfsFile,
    /// Like `Alike`, for a mount that is itself a procfs.
    ProcfsKind,
    /// Any file that is neither a directory nor a symlink.
    Entry,
}

/// Opens the target for `mount`, and creates it with its parents if it is missing.
pub(crate) fn ensure_place(
    child: &InChild,
    root: Fd,
    target: PathInRoot<'_>,
    place: MountPoint,
    mount: Fd,
) -> Result<Fd> {
    let is_directory = match place {
        MountPoint::Directory | MountPoint::Ordinary => true,
        MountPoint::File | MountPoint::Entry => false,
        MountPoint::Alike | MountPoint::ProcfsFile | MountPoint::ProcfsKind => is_directory(mount)?,
    };
    let found = match (place, is_directory) {
        (MountPoint::Ordinary, _) => ensure_ordinary_directory(child, root, target)?,
        (MountPoint::Entry, _) => missing::make(child, root, target.path, Last::Entry)?,
        (_, true) => ensure_directory(child, root, target)?,
        (_, false) => ensure_file(child, root, target)?,
    };
    let fits = if is_directory { Ok(()) } else { no_directory(found) };
    match fits.and_then(|()| permitted(place, found, mount)) {
        Ok(()) => Ok(found),
        Err(errno) => {
            file::close(child, found);
            Err(errno)
        }
    }
}

/// Returns `ENOTDIR`, because `move_mount` would only return `EINVAL`.
fn no_directory(found: Fd) -> Result {
    if is_directory(found)? { Err(Errno::NOTDIR) } else { Ok(()) }
}

/// Checks that a mount neither covers a part of a procfs nor hides that procfs is missing. Otherwise
/// security-relevant reads and writes of procfs would reach the cover (CVE-2019-16884).
fn permitted(place: MountPoint, found: Fd, mount: Fd) -> Result {
    let is_permitted = match place {
        MountPoint::ProcfsFile => true,
        MountPoint::ProcfsKind => procfs(mount)? != ProcfsKind::No,
        MountPoint::Ordinary => procfs(found)? != ProcfsKind::Below,
        MountPoint::Directory | MountPoint::File | MountPoint::Entry | MountPoint::Alike => {
            procfs(found)? == ProcfsKind::No
        }
    };
    if is_permitted { Ok(()) } else { Err(Errno::XDEV) }
}

/// Opens the directory at exactly `target`, and creates it with its parents if it is missing.
fn ensure_ordinary_directory(child: &InChild, root: Fd, target: PathInRoot<'_>) -> Result<Fd> {
    match openat2_ordinary_directory_in_root(root, target.path) {
        Err(Errno::NOENT) => missing::make(child, root, target.path, Last::Directory),
        found => found,
    }
}

/// Opens the directory at `target`, and creates it with its parents if it is missing.
pub(crate) fn ensure_directory(child: &InChild, root: Fd, target: PathInRoot<'_>) -> Result<Fd> {
    match openat2_directory_in_root(root, target.path) {
        Err(Errno::NOENT) => missing::make(child, root, target.path, Last::Directory),
        found => found,
    }
}

/// Opens the file of any kind at `target`. A missing file is created empty, with its parents.
fn ensure_file(child: &InChild, root: Fd, target: PathInRoot<'_>) -> Result<Fd> {
    match openat2_in_root(root, target.path) {
        Err(Errno::NOENT) => missing::make(child, root, target.path, Last::File),
        found => found,
    }
}
