//! Reports when a cgroup runs out of memory.

use crate::error::Error;
use crate::files;
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::{Errno, pread, read, retry_on_intr};
use std::path::Path;

/// A descriptor to poll, which becomes ready when memory has run out or the cgroup is removed.
#[derive(Debug)]
pub struct OomWatch(OomSource);

#[derive(Debug)]
enum OomSource {
    V1(OwnedFd),
    /// An open `memory.events`.
    V2(OwnedFd),
}

impl OomWatch {
    pub(crate) fn version_1(directory: BorrowedFd<'_>, path: &Path) -> Result<Self, Error> {
        let failed = |errno| Error::Act { act: "watch the memory of", path: path.to_owned(), errno };
        let event = eventfd(0, EventfdFlags::CLOEXEC).map_err(failed)?;
        let control = files::open(directory, "memory.oom_control", OFlags::RDONLY).map_err(failed)?;
        // The kernel keeps what it needs of both descriptors (cgroup-v1/memory.rst, "OOM Control").
        let line = format!("{} {}", event.as_raw_fd(), control.as_raw_fd());
        files::put(directory, "cgroup.event_control", &line).map_err(failed)?;
        Ok(Self(OomSource::V1(event)))
    }

    pub(crate) fn version_2(directory: BorrowedFd<'_>, path: &Path) -> Result<Self, Error> {
        let failed = |errno| Error::Act { act: "watch the memory of", path: path.to_owned(), errno };
        let events = files::open(directory, "memory.events", OFlags::RDONLY).map_err(failed)?;
        let watch = Self(OomSource::V2(events));
        // Discards earlier events.
        watch.take().map_err(failed)?;
        Ok(watch)
    }

    /// Returns the flags to poll with.
    #[must_use]
    pub const fn flags(&self) -> PollFlags {
        match self.0 {
            OomSource::V1(_) => PollFlags::IN,
            OomSource::V2(_) => PollFlags::PRI,
        }
    }

    /// Consumes the event, so that only the next one makes the descriptor ready again. Check
    /// [`oom_kills`](crate::Cgroup::oom_kills): in version 2, reaching a limit is an event too.
    ///
    /// # Errors
    ///
    /// If the descriptor cannot be read. Succeeds if the cgroup is gone.
    pub fn take(&self) -> Result<(), Errno> {
        let mut room = [0; 512];
        let taken = match &self.0 {
            OomSource::V1(event) => retry_on_intr(|| read(event, &mut room)),
            OomSource::V2(events) => retry_on_intr(|| pread(events, &mut room, 0)),
        };
        match taken {
            Ok(_) | Err(Errno::NODEV) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

impl AsFd for OomWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            OomSource::V1(fd) | OomSource::V2(fd) => fd.as_fd(),
        }
    }
}
