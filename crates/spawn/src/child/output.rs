//! Reads a child's output and writes its input in one poll loop.

use super::Child;
use crate::Error;
use husk_script::sys::Errno;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{read, write};
use std::os::fd::{AsFd, OwnedFd};

/// The least free space for a read. Most programs' output fits the first buffer.
const CHUNK: usize = 4 << 10;

/// This process's ends of a child's pipes.
pub(crate) struct Ends {
    pub(crate) stdin: Option<OwnedFd>,
    /// Standard output and standard error.
    pub(crate) outputs: [Option<OwnedFd>; 2],
}

impl Ends {
    /// Takes the ends from a child.
    pub(crate) fn of(child: &mut Child) -> Self {
        let outputs = [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
        Self { stdin: child.stdin.take().map(OwnedFd::from), outputs }
    }
}

/// Writes `input` and reads all outputs to their ends. No read or write can block: each happens only when the kernel
/// reports that it will not.
pub(crate) fn transfer<const N: usize>(
    to_child: Option<OwnedFd>,
    mut from: [Option<OwnedFd>; N],
    input: &[u8],
) -> Result<[Vec<u8>; N], Error> {
    let mut captured = [const { Vec::new() }; N];
    transfer_all(to_child, &mut from, &mut captured, input)?;
    Ok(captured)
}

/// Like [`transfer`], for any number of outputs.
pub(crate) fn transfer_all(
    mut to_child: Option<OwnedFd>,
    from_child: &mut [Option<OwnedFd>],
    captured: &mut [Vec<u8>],
    mut input: &[u8],
) -> Result<(), Error> {
    for end in to_child.iter().chain(from_child.iter().flatten()) {
        // Only this process's end becomes non-blocking; the child's is another open file.
        fcntl_setfl(end, OFlags::NONBLOCK).map_err(|errno| Error::new("pipe", errno))?;
    }
    loop {
        if input.is_empty() {
            to_child = None;
        }
        let readable = PollFlags::IN;
        let mut polled = Vec::with_capacity(from_child.len() + 1);
        polled.extend(from_child.iter().flatten().map(|end| PollFd::new(end, readable)));
        polled.extend(to_child.iter().map(|end| PollFd::new(end, PollFlags::OUT)));
        if polled.is_empty() {
            return Ok(());
        }
        match poll(&mut polled, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::new("poll", errno)),
        }
        // Reads from all descriptors: EAGAIN costs less than tracking which are ready.
        for (end, captured) in from_child.iter_mut().zip(&mut *captured) {
            if let Some(open) = end
                && drain(open, captured).map_err(|errno| Error::new("read", errno))?
            {
                *end = None;
            }
        }
        if let Some(open) = &to_child {
            input = match write(open, input) {
                Ok(written) => &input[written..],
                Err(Errno::AGAIN | Errno::INTR) => input,
                // The program has closed its end and wants no more input.
                Err(Errno::PIPE) => &[],
                Err(errno) => return Err(Error::new("write", errno)),
            };
        }
    }
}

/// Reads all available output. Returns true at the end of file.
fn drain(end: impl AsFd, captured: &mut Vec<u8>) -> Result<bool, Errno> {
    loop {
        if captured.capacity() - captured.len() < CHUNK {
            // Doubles the buffer, so that much output takes few calls.
            captured.reserve(captured.len().max(2 * CHUNK));
        }
        match read(&end, spare_capacity(captured)) {
            Ok(0) => return Ok(true),
            Ok(_) => {}
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}
