//! Writes files atomically.
//!
//! A file is written under a random name in its directory, through a descriptor of that directory, and renamed when it
//! is complete. So no reader sees half of it. A user who may write to the directory cannot put a symlink, a FIFO or
//! another file in its path beforehand.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::retry_on_intr;
use rustix::rand::{GetRandomFlags, getrandom};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// A file under a random name. Dropping it removes the file.
pub(crate) struct Draft<'d> {
    directory: BorrowedFd<'d>,
    name: String,
    file: File,
    is_placed: bool,
}

impl<'d> Draft<'d> {
    /// Makes an empty file in `directory`, with `mode` less the umask.
    pub(crate) fn new(directory: BorrowedFd<'d>, mode: Mode) -> io::Result<Self> {
        let mut random = [0; 8];
        retry_on_intr(|| getrandom(&mut random, GetRandomFlags::empty()))?;
        let name = format!(".husk-{:016x}", u64::from_ne_bytes(random));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(directory, &*name, flags, mode)?);
        Ok(Self { directory, name, file, is_placed: false })
    }

    /// Returns the file, to be written or to be given an owner and a mode.
    pub(crate) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Renames the file to `name`, replacing a file of that name.
    pub(crate) fn place(mut self, name: &OsStr) -> io::Result<()> {
        renameat(self.directory, &*self.name, self.directory, name)?;
        self.is_placed = true;
        Ok(())
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if !self.is_placed && unlinkat(self.directory, &*self.name, AtFlags::empty()).is_err() {
            // Tolerated: the error that kept the file from being renamed is the one to report.
        }
    }
}

/// Writes the file `name` in `directory`, with `mode` less the umask.
pub(crate) fn write(directory: impl AsFd, name: &OsStr, mode: Mode, bytes: &[u8]) -> io::Result<()> {
    let mut draft = Draft::new(directory.as_fd(), mode)?;
    draft.file().write_all(bytes)?;
    draft.place(name)
}

/// Writes the file `name` in `directory` atomically, with `mode` less the umask. A symlink of that name is replaced and
/// not followed.
///
/// # Errors
///
/// If it cannot be written. The previous file is then unchanged.
pub fn write_atomically_in(directory: impl AsFd, name: &OsStr, mode: u32, bytes: &[u8]) -> io::Result<()> {
    write(directory, name, Mode::from_raw_mode(mode), bytes)
}

/// Writes the file at `path` atomically, with `mode` less the umask. A symlink there is replaced and not followed.
///
/// # Errors
///
/// If it cannot be written, or the path has no file name. The previous file is then unchanged.
pub fn write_atomically(path: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    let (directory, name) = parent(path)?;
    write(directory, name, Mode::from_raw_mode(mode), bytes)
}

/// Opens the directory of a path, and returns it with the name in it.
pub(crate) fn parent(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok((openat(CWD, directory, flags, Mode::empty())?, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn symlink_at_the_target_is_replaced_and_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (victim, place) = (directory.path().join("victim"), directory.path().join("pid"));
        fs::write(&victim, "kept").unwrap();
        symlink(&victim, &place).unwrap();
        write_atomically(&place, 0o600, b"7").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
        assert_eq!(fs::read_to_string(&place).unwrap(), "7");
        assert_eq!(fs::symlink_metadata(&place).unwrap().permissions().mode() & 0o7777, 0o600);
    }

    #[test]
    fn failed_write_leaves_no_temporary_file() {
        let directory = tempfile::tempdir().unwrap();
        // A directory cannot be replaced by a file.
        let place = directory.path().join("pid");
        fs::create_dir(&place).unwrap();
        write_atomically(&place, 0o600, b"7").unwrap_err();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        write_atomically(Path::new("/"), 0o600, b"7").unwrap_err();
    }
}
