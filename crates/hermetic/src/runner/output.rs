//! What a test's process writes: kept until it ends, or heard at once.

use crate::error::Error;
use crate::libtest::said;
use crate::plan::layers::Streams;
use husk_script::sys::Fd;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Seek as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

pub(crate) enum Output {
    /// In memory.
    Captured(File),
    /// Through a pipe.
    Live(Live),
}

pub(crate) struct Live {
    ours: File,
    /// The other end, until the process has it.
    theirs: Option<OwnedFd>,
    seen: Vec<u8>,
    /// How much of it has been handed on, since the test's own output has begun.
    heard: Option<usize>,
    is_over: bool,
}

impl Output {
    pub(crate) fn captured() -> Result<Self, Error> {
        let memory = memfd_create("output", MemfdFlags::CLOEXEC)
            .map_err(|errno| failed("make room for")(errno.into()))?;
        Ok(Self::Captured(memory.into()))
    }

    pub(crate) fn live() -> Result<Self, Error> {
        // Only our end: the program gets what programs expect.
        let pipe = pipe_with(PipeFlags::CLOEXEC).and_then(|(ours, theirs)| {
            rustix::fs::fcntl_setfl(&ours, rustix::fs::OFlags::NONBLOCK)?;
            Ok((ours, theirs))
        });
        let (ours, theirs) = pipe.map_err(|errno| failed("make a pipe for")(errno.into()))?;
        Ok(Self::Live(Live {
            ours: ours.into(),
            theirs: Some(theirs),
            seen: Vec::new(),
            heard: None,
            is_over: false,
        }))
    }

    pub(crate) fn streams(&self) -> Streams {
        match self {
            Self::Captured(memory) => Streams::Captured(Fd::of(memory)),
            Self::Live(Live { theirs, ours, .. }) => {
                Streams::Heard(theirs.as_ref().map_or(Fd::of(ours), Fd::of))
            }
        }
    }

    /// The same when the process has been started: its end is its own.
    pub(crate) fn begun(mut self) -> Self {
        if let Self::Live(live) = &mut self {
            live.theirs = None;
        }
        self
    }

    /// What to wait for.
    pub(crate) fn arriving(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Live(live) if !live.is_over => Some(live.ours.as_fd()),
            _ => None,
        }
    }

    /// Whether the test's own output has begun.
    pub(crate) fn is_known(&self) -> bool {
        matches!(self, Self::Live(Live { heard: Some(_), .. }))
    }

    /// How much of what the process has written has been handed on.
    pub(crate) fn heard(&self) -> usize {
        match self {
            Self::Captured(_) => 0,
            Self::Live(live) => live.heard.unwrap_or(0),
        }
    }

    /// What the test has said since; and before the first of it the line that libtest has begun for it.
    pub(crate) fn hear(&mut self, name: &str) -> Result<(&[u8], &[u8]), Error> {
        let Self::Live(live) = self else { return Ok((&[], &[])) };
        live.read()?;
        let is_first = live.heard.is_none();
        let Some(from) = live.heard.or_else(|| said::begin(name, &live.seen)) else { return Ok((&[], &[])) };
        let (before, rest) = live.seen.split_at(from);
        let known = said::known(rest);
        live.heard = Some(from + known);
        let line = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
        let line = before.get(line..).filter(|_| is_first);
        Ok((line.unwrap_or_default(), rest.get(..known).unwrap_or_default()))
    }

    /// All that the process wrote, when it has ended.
    pub(crate) fn finish(self) -> Result<Vec<u8>, Error> {
        match self {
            Self::Captured(mut memory) => {
                let mut bytes = Vec::new();
                let read = memory.rewind().and_then(|()| memory.read_to_end(&mut bytes));
                read.map(|_| bytes).map_err(failed("read"))
            }
            Self::Live(mut live) => {
                live.read()?;
                Ok(live.seen)
            }
        }
    }
}

impl Live {
    /// All that is there.
    fn read(&mut self) -> Result<(), Error> {
        match self.ours.read_to_end(&mut self.seen) {
            Ok(_) => {
                self.is_over = true;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(failed("read")(error)),
        }
    }
}

fn failed(act: &str) -> impl Fn(io::Error) -> Error {
    let act = format!("{act} output");
    move |reason| Error::Look { act: act.clone(), reason }
}
