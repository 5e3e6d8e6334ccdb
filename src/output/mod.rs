//! What husk says, and where. The standard streams are in this file; the log, and how text is worded, escaped and drawn,
//! are in the files beside it.
//!
//! A stream that cannot be written is an error or nothing, never a panic: the verb that prints has more to do than to
//! print.
//!
//! - Data that was asked for goes to standard output. If it cannot be written, husk ends with 1 ([`Unwritten`]).
//! - A reader that closed its end of a pipe wants no more data. That is no error: `husk list | head -n 1`.
//! - Messages go to standard error. A message that cannot be written is dropped.

pub(crate) mod escape;
pub(crate) mod log;
pub(crate) mod name;
pub(crate) mod near;
pub(crate) mod timings;

use anyhow::{Context as _, Result};
use husk_runtime::tolerate;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr, write};
use rustix::stdio::stdout;
use std::fmt::{self, Display, Formatter};
use std::io::{self, Write};

/// The context of an error: data that was asked for could not be written there.
#[derive(Debug)]
pub(crate) struct Unwritten(pub(crate) &'static str);

impl Display for Unwritten {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "write {}", self.0)
    }
}

const STANDARD_OUTPUT: Unwritten = Unwritten("standard output");

/// Whether somebody still reads standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    There,
    /// It closed the other end of the pipe.
    Gone,
}

/// Writes data to standard output, all of it.
pub(crate) fn print(data: impl AsRef<[u8]>) -> Result<Reader> {
    match write_all(data.as_ref()) {
        Ok(()) => Ok(Reader::There),
        Err(Errno::PIPE) => Ok(Reader::Gone),
        Err(errno) => Err(io::Error::from(errno)).context(STANDARD_OUTPUT),
    }
}

/// Not through std's standard output, which takes a descriptor that is not open for writing for one that is.
fn write_all(mut data: &[u8]) -> Result<(), Errno> {
    while !data.is_empty() {
        match retry_on_intr(|| write(stdout(), data)) {
            Ok(written) => data = data.get(written..).unwrap_or_default(),
            // The caller's pipe does not block, and it is full.
            Err(Errno::AGAIN) => {
                retry_on_intr(|| poll(&mut [PollFd::new(&stdout(), PollFlags::OUT)], None))?;
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Writes a message to standard error, in one write: others may write there too.
pub(crate) fn tell(message: &str) {
    tolerate(io::stderr().write_all(message.as_bytes()), "there is no other place to report it");
}

/// Standard output for a verb that goes on whether or not its output can be written. The first failure is kept, and
/// what comes after it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Lasting {
    failed: Option<Errno>,
}

impl Lasting {
    /// Says at the end whether everything was written, or the reader wanted no more.
    pub(crate) fn finish(&self) -> Result<()> {
        match self.failed {
            None | Some(Errno::PIPE) => Ok(()),
            Some(errno) => Err(io::Error::from(errno)).context(STANDARD_OUTPUT),
        }
    }
}

impl Write for Lasting {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.failed.is_none() {
            self.failed = write_all(data).err();
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
