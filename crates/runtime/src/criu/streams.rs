//! Records a container's standard streams. At restore, the caller's streams replace those that are pipes, whose other
//! ends are outside of the container. The record is beside the images, in the file and format that runc uses.

use crate::criu::ProtobufMessage;
use crate::criu::protocol::{numbered, option};
use crate::error::Error;
use crate::host::files;
use crate::store::atomic;
use crate::store::record::Record;
use husk_bundle::Container;
use husk_bundle::container::Terminal;
use rustix::fs::{Mode, ResolveFlags};
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

/// Writes the container's streams to the images.
pub(crate) fn keep(record: &Record, images: &OwnedFd) -> Result<(), Error> {
    let text = serde_json::to_vec(&record.streams).map_err(Error::Record)?;
    atomic::write(images, FILE.as_ref(), Mode::RUSR | Mode::WUSR, &text)
        .map_err(|reason| Error::file("write", FILE, reason))
}

/// Tells CRIU to replace each pipe by husk's standard stream of that number. Other entries are ignored.
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
    for (number, stream) in (0..3).zip(&streams).filter(|(_, stream)| is_pipe(stream)) {
        options.message(option::INHERIT_FD, &numbered(stream, number));
    }
    Ok(())
}

/// Whether the name of a stream is that of a pipe: `pipe:[4711]`.
fn is_pipe(stream: &str) -> bool {
    let inode = stream.strip_prefix("pipe:[").and_then(|rest| rest.strip_suffix(']'));
    inode.is_some_and(|inode| inode.parse::<u64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::is_pipe;

    #[test]
    fn only_pipes_are_replaced() {
        assert!(is_pipe("pipe:[4711]"));
        for stream in ["", "/dev/null", "socket:[1]", "pipe:[1]x", "pipe:[]", "/tmp/pipe:[1]"] {
            assert!(!is_pipe(stream), "{stream}");
        }
    }
}
