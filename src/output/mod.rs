//! Standard streams. The modules below format, escape and log messages.
//!
//! A failed write is an error or ignored, never a panic, because the verb may have more to do than print.
//!
//! - Requested data goes to standard output. If it cannot be written, husk exits with 1 ([`Unwritten`]).
//! - A reader that closed its end of a pipe wants no more data. This is not an error: `husk list | head -n
//!   1`.
//! - Messages go to standard error. Messages that cannot be written are dropped.

pub(crate) mod escape;
pub(crate) mod log;
pub(crate) mod name;
pub(crate) mod near;
pub(crate) mod terminal;
pub(crate) mod timings;

use anyhow::{Context as _, Result};
use husk_runtime::tolerate;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr, write};
use rustix::stdio::stdout;
use std::fmt::{self, Display, Formatter};
use std::io::{self, Write};

/// The context of an error: requested data could not be written to this destination.
#[derive(Debug)]
pub(crate) struct Unwritten(pub(crate) &'static str);

impl Display for Unwritten {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "write {}", self.0)
    }
}

const STANDARD_OUTPUT: Unwritten = Unwritten("standard output");

/// Whether standard output still has a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StdoutReader {
    There,
    /// The reader has closed its end of the pipe.
    Gone,
}

/// Writes all data to standard output.
pub(crate) fn print(data: impl AsRef<[u8]>) -> Result<StdoutReader> {
    match write_all(data.as_ref()) {
        Ok(()) => Ok(StdoutReader::There),
        Err(Errno::PIPE) => Ok(StdoutReader::Gone),
        Err(errno) => Err(io::Error::from(errno)).context(STANDARD_OUTPUT),
    }
}

/// Writes to the descriptor and not to std's standard output, which ignores EBADF from a descriptor that is not open
/// for writing.
fn write_all(mut data: &[u8]) -> Result<(), Errno> {
    while !data.is_empty() {
        match retry_on_intr(|| write(stdout(), data)) {
            Ok(written) => data = data.get(written..).unwrap_or_default(),
            // The pipe is nonblocking and full.
            Err(Errno::AGAIN) => {
                retry_on_intr(|| poll(&mut [PollFd::new(&stdout(), PollFlags::OUT)], None))?;
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Writes a message to standard error in one write, because other processes may write there too.
pub(crate) fn tell(message: &str) {
    tolerate(io::stderr().write_all(message.as_bytes()), "there is no other place to report it");
}

/// Standard output for a verb that continues even if its output cannot be written. Keeps the first error and
/// drops all later output.
#[derive(Debug, Default)]
pub(crate) struct Lasting {
    failed: Option<Errno>,
}

impl Lasting {
    /// Returns the first error. A closed pipe is not an error.
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
