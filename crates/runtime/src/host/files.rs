//! Reads files of procfs, and regular files in trees that others have written: images and checkpoint directories.
//!
//! A name in such a tree may be a FIFO, where open(2) blocks. It may be a device node, where open(2) has effects: a
//! watchdog starts, a tape rewinds. A container can make device nodes that its devices cgroup does not let it open;
//! husk is not in that cgroup. So husk first opens the name with `O_PATH`, which has no effect, and checks the type.
//! Then it opens that same inode through the descriptor.

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd as _};
use std::path::Path;

/// Opens the regular file at `path` below `directory` for reading. Any other type of file is `EINVAL`.
pub(crate) fn open_regular(
    directory: impl AsFd,
    path: impl AsRef<Path>,
    resolve: ResolveFlags,
) -> io::Result<File> {
    let resolve = resolve | ResolveFlags::NO_MAGICLINKS;
    let found = openat2(directory, path.as_ref(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?;
    if FileType::from_raw_mode(fstat(&found)?.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL.into());
    }
    let own = format!("/proc/self/fd/{}", found.as_raw_fd());
    // Must not block until another process gives up its lease of the file (fcntl(2)).
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(openat(CWD, own, flags, Mode::empty())?.into())
}

/// Reads a file of procfs, whose size is unknown, in as few calls as the kernel allows.
pub(crate) fn read_procfs(path: &str) -> io::Result<String> {
    let mut file = File::open(path)?;
    // Most of these files fit in a page. If there is room left, the next read returns 0, the end.
    let mut text = vec![0; 4096];
    let mut length = 0;
    loop {
        match file.read(&mut text[length..])? {
            0 => break,
            read => length += read,
        }
        if length == text.len() {
            text.resize(2 * length, 0);
        }
    }
    text.truncate(length);
    String::from_utf8(text).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{mknodat, open};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_a_regular_file_is_opened() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let below = open(directory.path(), OFlags::PATH, Mode::empty()).unwrap();
        fs::write(path("file"), "text").unwrap();
        fs::create_dir(path("directory")).unwrap();
        mknodat(CWD, path("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        symlink("file", path("link")).unwrap();
        drop(UnixListener::bind(path("socket")).unwrap());
        let mut text = String::new();
        open_regular(&below, "link", ResolveFlags::IN_ROOT).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        for (name, resolve) in [
            ("directory", ResolveFlags::IN_ROOT),
            ("fifo", ResolveFlags::IN_ROOT),
            ("socket", ResolveFlags::IN_ROOT),
            ("link", ResolveFlags::NO_SYMLINKS),
            ("missing", ResolveFlags::IN_ROOT),
        ] {
            open_regular(&below, name, resolve).expect_err(name);
        }
    }
}
