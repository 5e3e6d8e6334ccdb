//! Waits for changes of version 2's `cgroup.events`, which supports poll.

use crate::files;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::fs::OFlags;
use rustix::io::{Errno, pread, retry_on_intr};
use std::time::{Duration, Instant};

/// Returns whether `key` has become `value` in time. All values of a removed cgroup count as 0: it has no
/// processes and nothing frozen.
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
        // Poll returns at once if the file has changed since the last read.
        let mut files = [PollFd::new(&file, PollFlags::PRI)];
        match poll(&mut files, Some(&timeout(left))) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Converts a duration for poll.
pub(crate) fn timeout(left: Duration) -> Timespec {
    let seconds = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec: seconds, tv_nsec: left.subsec_nanos().into() }
}
