//! Reads a child's output and writes its input in one poll loop.

use super::{Child, Output};
use crate::Error;
use husk_script::sys::Errno;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{read, write};
use std::os::fd::{AsFd, OwnedFd};

/// The least free space for a read. Most programs' output fits the first buffer.
const CHUNK: usize = 4 << 10;

/// Writes `input`, reads the child's output, and waits for the child. No read or write can block: each
/// happens only when the kernel reports that it will not.
pub(crate) fn output(mut child: Child, mut input: &[u8]) -> Result<Output, Error> {
    let mut to_child = child.stdin.take().map(OwnedFd::from);
    let mut from_child = [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
    let mut captured = [Vec::new(), Vec::new()];
    for end in to_child.iter().chain(from_child.iter().flatten()) {
        // Only this process's end becomes non-blocking; the child's is another open file.
        fcntl_setfl(end, OFlags::NONBLOCK).map_err(|errno| Error::new("pipe", errno))?;
    }
    loop {
        if input.is_empty() {
            to_child = None;
        }
        let readable = PollFlags::IN;
        let mut polled = Vec::with_capacity(3);
        polled.extend(from_child.iter().flatten().map(|end| PollFd::new(end, readable)));
        polled.extend(to_child.iter().map(|end| PollFd::new(end, PollFlags::OUT)));
        if polled.is_empty() {
            break;
        }
        match poll(&mut polled, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::new("poll", errno)),
        }
        // Reads from all descriptors: EAGAIN costs less than tracking which are ready.
        for (end, captured) in from_child.iter_mut().zip(&mut captured) {
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
    let status = child.wait()?;
    let [stdout, stderr] = captured;
    Ok(Output { status, stdout, stderr })
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
