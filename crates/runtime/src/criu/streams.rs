//! Keeps a container's standard streams apart from its images. At restore, the caller's streams replace those that lead
//! out of the container: pipes, and FIFOs and regular files of the host. The record is beside the images, in the file
//! and format that runc uses. runc ignores the files in it.
//!
//! CRIU knows a file of the host as `file[MOUNT ID:INODE]`. It cuts the first character off every path to get a relative
//! one, this name included. By the rest of it CRIU finds the descriptor that takes the file's place, as it is. By the
//! whole name it would open that descriptor's file again, with the flags, mode and position of the saved one.

use crate::criu::ProtobufMessage;
use crate::criu::protocol::{numbered, option};
use crate::error::Error;
use crate::host::files;
use crate::store::atomic;
use crate::store::record::Record;
use husk_bundle::Container;
use husk_bundle::container::Terminal;
use rustix::fs::{AtFlags, CWD, FileType, Mode, ResolveFlags, StatxFlags, statx};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;

const FILE: &str = "descriptors.json";

/// The most that is read of the file.
const MOST: u64 = 1 << 20;

/// Returns the names of the streams that husk gives to a container. Empty if it has a terminal.
pub(crate) fn ours(container: &Container) -> Vec<String> {
    let terminal = container.process.as_ref().map_or(Terminal::No, |process| process.terminal);
    if terminal != Terminal::No {
        return Vec::new();
    }
    let name = |number| fs::read_link(format!("/proc/self/fd/{number}")).unwrap_or_default();
    (0..3).map(|number| name(number).to_string_lossy().into_owned()).collect()
}

/// Writes the container's streams to the images, and tells CRIU which of them are the host's files.
pub(crate) fn keep(
    record: &Record,
    pid: i32,
    images: &OwnedFd,
    options: &mut ProtobufMessage,
) -> Result<(), Error> {
    let mut streams = record.streams.clone();
    let outside = HostFiles::of(pid)?;
    for (number, stream) in streams.iter_mut().enumerate() {
        if let Some(name) = outside.name(number)? {
            options.bytes(option::EXTERNAL, &name);
            *stream = name;
        }
    }
    let text = serde_json::to_vec(&streams).map_err(Error::Record)?;
    atomic::write(images, FILE.as_ref(), Mode::RUSR | Mode::WUSR, &text)
        .map_err(|reason| Error::file("write", FILE, reason))
}

/// The files of a process that are on no mount of its mount namespace.
struct HostFiles {
    pid: i32,
    /// The mounts of its namespace.
    mounts: BTreeSet<u64>,
}

impl HostFiles {
    fn of(pid: i32) -> Result<Self, Error> {
        let path = format!("/proc/{pid}/mountinfo");
        let mounts = files::read_procfs(&path).map_err(|reason| Error::file("read", path, reason))?;
        let id = |line: &str| line.split(' ').next()?.parse().ok();
        Ok(Self { pid, mounts: mounts.lines().filter_map(id).collect() })
    }

    /// Returns CRIU's name for the file of this descriptor, if it is a FIFO or a regular file of the host.
    fn name(&self, number: usize) -> Result<Option<String>, Error> {
        let path = format!("/proc/{}/fd/{number}", self.pid);
        let found = match fs::read_link(&path) {
            Ok(target) if target.is_absolute() => {
                statx(CWD, &path, AtFlags::empty(), StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)
            }
            // A pipe, a socket or the like.
            Ok(_) => return Ok(None),
            // The process has closed it.
            Err(reason) if reason.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(reason) => return Err(Error::file("read", path, reason)),
        };
        let found = found.map_err(|errno| Error::file("stat", path, errno))?;
        let kind = FileType::from_raw_mode(found.stx_mode.into());
        let is_outside = matches!(kind, FileType::Fifo | FileType::RegularFile)
            && found.stx_mask & StatxFlags::MNT_ID.bits() != 0
            && !self.mounts.contains(&found.stx_mnt_id);
        Ok(is_outside.then(|| format!("file[{:x}:{:x}]", found.stx_mnt_id, found.stx_ino)))
    }
}

/// Tells CRIU to replace each stream that leads out of the container by husk's standard stream of that number. Other
/// entries are ignored.
pub(crate) fn replace(images: &OwnedFd, options: &mut ProtobufMessage) -> Result<(), Error> {
    let mut text = Vec::new();
    match files::open_regular(images, FILE, ResolveFlags::NO_SYMLINKS) {
        Err(reason) if reason.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(reason) => return Err(Error::file("open", FILE, reason)),
        Ok(file) => file.take(MOST).read_to_end(&mut text),
    }
    .map_err(|reason| Error::file("read", FILE, reason))?;
    let invalid = |reason: serde_json::Error| Error::file("read", FILE, std::io::Error::from(reason));
    let streams: Vec<String> = serde_json::from_slice(&text).map_err(invalid)?;
    for (number, stream) in (0..3).zip(&streams) {
        if let Some(key) = replaceable(stream) {
            options.message(option::INHERIT_FD, &numbered(key, number));
        }
    }
    Ok(())
}

/// Returns the key by which CRIU replaces a stream: a pipe, `pipe:[4711]`, or a file of the host, `file[1b:4711]`.
fn replaceable(stream: &str) -> Option<&str> {
    let is_number = |text: &str, radix| u64::from_str_radix(text, radix).is_ok();
    let within = |before| stream.strip_prefix(before)?.strip_suffix(']');
    if within("pipe:[").is_some_and(|inode| is_number(inode, 10)) {
        return Some(stream);
    }
    let (mount, inode) = within("file[")?.split_once(':')?;
    (is_number(mount, 16) && is_number(inode, 16)).then_some(&stream[1..])
}

#[cfg(test)]
mod tests {
    use super::replaceable;

    #[test]
    fn only_pipes_and_files_of_the_host_are_replaced() {
        assert_eq!(replaceable("pipe:[4711]"), Some("pipe:[4711]"));
        assert_eq!(replaceable("file[1b:a4f]"), Some("ile[1b:a4f]"));
        let others =
            ["", "/dev/null", "socket:[1]", "pipe:[1]x", "pipe:[]", "/tmp/pipe:[1]", "file[1b]", "file[x:1]"];
        for stream in others {
            assert_eq!(replaceable(stream), None, "{stream}");
        }
    }
}
