//! A directory that stays open while files in it are read and replaced.
//!
//! Others may write to it meanwhile: a test, if it is below `--write`, or the author of a repository. So
//! symlinks are never followed, and new content goes to a new file with an unpredictable name.

use rustix::fs::{FileType, Mode, OFlags, RawMode, fstat, open, openat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The permissions of a new file, before the umask.
const MODE: RawMode = 0o666;

pub(crate) struct Directory(OwnedFd);

impl Directory {
    /// Opens the directory of a file, creating it if missing. Also returns the file's name.
    pub(crate) fn of(file: &Path) -> io::Result<(Self, OsString)> {
        let name = file.file_name().ok_or_else(|| io::Error::from(ErrorKind::InvalidFilename))?;
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        fs::create_dir_all(parent)?;
        Ok((Self::open(parent)?, name.to_owned()))
    }

    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// Opens a subdirectory. Fails with `ELOOP` or `ENOTDIR` if it is a symlink.
    pub(crate) fn inner(&self, name: &str) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self(openat(&self.0, name, flags, Mode::empty())?))
    }

    /// Creates a subdirectory if it is missing, and opens it.
    pub(crate) fn ensure_inner(&self, name: &str) -> io::Result<Self> {
        match rustix::fs::mkdirat(&self.0, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => self.inner(name),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Opens a file for appending, creating it if missing. Fails with `ELOOP` if it is a symlink.
    pub(crate) fn append(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        self.file(name, flags)?.ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// Reads a file; `None` if it does not exist. Fails with `ELOOP` if it is a symlink.
    pub(crate) fn read(&self, name: &OsStr) -> io::Result<Option<String>> {
        let Some(mut file) = self.file(name, OFlags::RDONLY)? else { return Ok(None) };
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok(Some(text))
    }

    /// Replaces a file or symlink atomically: readers see either the old or the new content.
    pub(crate) fn replace(&self, name: &OsStr, text: &str) -> io::Result<()> {
        husk_runtime::write_atomically_in(&self.0, name, MODE, text.as_bytes())
    }

    /// Opens a regular file; `None` if it does not exist. Rejects a fifo without waiting for its other end.
    fn file(&self, name: &OsStr, flags: OFlags) -> io::Result<Option<File>> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match openat(&self.0, name, flags, Mode::from_raw_mode(MODE)) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened?,
        };
        match FileType::from_raw_mode(fstat(&file)?.st_mode) {
            FileType::RegularFile => Ok(Some(file.into())),
            _ => Err(io::Error::other("is not a regular file")),
        }
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
