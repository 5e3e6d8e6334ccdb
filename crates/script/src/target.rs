//! Places below a root file system, found or made.
//!
//! The tree is an image's: any component may be a symlink, and with a volume that others write to,
//! may become one at any moment. So nothing is looked up from `/`, what is missing is made by a call
//! that follows no symlink, and what is returned is a descriptor of the place, not its name.

use crate::sys::at::{
    Mode, mkdirat, mknodat_file, openat2_directory_in_root, openat2_entry, openat2_in_root,
};
use crate::sys::{Errno, Fd, Result, file};
use core::ffi::CStr;

/// A path below a root, with the pieces that are needed where some of it is missing.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// The whole path: `dev/pts`.
    pub path: &'a CStr,
    /// Every component of it.
    pub parts: &'a [Part<'a>],
}

/// A component of a path.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    /// The path up to and with it: `dev`, then `dev/pts`.
    pub prefix: &'a CStr,
    /// Itself: `dev`, then `pts`.
    pub name: &'a CStr,
}

/// What a directory gets that an image lacks.
const DIRECTORY_MODE: u32 = 0o755;

/// What a file gets that an image lacks, to be mounted over.
const FILE_MODE: u32 = 0o644;

/// The directory at `target`, made with its parents where it is missing.
pub(crate) fn ensure_directory(root: Fd, target: Target<'_>) -> Result<Fd> {
    match openat2_directory_in_root(root, target.path) {
        Err(Errno::NOENT) => make_directories(root, target.parts),
        found => found,
    }
}

/// The file, of whatever kind, at `target`, made empty with its parents where it is missing.
pub(crate) fn ensure_file(root: Fd, target: Target<'_>) -> Result<Fd> {
    match openat2_in_root(root, target.path) {
        Err(Errno::NOENT) => {}
        found => return found,
    }
    let (last, parents) = target.parts.split_last().ok_or(Errno::NOENT)?;
    let directory = make_directories(root, parents)?;
    let made = mknodat_file(directory, last.name, Mode::from_raw_mode(FILE_MODE))
        .and_then(|()| openat2_entry(directory, last.name));
    file::close(directory);
    made
}

/// The file, of whatever kind, at `target`, whose last component must be no symlink, made empty with its
/// parents where it is missing.
pub(crate) fn ensure_entry(root: Fd, target: Target<'_>) -> Result<Fd> {
    let (last, parents) = target.parts.split_last().ok_or(Errno::NOENT)?;
    let directory = make_directories(root, parents)?;
    let found = match openat2_entry(directory, last.name) {
        Err(Errno::NOENT) => mknodat_file(directory, last.name, Mode::from_raw_mode(FILE_MODE))
            .and_then(|()| openat2_entry(directory, last.name)),
        found => found,
    };
    file::close(directory);
    found
}

fn make_directories(root: Fd, parts: &[Part<'_>]) -> Result<Fd> {
    let mut here = openat2_directory_in_root(root, c".")?;
    for part in parts {
        let next = match openat2_directory_in_root(root, part.prefix) {
            Err(Errno::NOENT) => mkdirat(here, part.name, Mode::from_raw_mode(DIRECTORY_MODE))
                .and_then(|()| openat2_entry(here, part.name)),
            found => found,
        };
        file::close(here);
        here = next?;
    }
    Ok(here)
}
