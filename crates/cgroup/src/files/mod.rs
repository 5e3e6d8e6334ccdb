//! Files and directories of a cgroup, which work alike in both versions. Files are small: each is read and
//! written as a whole, relative to a directory's descriptor.

pub(crate) mod events;
pub(crate) mod oom;
pub(crate) mod procs;
pub(crate) mod remove;
pub(crate) mod walk;

use core::mem::MaybeUninit;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, RawDir, openat};
use rustix::io::{Errno, read, retry_on_intr, write};
use rustix::path::Arg;

/// Opens `name` below `directory`.
pub(crate) fn open(
    directory: BorrowedFd<'_>,
    name: impl Arg + Copy,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    retry_on_intr(|| openat(directory, name, flags | OFlags::CLOEXEC, Mode::empty()))
}

/// Opens the directory `name` below `directory`; fails on a symlink.
pub(crate) fn open_directory(directory: BorrowedFd<'_>, name: impl Arg + Copy) -> Result<OwnedFd, Errno> {
    open(directory, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW)
}

/// Writes `value` in one call: the kernel treats each call as a complete value.
pub(crate) fn put(directory: BorrowedFd<'_>, name: &str, value: &str) -> Result<(), Errno> {
    let file = open(directory, name, OFlags::WRONLY)?;
    put_to(&file, value)
}

fn put_to(file: &OwnedFd, value: &str) -> Result<(), Errno> {
    // An empty write does nothing; an empty line clears a list.
    let value = if value.is_empty() { "\n" } else { value };
    retry_on_intr(|| write(file, value.as_bytes())).map(drop)
}

/// Writes each line of `value` in its own call, which files with a line for each device require.
pub(crate) fn write_lines(directory: BorrowedFd<'_>, name: &str, value: &str) -> Result<(), Errno> {
    let file = open(directory, name, OFlags::WRONLY)?;
    if !value.trim_end_matches('\n').contains('\n') {
        return put_to(&file, value);
    }
    value.lines().filter(|line| !line.is_empty()).try_for_each(|line| put_to(&file, line))
}

/// Returns the contents of the file `name`.
pub(crate) fn text(directory: BorrowedFd<'_>, name: &str) -> Result<String, Errno> {
    let file = open(directory, name, OFlags::RDONLY)?;
    let mut text = Vec::with_capacity(1024);
    loop {
        text.reserve(1024);
        let read = retry_on_intr(|| read(&file, rustix::buffer::spare_capacity(&mut text)))?;
        if read == 0 {
            break;
        }
    }
    // The kernel's cgroup files are ASCII, including names of devices and pages.
    String::from_utf8(text).map_err(|_| Errno::ILSEQ)
}

/// Returns the contents of a short file, without an allocation and cut off at the size of `room`.
pub(crate) fn short<'b>(directory: BorrowedFd<'_>, name: &str, room: &'b mut [u8]) -> Result<&'b str, Errno> {
    let file = open(directory, name, OFlags::RDONLY)?;
    let length = retry_on_intr(|| read(&file, &mut *room))?;
    let text = room.get(..length).unwrap_or_default();
    core::str::from_utf8(text).map(str::trim_end).map_err(|_| Errno::ILSEQ)
}

/// Returns the number in the file `name`; `max` and -1 are `u64::MAX`.
pub(crate) fn number(directory: BorrowedFd<'_>, name: &str) -> Result<u64, Errno> {
    let mut room = [0; 64];
    number_of(short(directory, name, &mut room)?).ok_or(Errno::ILSEQ)
}

/// Parses a number as the kernel writes it; `max` and -1 are `u64::MAX`.
pub(crate) fn number_of(text: &str) -> Option<u64> {
    match text.trim() {
        "max" | "-1" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

/// Returns the value of `key` in lines of `KEY VALUE`.
pub(crate) fn keyed(text: &str, key: &str) -> Option<u64> {
    let values = text.lines().filter_map(|line| line.split_once(' '));
    values.filter(|(name, _)| *name == key).find_map(|(_, value)| number_of(value))
}

/// Calls `each` with the name of every directory in `directory`.
pub(crate) fn each_directory(
    directory: BorrowedFd<'_>,
    mut each: impl FnMut(&str) -> Result<(), Errno>,
) -> Result<(), Errno> {
    each_entry(directory, |name, kind| match (kind, name) {
        (FileType::Directory, "." | "..") => Ok(()),
        (FileType::Directory, name) => each(name),
        _ => Ok(()),
    })
}

/// Returns the names of all directories in `directory`.
pub(crate) fn directories(directory: BorrowedFd<'_>) -> Result<Vec<String>, Errno> {
    let mut names = Vec::new();
    each_directory(directory, |name| {
        names.push(name.to_owned());
        Ok(())
    })?;
    Ok(names)
}

/// Calls `each` with the name of every file in `directory`.
pub(crate) fn each_file(directory: &OwnedFd, mut each: impl FnMut(&str)) -> Result<(), Errno> {
    each_entry(directory.as_fd(), |name, kind| {
        if kind == FileType::RegularFile {
            each(name);
        }
        Ok(())
    })
}

/// Calls `each` for every entry. A directory that has been removed has no entries.
fn each_entry(
    directory: BorrowedFd<'_>,
    mut each: impl FnMut(&str, FileType) -> Result<(), Errno>,
) -> Result<(), Errno> {
    // A new descriptor reads from the start.
    let again = match open_directory(directory, ".") {
        Err(Errno::NOENT) => return Ok(()),
        again => again?,
    };
    let mut room = [MaybeUninit::uninit(); 8192];
    let mut entries = RawDir::new(&again, &mut room);
    while let Some(entry) = entries.next() {
        let entry = match entry {
            Err(Errno::NOENT) => break,
            entry => entry?,
        };
        if let Ok(name) = entry.file_name().to_str() {
            each(name, entry.file_type())?;
        }
    }
    Ok(())
}
