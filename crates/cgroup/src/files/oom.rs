//! Reports when a cgroup runs out of memory.

use crate::error::Error;
use crate::files;
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::{Errno, pread, read, retry_on_intr};
use std::path::{Path, PathBuf};

/// A descriptor to poll, which becomes ready when memory has run out or the cgroup is removed.
#[derive(Debug)]
pub struct OomWatch {
    source: OomSource,
    path: PathBuf,
    /// The kills that have been reported. In version 1 this may count an announced kill that is still to come.
    kills: u64,
}

#[derive(Debug)]
enum OomSource {
    V1 {
        event: OwnedFd,
        /// An open `memory.oom_control`.
        control: OwnedFd,
    },
    /// An open `memory.events`.
    V2(OwnedFd),
}

/// News of a watched cgroup since the last check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OomEvent {
    /// Nothing, or only that a limit was reached.
    Nothing,
    /// The OOM killer has killed a process, or in version 1 is about to.
    OutOfMemory,
    /// The cgroup was removed. Stop polling: in version 2 the descriptor stays ready.
    Gone,
}

impl OomWatch {
    pub(crate) fn version_1(directory: BorrowedFd<'_>, path: &Path) -> Result<Self, Error> {
        let failed = |errno| failed(path, errno);
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        let control = files::open(directory, "memory.oom_control", OFlags::RDONLY).map_err(failed)?;
        // Before the registration: a kill after it is then counted or announced.
        let kills = kills(&control).map_err(failed)?;
        let line = format!("{} {}", event.as_raw_fd(), control.as_raw_fd());
        files::put(directory, "cgroup.event_control", &line).map_err(failed)?;
        Ok(Self { source: OomSource::V1 { event, control }, path: path.to_owned(), kills })
    }

    pub(crate) fn version_2(directory: BorrowedFd<'_>, path: &Path) -> Result<Self, Error> {
        let failed = |errno| failed(path, errno);
        let events = files::open(directory, "memory.events", OFlags::RDONLY).map_err(failed)?;
        // Also consumes earlier events.
        let kills = kills(&events).map_err(failed)?;
        Ok(Self { source: OomSource::V2(events), path: path.to_owned(), kills })
    }

    /// Returns the flags to poll with.
    #[must_use]
    pub const fn flags(&self) -> PollFlags {
        match self.source {
            OomSource::V1 { .. } => PollFlags::IN,
            OomSource::V2(_) => PollFlags::PRI,
        }
    }

    /// Returns what has happened since the last check, and makes the descriptor unready until the next event. Never
    /// blocks, so it may be called when the descriptor is not ready: version 1 does not announce every kill.
    ///
    /// # Errors
    ///
    /// If a descriptor cannot be read.
    pub fn check(&mut self) -> Result<OomEvent, Error> {
        let seen = match &self.source {
            OomSource::V1 { event, control } => taken(event).and_then(|taken| Ok((taken, kills(control)?))),
            // The read consumes the event.
            OomSource::V2(events) => kills(events).map(|kills| (false, kills)),
        };
        let (announced, kills) = match seen {
            Err(Errno::NODEV) => return Ok(OomEvent::Gone),
            seen => seen.map_err(|errno| failed(&self.path, errno))?,
        };
        if !announced && kills <= self.kills {
            return Ok(OomEvent::Nothing);
        }
        // Version 1 announces before it kills, and only once (mem_cgroup_oom_notify).
        self.kills = self.kills.saturating_add(u64::from(announced)).max(kills);
        Ok(OomEvent::OutOfMemory)
    }
}

fn failed(path: &Path, errno: Errno) -> Error {
    Error::Act { act: "watch the memory of", path: path.to_owned(), errno }
}

/// Consumes the announcements of version 1, and returns whether there were any.
fn taken(event: &OwnedFd) -> Result<bool, Errno> {
    let mut count = [0; 8];
    match retry_on_intr(|| read(event, &mut count)) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Returns how many processes the OOM killer has killed. Version 1 counts them since Linux 4.13.
fn kills(file: &OwnedFd) -> Result<u64, Errno> {
    let mut room = [0; 512];
    let length = retry_on_intr(|| pread(file, &mut room, 0))?;
    let text = room.get(..length).and_then(|text| core::str::from_utf8(text).ok());
    Ok(text.and_then(|text| files::keyed(text, "oom_kill")).unwrap_or(0))
}

impl AsFd for OomWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.source {
            OomSource::V1 { event: fd, .. } | OomSource::V2(fd) => fd.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};
    use rustix::io::{pwrite, write};

    #[test]
    fn only_new_kills_count_in_version_2() {
        let events = memfd_create("memory.events", MemfdFlags::CLOEXEC).unwrap();
        let tell = |max: u64, kills: u64| {
            pwrite(&events, format!("low 0\nhigh 0\nmax {max}\noom 3\noom_kill {kills}\n").as_bytes(), 0)
                .unwrap()
        };
        tell(1, 2);
        let source = OomSource::V2(events.try_clone().unwrap());
        let mut watch = OomWatch { source, path: PathBuf::new(), kills: kills(&events).unwrap() };
        assert_eq!(watch.check().unwrap(), OomEvent::Nothing, "killed before the watch began");
        tell(2, 2);
        assert_eq!(watch.check().unwrap(), OomEvent::Nothing, "only the limit was reached");
        tell(2, 4);
        assert_eq!(watch.check().unwrap(), OomEvent::OutOfMemory);
        assert_eq!(watch.check().unwrap(), OomEvent::Nothing);
    }

    #[test]
    fn announced_kill_of_version_1_counts_before_it_happens_and_not_again() {
        let control = memfd_create("memory.oom_control", MemfdFlags::CLOEXEC).unwrap();
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let tell = |kills: u64| {
            let text = format!("oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n");
            pwrite(&control, text.as_bytes(), 0).unwrap()
        };
        tell(0);
        let source =
            OomSource::V1 { event: event.try_clone().unwrap(), control: control.try_clone().unwrap() };
        let mut watch = OomWatch { source, path: PathBuf::new(), kills: 0 };
        assert_eq!(watch.check().unwrap(), OomEvent::Nothing);
        write(&event, &1_u64.to_ne_bytes()).unwrap();
        assert_eq!(watch.check().unwrap(), OomEvent::OutOfMemory);
        tell(1);
        assert_eq!(watch.check().unwrap(), OomEvent::Nothing, "it was announced");
        tell(2);
        assert_eq!(watch.check().unwrap(), OomEvent::OutOfMemory, "killed without an announcement");
    }
}
