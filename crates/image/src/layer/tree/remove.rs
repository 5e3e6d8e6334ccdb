//! Removes directories, by descriptor and without following symlinks. Their depth is bounded where names are read.

use super::failed;
use crate::error::Problem;
use crate::layer::names::join;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;
use std::os::fd::{AsFd as _, BorrowedFd};

/// Says whether the file at a path is removed.
type Doomed<'a> = dyn FnMut(&[u8]) -> bool + 'a;

/// Removes a directory and everything below it.
pub(crate) fn tree(parent: BorrowedFd<'_>, name: &[u8], doomed: &mut Doomed<'_>) -> Result<(), Problem> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = openat(parent, name, flags, Mode::empty()).map_err(|errno| failed("open", errno))?;
    content(directory.as_fd(), b"", doomed)?;
    unlinkat(parent, name, AtFlags::REMOVEDIR).map_err(|errno| failed("rmdir", errno))
}

/// Removes what is doomed below a directory, whose path is `above`. A directory is kept if something in it is.
pub(crate) fn content(
    directory: BorrowedFd<'_>,
    above: &[u8],
    doomed: &mut Doomed<'_>,
) -> Result<(), Problem> {
    for entry in Dir::read_from(directory).map_err(|errno| failed("read the directory", errno))? {
        let entry = entry.map_err(|errno| failed("read the directory", errno))?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let path = join(above, name);
        let is_directory = match entry.file_type() {
            FileType::Unknown => {
                let found = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
                    .map_err(|errno| failed("stat", errno))?;
                FileType::from_raw_mode(found.st_mode) == FileType::Directory
            }
            kind => kind == FileType::Directory,
        };
        let is_doomed = doomed(&path);
        if is_directory {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let below =
                openat(directory, name, flags, Mode::empty()).map_err(|errno| failed("open", errno))?;
            content(below.as_fd(), &path, doomed)?;
        }
        if is_doomed {
            let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            match unlinkat(directory, name, flags) {
                // Something of the layer is still in it.
                Err(Errno::NOTEMPTY) if is_directory => {}
                removed => removed.map_err(|errno| failed("unlink", errno))?,
            }
        }
    }
    Ok(())
}
