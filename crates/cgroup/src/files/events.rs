//! Waiting for version 2's `cgroup.events`, which tells those who poll it of every change.

use crate::files;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::fs::OFlags;
use rustix::io::{Errno, pread, retry_on_intr};
use std::time::{Duration, Instant};

/// Returns whether `key` has become `value` in time. A cgroup that is gone has neither processes nor
/// anything frozen, so nobody waits for it.
pub(crate) fn wait(
    directory: BorrowedFd<'_>,
    key: &str,
    value: u64,
    patience: Duration,
) -> Result<bool, Errno> {
    let file = match files::open(directory, "cgroup.events", OFlags::RDONLY) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::NODEV) => return Ok(value == 0),
        Err(errno) => return Err(errno),
    };
    let end = Instant::now() + patience;
    loop {
        let mut room = [0; 128];
        let length = match retry_on_intr(|| pread(&file, &mut room, 0)) {
            Ok(length) => length,
            Err(Errno::NODEV) => return Ok(value == 0),
            Err(errno) => return Err(errno),
        };
        let text = room.get(..length).and_then(|text| core::str::from_utf8(text).ok()).unwrap_or("");
        if files::keyed(text, key) == Some(value) {
            return Ok(true);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        // A change since the last read is told at once.
        let mut files = [PollFd::new(&file, PollFlags::PRI)];
        match poll(&mut files, Some(&timeout(left))) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// A duration as poll takes it.
pub(crate) fn timeout(left: Duration) -> Timespec {
    let seconds = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec: seconds, tv_nsec: left.subsec_nanos().into() }
}
