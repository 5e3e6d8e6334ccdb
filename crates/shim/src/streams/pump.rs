//! Copies bytes from a terminal or pipe without blocking.

use husk_runtime::tolerate;
use rustix::io::{Errno, read, write};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// How much is read at once. A terminal returns at most a page.
const CHUNK: usize = 16 << 10;

#[derive(Debug)]
pub(crate) struct Pump {
    from: OwnedFd,
    to: Sink,
    /// Bytes that were read and not yet written. Empty unless the sink is full.
    rest: Vec<u8>,
    carries: Carries,
    /// Whether the source is a terminal that no process has open.
    is_closed: bool,
    /// Whether the program has ended, so that it cannot open its terminal again.
    is_last: bool,
}

/// The direction, as the program sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carries {
    Input,
    /// It must be complete before the process is deleted.
    Output,
}

#[derive(Debug)]
enum Sink {
    /// A FIFO or terminal, which does not block.
    Stream(OwnedFd),
    /// A log file. If it cannot be written, for example because the disk is full, output is lost.
    File(File),
    Nowhere,
}

/// The event that a pump waits for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// Until there is something to read.
    Input,
    /// Until the sink has room.
    Room,
    /// Until a process opens the terminal again. The kernel reports a hang-up until then.
    Opened,
    /// For nothing: its source has ended or its sink is gone.
    Ended,
}

impl Pump {
    /// Both must not block.
    pub(crate) fn new(from: OwnedFd, to: OwnedFd, carries: Carries) -> Self {
        Self { from, to: Sink::Stream(to), rest: Vec::new(), carries, is_closed: false, is_last: false }
    }

    pub(crate) fn into_file(from: OwnedFd, file: File) -> Self {
        Self { to: Sink::File(file), ..Self::into_nowhere(from) }
    }

    /// Reads and forgets, so that a program whose logger has died is not blocked.
    pub(crate) fn into_nowhere(from: OwnedFd) -> Self {
        let carries = Carries::Output;
        Self { from, to: Sink::Nowhere, rest: Vec::new(), carries, is_closed: false, is_last: false }
    }

    /// Returns the descriptor to poll for input.
    pub(crate) fn source(&self) -> BorrowedFd<'_> {
        self.from.as_fd()
    }

    /// Returns the descriptor to poll for room.
    pub(crate) fn sink(&self) -> Option<BorrowedFd<'_>> {
        match &self.to {
            Sink::Stream(to) => Some(to.as_fd()),
            Sink::File(_) | Sink::Nowhere => None,
        }
    }

    pub(crate) fn carries(&self) -> Carries {
        self.carries
    }

    /// Whether it waits until the sink has room.
    pub(crate) fn is_full(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Whether it waits until a process opens the terminal again.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Ends the pump of a terminal when no process has it open, because its program has ended.
    pub(crate) fn end_when_closed(&mut self) {
        self.is_last = true;
    }

    /// Copies one chunk, or the rest of the last one.
    pub(crate) fn turn(&mut self) -> Waits {
        if !self.rest.is_empty() {
            let rest = std::mem::take(&mut self.rest);
            return self.put(&rest);
        }
        let mut room = [0; CHUNK];
        let result = read(&self.from, &mut room);
        // A terminal whose other side is closed returns EIO. A program may close all its descriptors of the terminal and
        // open it again, as systemd does.
        self.is_closed = result == Err(Errno::IO) && !self.is_last;
        match result {
            Err(Errno::IO) if self.is_closed => Waits::Opened,
            Ok(0) => Waits::Ended,
            Ok(count) => self.put(room.get(..count).unwrap_or_default()),
            Err(Errno::AGAIN | Errno::INTR) => Waits::Input,
            Err(_) => Waits::Ended,
        }
    }

    fn put(&mut self, mut bytes: &[u8]) -> Waits {
        match &mut self.to {
            Sink::Nowhere => Waits::Input,
            Sink::File(file) => {
                tolerate(file.write_all(bytes), "a program must not fail because its log cannot be written");
                Waits::Input
            }
            Sink::Stream(to) => loop {
                match write(&*to, bytes) {
                    Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => {
                        self.rest = bytes.to_vec();
                        return Waits::Room;
                    }
                    Err(_) => return Waits::Ended,
                }
                if bytes.is_empty() {
                    return Waits::Input;
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK, Carries, Pump, Waits};
    use rustix::fs::{OFlags, fcntl_setfl};
    use rustix::io::{read, write};
    use rustix::pipe::pipe;
    use std::fs::File;
    use std::io::Write as _;
    use std::os::fd::OwnedFd;

    fn unblocked() -> (OwnedFd, OwnedFd) {
        let (reader, writer) = pipe().unwrap();
        fcntl_setfl(&reader, OFlags::NONBLOCK).unwrap();
        fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
        (reader, writer)
    }

    #[test]
    fn rest_is_kept_until_the_sink_has_room_and_nothing_more_is_read() {
        let ((from, mut input), (output, to)) = (unblocked(), unblocked());
        while write(&to, &[b'x'; 4096]).is_ok() {}
        let mut pump = Pump::new(from, to, Carries::Output);
        File::from(input.try_clone().unwrap()).write_all(b"abc").unwrap();
        assert_eq!(pump.turn(), Waits::Room);
        assert_eq!(pump.turn(), Waits::Room);
        let mut room = [0; 1 << 20];
        let before = read(&output, &mut room).unwrap();
        assert!(room[..before].iter().all(|byte| *byte == b'x'));
        assert_eq!(pump.turn(), Waits::Input);
        assert_eq!(read(&output, &mut room).unwrap(), 3);
        input = File::from(input).into();
        drop(input);
        assert_eq!(pump.turn(), Waits::Ended);
    }

    #[test]
    fn full_disk_loses_output_and_does_not_block_the_program() {
        let (from, input) = unblocked();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut pump = Pump::into_file(from, full);
        for _ in 0..32 {
            File::from(input.try_clone().unwrap()).write_all(&[0; CHUNK]).unwrap();
            assert_eq!(pump.turn(), Waits::Input);
        }
    }

    #[test]
    fn pump_ends_when_nobody_can_read_its_sink() {
        let ((from, input), (output, to)) = (unblocked(), unblocked());
        drop(output);
        let mut pump = Pump::new(from, to, Carries::Output);
        File::from(input).write_all(b"abc").unwrap();
        assert_eq!(pump.turn(), Waits::Ended);
    }
}
