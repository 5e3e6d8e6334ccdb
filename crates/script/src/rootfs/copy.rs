//! Copies a directory of an image into the file system that will cover it.
//!
//! The copy includes directories, files, symlinks and nodes, with their owners and permissions. The tree is an
//! image's, so each entry is opened in the directory that contains it, and symlinks are not followed. Nothing is
//! allocated: an array of open directories holds the position in the tree.

use crate::sys::at::{
    FileType, Likeness, Mode, fchmodat, fchownat, getdents, likeness, mkdirat, mknodat_like, openat_nofollow,
    openat2_in_root, readlinkat, symlinkat,
};
use crate::sys::clone::InChild;
use crate::sys::file::{self, OFlags, ftruncate, lseek, lseek_data, lseek_end, sendfile, sendfile_most};
use crate::sys::{Errno, Fd, Result};
use core::ffi::CStr;

/// The greatest depth of a tree.
const DEEPEST: usize = 64;

/// The size of the buffer for directory entries; the longest takes a seventh of it.
const ENTRIES: usize = 2048;

/// The size of the longest symlink (PATH_MAX), with its NUL.
const LINK: usize = 4096;

/// Copies the content of the directory at `path` into `to`. A missing directory counts as empty.
// Not inlined: its buffers would enlarge the stack frame of the step loop.
#[inline(never)]
pub(crate) fn copy_up(child: &InChild, root: Fd, path: &CStr, to: Fd) -> Result {
    let from = match openat2_in_root(root, path) {
        Err(Errno::NOENT) => return Ok(()),
        found => found?,
    };
    let directories = pair(child, from, to, c".");
    file::close(child, from);
    let mut open = Open { directories: [None; DEEPEST], count: 0 };
    let copied = directories.and_then(|pair| open.push(child, pair)).and_then(|()| copy(child, &mut open));
    open.close(child);
    copied
}

/// A directory and its copy, both open.
type Pair = (Fd, Fd);

/// The open directories from the top of the tree to the current one.
struct Open {
    directories: [Option<Pair>; DEEPEST],
    count: usize,
}

impl Open {
    fn push(&mut self, child: &InChild, (from, to): Pair) -> Result {
        let Some(place) = self.directories.get_mut(self.count) else {
            file::close(child, from);
            file::close(child, to);
            return Err(Errno::NAMETOOLONG);
        };
        *place = Some((from, to));
        self.count = self.count.wrapping_add(1);
        Ok(())
    }

    fn last(&self) -> Option<Pair> {
        self.directories.get(self.count.checked_sub(1)?).copied().flatten()
    }

    fn pop(&mut self, child: &InChild) {
        if let Some((from, to)) = self.last() {
            file::close(child, from);
            file::close(child, to);
            self.count = self.count.wrapping_sub(1);
        }
    }

    fn close(&mut self, child: &InChild) {
        while self.last().is_some() {
            self.pop(child);
        }
    }
}

/// Opens a directory and its copy.
fn pair(child: &InChild, from: Fd, to: Fd, name: &CStr) -> Result<Pair> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let from = openat_nofollow(from, name, flags, Mode::empty())?;
    match openat_nofollow(to, name, flags, Mode::empty()) {
        Ok(to) => Ok((from, to)),
        Err(errno) => {
            file::close(child, from);
            Err(errno)
        }
    }
}

fn copy(child: &InChild, open: &mut Open) -> Result {
    let mut buffer = [0; ENTRIES];
    while let Some((from, to)) = open.last() {
        let entries = getdents(from, &mut buffer)?;
        if entries.is_empty() {
            open.pop(child);
            continue;
        }
        for (name, next) in entries {
            if name == c"." || name == c".." {
                continue;
            }
            let like = likeness(from, name)?;
            if like.kind == FileType::Directory {
                mkdirat(to, name, like.mode)?;
                adopt(to, name, &like)?;
                // Entries after this one are read again later.
                lseek(from, next)?;
                open.push(child, pair(child, from, to, name)?)?;
                break;
            }
            entry(child, from, to, name, &like)?;
        }
    }
    Ok(())
}

/// Copies an entry that is not a directory.
fn entry(child: &InChild, from: Fd, to: Fd, name: &CStr, like: &Likeness) -> Result {
    match like.kind {
        FileType::Symlink => {
            let mut buffer = [0; LINK];
            symlinkat(readlinkat(from, name, &mut buffer)?, to, name)?;
            return fchownat(to, name, like.uid, like.gid);
        }
        FileType::RegularFile => contents(child, from, to, name, like)?,
        _ => mknodat_like(to, name, like)?,
    }
    adopt(to, name, like)
}

/// Sets owner and permissions. The owner comes first, because changing it clears set-user-ID bits.
fn adopt(to: Fd, name: &CStr, like: &Likeness) -> Result {
    fchownat(to, name, like.uid, like.gid)?;
    fchmodat(to, name, like.mode)
}

fn contents(child: &InChild, from: Fd, to: Fd, name: &CStr, like: &Likeness) -> Result {
    // The file may have become a pipe since its type was read; opening it must not block.
    let source = openat_nofollow(from, name, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let copied = openat_nofollow(to, name, flags, Mode::from_raw_mode(0o600)).and_then(|copy| {
        let copied = if like.is_sparse { send_data(source, copy) } else { send(source, copy) };
        file::close(child, copy);
        copied
    });
    file::close(child, source);
    copied
}

fn send(source: Fd, copy: Fd) -> Result {
    while sendfile(copy, source)? != 0 {}
    Ok(())
}

/// Copies everything except holes. An image's author can make a file of a few bytes arbitrarily long, and the copy is
/// in memory.
fn send_data(source: Fd, copy: Fd) -> Result {
    let mut offset = 0;
    while let Some((begin, end)) = lseek_data(source, offset)? {
        lseek(source, begin)?;
        lseek(copy, begin)?;
        offset = begin;
        while offset < end {
            let sent = sendfile_most(copy, source, end.saturating_sub(offset))?;
            if sent == 0 {
                // The file was truncated in the meantime.
                return Ok(());
            }
            offset = offset.saturating_add(u64::try_from(sent).unwrap_or(u64::MAX));
        }
    }
    ftruncate(copy, lseek_end(source)?)
}
