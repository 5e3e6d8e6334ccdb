//! Places below a root file system, found or made.
//!
//! The tree is an image's: any component may be a symlink, and with a volume that others write to,
//! may become one at any moment. So nothing is looked up from `/`, what is missing is made by a call
//! that follows no symlink, and what is returned is a descriptor of the place, not its name.

use super::missing::{self, Last};
use crate::sys::at::{
    Procfs, is_directory, openat2_directory_in_root, openat2_in_root, openat2_ordinary_directory_in_root,
    procfs,
};
use crate::sys::clone::InChild;
use crate::sys::{Errno, Fd, Result, file};
use core::ffi::CStr;

/// A path below a root.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// The whole path: `dev/pts`.
    pub path: &'a CStr,
}

/// What a mount can be put on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A directory.
    Directory,
    /// Anything else.
    File,
    /// What the mount is: a directory, or anything else.
    Alike,
    /// A directory that is no symlink, for what has to be where it is looked for.
    Ordinary,
    /// As `Alike`, on a procfs: a file that something stands in for.
    StandIn,
    /// As `Alike`, for a procfs that is shown once more.
    Procfs,
    /// Anything else, and no symlink.
    Entry,
}

/// What `mount` is to be put on, made with its parents where it is missing.
pub(crate) fn ensure_place(
    child: &InChild,
    root: Fd,
    target: Target<'_>,
    place: Place,
    mount: Fd,
) -> Result<Fd> {
    let is_directory = match place {
        Place::Directory | Place::Ordinary => true,
        Place::File | Place::Entry => false,
        Place::Alike | Place::StandIn | Place::Procfs => is_directory(mount)?,
    };
    let found = match (place, is_directory) {
        (Place::Ordinary, _) => ensure_ordinary_directory(child, root, target)?,
        (Place::Entry, _) => missing::make(child, root, target.path, Last::Entry)?,
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

/// Said here, where the kernel would only say that something is invalid.
fn no_directory(found: Fd) -> Result {
    if is_directory(found)? { Err(Errno::NOTDIR) } else { Ok(()) }
}

/// Nothing may cover a part of a procfs, nor hide that there is none: what is written to procfs and read
/// from it for the sake of security would be the cover's (CVE-2019-16884).
fn permitted(place: Place, found: Fd, mount: Fd) -> Result {
    let is_permitted = match place {
        Place::StandIn => true,
        Place::Procfs => procfs(mount)? != Procfs::No,
        Place::Ordinary => procfs(found)? != Procfs::Below,
        Place::Directory | Place::File | Place::Entry | Place::Alike => procfs(found)? == Procfs::No,
    };
    if is_permitted { Ok(()) } else { Err(Errno::XDEV) }
}

/// The directory of that very name at `target`, made with its parents where it is missing.
fn ensure_ordinary_directory(child: &InChild, root: Fd, target: Target<'_>) -> Result<Fd> {
    match openat2_ordinary_directory_in_root(root, target.path) {
        Err(Errno::NOENT) => missing::make(child, root, target.path, Last::Directory),
        found => found,
    }
}

/// The directory at `target`, made with its parents where it is missing.
pub(crate) fn ensure_directory(child: &InChild, root: Fd, target: Target<'_>) -> Result<Fd> {
    match openat2_directory_in_root(root, target.path) {
        Err(Errno::NOENT) => missing::make(child, root, target.path, Last::Directory),
        found => found,
    }
}

/// The file, of whatever kind, at `target`, made empty with its parents where it is missing.
fn ensure_file(child: &InChild, root: Fd, target: Target<'_>) -> Result<Fd> {
    match openat2_in_root(root, target.path) {
        Err(Errno::NOENT) => missing::make(child, root, target.path, Last::File),
        found => found,
    }
}
