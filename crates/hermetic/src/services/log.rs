//! The output of a service. The end of it is kept, and the rest is counted and dropped.

use crate::error::Error;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, read};
use rustix::pipe::{PipeFlags, pipe_with};
use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// How many bytes are kept of each service.
const MOST_KEPT: usize = 64 << 10;

/// How many bytes are read at a time, so that one service cannot keep us from the others.
const MOST_READ: usize = 1 << 20;

/// The output of a service, read from a pipe.
pub(super) struct Log {
    ours: OwnedFd,
    theirs: OwnedFd,
    kept: VecDeque<u8>,
    /// How many bytes have arrived.
    count: u64,
    wanted: Option<Wanted>,
}

/// A text that the output is searched for.
struct Wanted {
    text: Vec<u8>,
    /// The bytes that may be the beginning of the text.
    before: Vec<u8>,
    is_found: bool,
}

impl Log {
    pub(super) fn new(wanted: Option<&str>) -> Result<Self, Error> {
        let failed =
            |errno: Errno| Error::Look { act: "make a pipe for a service".to_owned(), reason: errno.into() };
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
        fcntl_setfl(&ours, OFlags::NONBLOCK).map_err(failed)?;
        let wanted = wanted.map(|text| Wanted { text: text.into(), before: Vec::new(), is_found: false });
        Ok(Self { ours, theirs, kept: VecDeque::new(), count: 0, wanted })
    }

    /// Returns the descriptor to wait for.
    pub(super) fn arriving(&self) -> BorrowedFd<'_> {
        self.ours.as_fd()
    }

    /// Returns the end that the service writes to. It stays open, so that another attempt can use it.
    pub(super) fn theirs(&self) -> &OwnedFd {
        &self.theirs
    }

    /// Returns how many bytes have arrived.
    pub(super) fn position(&self) -> u64 {
        self.count
    }

    pub(super) fn has_found(&self) -> bool {
        self.wanted.as_ref().is_some_and(|wanted| wanted.is_found)
    }

    /// Reads what has arrived.
    pub(super) fn read(&mut self) {
        let mut buffer = [0; 16 << 10];
        let mut room = MOST_READ;
        while room > 0 {
            // Our own copy of the other end stays open, so there is never an end of file.
            let bytes = match read(&self.ours, &mut buffer) {
                Ok(length) => buffer.get(..length).unwrap_or_default(),
                Err(Errno::INTR) => continue,
                Err(_) => return,
            };
            if bytes.is_empty() {
                return;
            }
            room = room.saturating_sub(bytes.len());
            self.keep(bytes);
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        if let Some(wanted) = &mut self.wanted {
            wanted.search(bytes);
        }
        self.count += bytes.len() as u64;
        self.kept.extend(bytes);
        let surplus = self.kept.len().saturating_sub(MOST_KEPT);
        drop(self.kept.drain(..surplus));
    }

    /// Returns the end of what arrived after a position.
    pub(super) fn since(&self, position: u64) -> String {
        let asked = self.count.saturating_sub(position);
        let length = usize::try_from(asked).unwrap_or(usize::MAX).min(self.kept.len());
        let bytes: Vec<u8> = self.kept.range(self.kept.len() - length..).copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        match asked - length as u64 {
            0 => text.into_owned(),
            missing => format!("[{missing} bytes left out]\n{text}"),
        }
    }
}

impl Wanted {
    fn search(&mut self, bytes: &[u8]) {
        if self.is_found {
            return;
        }
        self.before.extend_from_slice(bytes);
        self.is_found = self.before.windows(self.text.len()).any(|window| window == self.text);
        let rest = self.before.len().saturating_sub(self.text.len().saturating_sub(1));
        self.before.drain(..rest);
    }
}

#[cfg(test)]
mod tests {
    use super::{Log, MOST_KEPT};

    #[test]
    fn only_the_end_of_a_flood_is_kept() {
        let mut log = Log::new(None).unwrap();
        let begin = log.position();
        for _ in 0..100 {
            log.keep(&[b'x'; 4096]);
        }
        assert_eq!(log.kept.len(), MOST_KEPT);
        let missing = 100 * 4096 - MOST_KEPT;
        assert!(log.since(begin).starts_with(&format!("[{missing} bytes left out]\nxx")));
        let here = log.position();
        log.keep(b"last\n");
        assert_eq!(log.since(here), "last\n");
    }

    #[test]
    fn text_is_found_across_reads() {
        let mut log = Log::new(Some("ready")).unwrap();
        log.keep(b"not re");
        assert!(!log.has_found());
        log.keep(b"ady");
        assert!(log.has_found());
    }
}
