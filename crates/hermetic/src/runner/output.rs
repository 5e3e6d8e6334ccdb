//! The output of a test's process: kept until it ends, or shown live.

use crate::adapters::Output;
use crate::error::Error;
use crate::libtest::output;
use crate::plan::layers::Streams;
use husk_script::sys::Fd;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Seek as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

pub(crate) enum CapturedOutput {
    /// The output is kept in a memfd, and errors perhaps in another.
    Captured(File, Option<File>),
    /// The output is read from a pipe while the process runs.
    Live(Live),
}

pub(crate) struct Live {
    ours: File,
    /// The write end, until the process has started.
    theirs: Option<OwnedFd>,
    seen: Vec<u8>,
    /// How many bytes have been handed on; `None` before the test's own output begins.
    heard: Option<usize>,
    is_over: bool,
}

impl CapturedOutput {
    pub(crate) fn captured() -> Result<Self, Error> {
        Ok(Self::Captured(memory()?, None))
    }

    /// Like `captured`, with standard error apart.
    pub(crate) fn split() -> Result<Self, Error> {
        Ok(Self::Captured(memory()?, Some(memory()?)))
    }

    pub(crate) fn live() -> Result<Self, Error> {
        // Only our end is nonblocking: programs expect a blocking stream.
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
            Self::Captured(memory, errors) => {
                let output = Fd::of(memory);
                Streams::Captured { output, errors: errors.as_ref().map_or(output, Fd::of) }
            }
            Self::Live(Live { theirs, ours, .. }) => {
                Streams::Heard(theirs.as_ref().map_or(Fd::of(ours), Fd::of))
            }
        }
    }

    /// Closes our copy of the pipe's write end once the process has started.
    pub(crate) fn begun(&mut self) {
        if let Self::Live(live) = self {
            live.theirs = None;
        }
    }

    /// Returns the descriptor to wait for, unless the pipe has ended.
    pub(crate) fn arriving(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Live(live) if !live.is_over => Some(live.ours.as_fd()),
            _ => None,
        }
    }

    /// Returns whether the test's own output has begun.
    pub(crate) fn is_known(&self) -> bool {
        matches!(self, Self::Live(Live { heard: Some(_), .. }))
    }

    /// Returns how many bytes of the process's output have been handed on.
    pub(crate) fn heard(&self) -> usize {
        match self {
            Self::Captured(..) => 0,
            Self::Live(live) => live.heard.unwrap_or(0),
        }
    }

    /// Returns the line that libtest has begun, only before the first output, and the test's new output.
    pub(crate) fn hear(&mut self, name: &str) -> Result<(&[u8], &[u8]), Error> {
        let Self::Live(live) = self else { return Ok((&[], &[])) };
        live.read()?;
        let is_first = live.heard.is_none();
        let Some(from) = live.heard.or_else(|| output::begin(name, &live.seen)) else {
            return Ok((&[], &[]));
        };
        let (before, rest) = live.seen.split_at(from);
        let known = output::known(rest);
        live.heard = Some(from + known);
        let line = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
        let line = before.get(line..).filter(|_| is_first);
        Ok((line.unwrap_or_default(), rest.get(..known).unwrap_or_default()))
    }

    /// Returns everything that the process wrote, once it has ended.
    pub(crate) fn finish(self) -> Result<Output, Error> {
        match self {
            Self::Captured(memory, errors) => {
                Ok(Output { out: read(memory)?, errors: errors.map_or(Ok(Vec::new()), read)? })
            }
            Self::Live(mut live) => {
                live.read()?;
                Ok(Output { out: live.seen, errors: Vec::new() })
            }
        }
    }
}

impl Live {
    /// Reads everything that has arrived.
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

fn memory() -> Result<File, Error> {
    let memory = memfd_create("output", MemfdFlags::CLOEXEC);
    Ok(memory.map_err(|errno| failed("make room for")(errno.into()))?.into())
}

fn read(mut memory: File) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let read = memory.rewind().and_then(|()| memory.read_to_end(&mut bytes));
    read.map(|_| bytes).map_err(failed("read"))
}

fn failed(act: &str) -> impl Fn(io::Error) -> Error {
    let act = format!("{act} output");
    move |error| Error::Look { act: act.clone(), reason: error.into() }
}
