//! Files of procfs, and regular files in trees that others have written: images, and directories of checkpoints.
//!
//! What has a file's name in such a tree may be a FIFO, at which opening waits for somebody, or a device node, which does something
//! when it is opened: a watchdog begins to count, a tape winds back. A container may make such a node, which its
//! devices cgroup keeps from itself; but we are not in that cgroup. So a descriptor that opens nothing (`O_PATH`) says
//! first what is there, and the very same inode is then opened by it.

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd as _};
use std::path::Path;

/// Opens the regular file at `path` below `directory` to be read. Anything else there is `EINVAL`.
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
    // Breaking a lease of somebody's must not keep us waiting (fcntl(2)).
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(openat(CWD, own, flags, Mode::empty())?.into())
}

/// Reads a file of procfs, which does not say how long it is, in as few pieces as the kernel gives it in.
pub(crate) fn read_procfs(path: &str) -> io::Result<String> {
    let mut file = File::open(path)?;
    // A page is what most of these files fit in; with room left over the end is found at once.
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
