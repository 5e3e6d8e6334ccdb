//! Finds configuration files, and rejects those that other users could have written.
//!
//! The purpose is that of git's `safe.directory`: a file such as `/tmp/husk.toml` would otherwise control
//! every user below that directory, including root.

use husk_hermetic::distrust;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, open, openat, statat};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// More than a file written by hand needs.
const MOST_BYTES: u64 = 1 << 20;

/// The result of [`nearest`].
#[derive(Debug)]
pub(crate) enum TrustedFile {
    /// The nearest file and its content.
    File(PathBuf, String),
    /// A file that is not used, and the reason.
    Distrusted(PathBuf, String),
    /// No file, up to the root or the first directory that other users may write to.
    Nothing,
}

/// Looks for the nearest file of this name in a directory and its ancestors.
pub(crate) fn nearest(name: &str, directory: &Path) -> io::Result<TrustedFile> {
    let user = (geteuid().as_raw(), getegid().as_raw());
    for above in directory.ancestors() {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = match open(above, flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR) => continue,
            opened => opened?,
        };
        let path = above.join(name);
        if let Some(why) = distrust(&fstat(&opened)?, user) {
            let is_there = statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
            let why = format!("its directory {why}");
            return Ok(if is_there { TrustedFile::Distrusted(path, why) } else { TrustedFile::Nothing });
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match openat(&opened, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => continue,
            Err(Errno::LOOP) => return Ok(TrustedFile::Distrusted(path, "it is a symlink".to_owned())),
            file => file?,
        };
        let stat = fstat(&file)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let why = match distrust(&stat, user) {
            _ if kind != FileType::RegularFile => Some("is not a regular file".to_owned()),
            None if u64::try_from(stat.st_size).is_ok_and(|size| size > MOST_BYTES) => {
                Some(format!("has more than {MOST_BYTES} bytes"))
            }
            why => why,
        };
        return match why {
            Some(why) => Ok(TrustedFile::Distrusted(path, format!("it {why}"))),
            None => {
                let mut text = String::new();
                File::from(file).take(MOST_BYTES).read_to_string(&mut text)?;
                Ok(TrustedFile::File(path, text))
            }
        };
    }
    Ok(TrustedFile::Nothing)
}
