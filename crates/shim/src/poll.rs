//! Waits for all sources of events of the loop at once.

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// A source of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The shim's socket: a client connects.
    Listener,
    /// A child has ended.
    Signals,
    /// The connection to containerd's events service.
    Publisher,
    /// A client's connection.
    Client(u32),
    Pump(u32),
    /// The memory of a container.
    Memory(u32),
}

impl Source {
    fn data(self) -> EventData {
        let (kind, number) = match self {
            Self::Listener => (0, 0),
            Self::Signals => (1, 0),
            Self::Publisher => (2, 0),
            Self::Client(number) => (3, number),
            Self::Pump(number) => (4, number),
            Self::Memory(number) => (5, number),
        };
        EventData::new_u64(kind << 32 | u64::from(number))
    }

    fn of(data: EventData) -> Option<Self> {
        let number = u32::try_from(data.u64() & 0xffff_ffff).ok()?;
        Some(match data.u64() >> 32 {
            0 => Self::Listener,
            1 => Self::Signals,
            2 => Self::Publisher,
            3 => Self::Client(number),
            4 => Self::Pump(number),
            5 => Self::Memory(number),
            _ => return None,
        })
    }
}

pub(crate) struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)? })
    }

    /// Waits for events of a descriptor, which is not waited for yet.
    pub(crate) fn add(&self, fd: impl AsFd, source: Source, events: EventFlags) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, source.data(), events)?)
    }

    pub(crate) fn change(&self, fd: impl AsFd, source: Source, events: EventFlags) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, fd, source.data(), events)?)
    }

    /// Stops waiting for a descriptor. The kernel reports a hang-up even where no event is asked for, so a source that
    /// must rest is removed.
    pub(crate) fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Returns the sources that are ready, after at most `limit`.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> io::Result<Vec<Source>> {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut room = [MaybeUninit::<Event>::uninit(); 32];
        match epoll::wait(&self.epoll, &mut room, limit.as_ref()) {
            Ok((ready, _)) => Ok(ready.iter().filter_map(|event| Source::of(event.data)).collect()),
            Err(Errno::INTR) => Ok(Vec::new()),
            Err(errno) => Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Source;

    #[test]
    fn source_survives_the_kernel() {
        for source in [
            Source::Listener,
            Source::Signals,
            Source::Publisher,
            Source::Client(7),
            Source::Pump(u32::MAX),
            Source::Memory(0),
        ] {
            assert_eq!(Source::of(source.data()), Some(source));
        }
    }
}
