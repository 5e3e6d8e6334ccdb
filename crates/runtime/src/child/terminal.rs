//! The parent's end of the container's terminal.
//!
//! Either another program receives it (`--console-socket`), or husk keeps it in the foreground. Then husk makes its own
//! terminal raw, so that every key reaches the container, and a [`Relay`] copies bytes both ways. husk never makes its
//! standard streams non-blocking: that would affect every process that shares them, the shell included.

use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::sockets::patient::PeerSocket;
use husk_bundle::Container;
use husk_bundle::container::Terminal;
use husk_script::sys::Errno;
use husk_script::sys::tolerate;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, fstat, open};
use rustix::io::{read, retry_on_intr, write};
use rustix::process::getpgrp;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer};
use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::{
    LocalModes, OptionalActions, OutputModes, Termios, Winsize, isatty, tcgetattr, tcgetpgrp, tcgetwinsize,
    tcsetattr, tcsetwinsize,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic;
use std::path::Path;
use std::time::{Duration, Instant};

/// Whether this process stays until the container ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stay {
    Foreground,
    /// It exits when the container is created or started.
    Detached,
}

/// The receiver of the container's terminal.
pub(crate) enum Console {
    /// The container has no terminal.
    Absent,
    /// The program that listens at `--console-socket`.
    PeerSocket(PeerSocket),
    /// This process. `None` until the container's process has made the terminal.
    Here(Option<Relay>),
}

impl Console {
    /// Checks that the options fit together, and connects to the socket. Called before anything of the container is
    /// made.
    pub(crate) fn of(
        socket: Option<&Path>,
        container: &Container,
        stay: Stay,
        interrupt: &Interrupt,
    ) -> Result<Self, Error> {
        let terminal = container.process.as_ref().map_or(Terminal::No, |process| process.terminal);
        // These messages are worded as runc's.
        match (terminal, stay, socket) {
            (Terminal::No, _, None) => Ok(Self::Absent),
            (Terminal::Yes(_), Stay::Foreground, None) if can_have_input() => Ok(Self::Here(None)),
            (Terminal::Yes(_), Stay::Foreground, None) => Err(Error::NoTerminal),
            (Terminal::Yes(_), Stay::Detached, None) => {
                let condition = "detach without setting console socket";
                Err(Error::TerminalMode { refused: "cannot allocate tty", condition })
            }
            (Terminal::Yes(_), Stay::Detached, Some(path)) => {
                PeerSocket::connect("--console-socket: connect", path, interrupt).map(Self::PeerSocket)
            }
            (_, _, Some(_)) => {
                let condition = "not detach or allocate tty";
                Err(Error::TerminalMode { refused: "cannot use console socket", condition })
            }
        }
    }

    /// Takes the terminal that the container's process has made.
    pub(crate) fn receive(&mut self, master: OwnedFd, interrupt: &Interrupt) -> Result<(), Error> {
        /// The text that runc sends with the descriptor. Receivers at most display it.
        const NAME: &[u8] = b"/dev/pts/ptmx";
        match self {
            Self::Absent => {
                Err(Error::State("the container's process sent a terminal that was not requested"))
            }
            Self::PeerSocket(socket) => {
                socket.send("--console-socket: send the terminal to", NAME, &master, interrupt)
            }
            Self::Here(relay) => {
                *relay = Some(Relay::new(master).map_err(|errno| Error::kernel("take the terminal", errno))?);
                Ok(())
            }
        }
    }

    /// Returns the relay, if the terminal is this process's to copy.
    pub(crate) fn relay(self) -> Option<Relay> {
        match self {
            Self::Here(relay) => relay,
            _ => None,
        }
    }
}

/// Whether input could come: from this process's terminal, even if all standard streams lead elsewhere, or from another
/// program. Otherwise a shell would wait forever.
fn can_have_input() -> bool {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let is_other_program = || {
        let file_type = fstat(stdin()).map(|found| FileType::from_raw_mode(found.st_mode));
        matches!(file_type, Ok(FileType::Fifo | FileType::Socket))
    };
    [stdin(), stdout(), stderr()].into_iter().any(isatty)
        || is_other_program()
        || open("/dev/tty", flags, Mode::empty()).is_ok()
}

/// Makes standard input raw and returns its previous settings. Does nothing if it is not a terminal or another job has
/// it.
fn make_raw() -> Option<Termios> {
    let before = tcgetattr(stdin()).ok().filter(|_| is_in_front())?;
    let mut raw = before.clone();
    raw.make_raw();
    // As in runc, this terminal still converts line ends, because the container's does not.
    raw.output_modes |= before.output_modes & OutputModes::OPOST;
    tcsetattr(stdin(), OptionalActions::Now, &raw).ok()?;
    Some(before)
}

/// Returns whether this process may set standard input: its job is in the foreground, or job control is off.
fn is_in_front() -> bool {
    tcgetpgrp(stdin()).map_or(true, |front| front == getpgrp())
}

fn restore(before: &Termios) {
    if is_in_front() {
        tolerate(tcsetattr(stdin(), OptionalActions::Now, before), "the terminal may be gone");
    }
}

/// Returns the size of this process's terminal, whichever standard stream it is.
fn our_size() -> Option<Winsize> {
    let sizes = [stdin(), stdout(), stderr()].into_iter().filter_map(|stream| tcgetwinsize(stream).ok());
    // Zeros mean that the size was never set.
    sizes.into_iter().find(|size| size.ws_row != 0 && size.ws_col != 0)
}

/// Bytes that are read and not yet written.
struct Buffer {
    bytes: Box<[u8; Self::SIZE]>,
    start: usize,
    end: usize,
}

impl Buffer {
    /// The size of the line discipline's buffer. A pipe that polls as writable takes this much at once.
    const SIZE: usize = 4096;

    fn new() -> Self {
        Self { bytes: Box::new([0; Self::SIZE]), start: 0, end: 0 }
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// Fills the buffer, which must be empty, with one read.
    fn fill(&mut self, from: impl AsFd) -> Result<usize, Errno> {
        let length = retry_on_intr(|| read(&from, &mut self.bytes[..]))?;
        (self.start, self.end) = (0, length);
        Ok(length)
    }

    /// Writes as much of the buffer as one write takes.
    fn pour(&mut self, to: impl AsFd) -> Result<(), Errno> {
        self.start += retry_on_intr(|| write(&to, &self.bytes[self.start..self.end]))?;
        Ok(())
    }
}

/// This process's standard output, which receives the container's output.
struct Sink {
    fd: OwnedFd,
    /// Whether writes never block. Otherwise they may, unless poll(2) has reported room.
    never_waits: bool,
    is_terminal: bool,
}

impl Sink {
    fn new() -> Result<Self, Errno> {
        let kind = FileType::from_raw_mode(fstat(stdout())?.st_mode);
        let is_terminal = isatty(stdout());
        if kind == FileType::Fifo || is_terminal {
            let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            // Opened again, it can be non-blocking without affecting other processes. The open may not be permitted.
            if let Ok(fd) = open("/proc/self/fd/1", flags, Mode::empty()) {
                return Ok(Self { fd, never_waits: true, is_terminal });
            }
        }
        let never_waits = !is_terminal && kind != FileType::Fifo && kind != FileType::Socket;
        let fd = rustix::io::fcntl_dupfd_cloexec(stdout(), 3)?;
        Ok(Self { fd, never_waits, is_terminal })
    }
}

/// A descriptor that the relay polls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RelayEvent {
    /// This process's standard input.
    Input,
    /// The container's terminal.
    Master,
    /// This process's standard output.
    Output,
}

/// Copies between this process's standard streams and the container's terminal, which it owns.
pub(crate) struct Relay {
    /// The settings of this process's terminal before it became raw.
    before: Option<Termios>,
    /// `None` once the output can no longer be written: the container then finds its terminal hung up.
    master: Option<OwnedFd>,
    /// The other end, held open while the program does not. Otherwise the terminal would stay hung up until the program
    /// opens it again, and poll(2) would report that without end.
    held: Option<OwnedFd>,
    input: Buffer,
    input_state: Input,
    output: Buffer,
    sink: Sink,
    /// The time at which output was last written to a terminal.
    written: Option<Instant>,
}

/// How long this process stays after it has written output to a terminal.
const LINGER: Duration = Duration::from_millis(20);

/// Returns how much longer this process stays.
fn lingers(written: Option<Instant>, now: Instant) -> Option<Duration> {
    LINGER.checked_sub(now.duration_since(written?)).filter(|rest| !rest.is_zero())
}

/// Whether standard input is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Input {
    /// It is read.
    Open,
    /// It is not read now, because another job has this process's terminal.
    OtherJob,
    /// It has ended.
    Ended,
}

impl Relay {
    fn new(master: OwnedFd) -> Result<Self, Errno> {
        // These settings apply to both ends. As in runc, the program's output arrives unchanged.
        let mut modes = tcgetattr(&master)?;
        modes.output_modes.remove(OutputModes::ONLCR);
        if !isatty(stdin()) {
            // Nobody types the input, so its echo would only be mixed with the output.
            modes.local_modes.remove(LocalModes::ECHO);
        }
        tcsetattr(&master, OptionalActions::Now, &modes)?;
        // No other process shares this descriptor: the container's process closes its copy.
        fcntl_setfl(&master, fcntl_getfl(&master)? | OFlags::NONBLOCK)?;
        let mut relay = Self {
            before: None,
            master: Some(master),
            held: None,
            input: Buffer::new(),
            input_state: Input::Open,
            output: Buffer::new(),
            sink: Sink::new()?,
            written: None,
        };
        relay.come_forward();
        Ok(relay)
    }

    /// Makes this process's terminal raw if possible: at the start, and when a stopped husk continues.
    pub(crate) fn come_forward(&mut self) {
        let found = make_raw();
        self.input_state = match self.input_state {
            Input::Ended => Input::Ended,
            _ if found.is_none() && isatty(stdin()) => Input::OtherJob,
            _ => Input::Open,
        };
        // The settings that were found first are the ones to restore.
        if let (None, Some(before)) = (&self.before, found) {
            self.before = Some(before.clone());
            // A panic aborts, so nothing would be dropped.
            let say = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                restore(&before);
                say(info);
            }));
        }
        self.resize();
    }

    /// Gives the container's terminal the size of this process's.
    pub(crate) fn resize(&self) {
        if let (Some(master), Some(size)) = (&self.master, our_size()) {
            tolerate(tcsetwinsize(master, size), "the other end of the terminal may be closed");
        }
    }

    /// Returns the descriptors to poll, with their events.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (RelayEvent, BorrowedFd<'_>, PollFlags)> {
        let nothing = PollFlags::empty();
        let when = |wanted: bool, flag| if wanted { flag } else { nothing };
        let is_there = self.master.is_some();
        let input = when(is_there && self.input_state == Input::Open && self.input.is_empty(), PollFlags::IN);
        let output = when(is_there && !self.output.is_empty(), PollFlags::OUT);
        let master =
            when(self.output.is_empty(), PollFlags::IN) | when(!self.input.is_empty(), PollFlags::OUT);
        let master_fd = self.master.as_ref().map(|fd| (RelayEvent::Master, fd.as_fd(), master));
        let ends = [
            Some((RelayEvent::Input, stdin(), input)),
            master_fd,
            Some((RelayEvent::Output, self.sink.fd.as_fd(), output)),
        ];
        // A descriptor without events must not be polled, because poll(2) always reports hang-ups.
        ends.into_iter().flatten().filter(move |(.., flags)| *flags != nothing)
    }

    /// Copies what can be copied at this end without blocking.
    pub(crate) fn turn(&mut self, end: RelayEvent, events: PollFlags) {
        match end {
            RelayEvent::Input => self.take_input(),
            RelayEvent::Output => self.give_output(),
            RelayEvent::Master => {
                if !self.input.is_empty() && events.contains(PollFlags::OUT) {
                    self.give_input();
                }
                if self.output.is_empty() && self.take_output() == Taken::Bytes && self.sink.never_waits {
                    self.give_output();
                }
                if events.contains(PollFlags::HUP) {
                    self.hold();
                }
            }
        }
    }

    fn take_input(&mut self) {
        match self.input.fill(stdin()) {
            Ok(0) => self.input_state = Input::Ended,
            Ok(_) => self.give_input(),
            Err(Errno::AGAIN) => {}
            // EIO on a terminal: another job has it, and SIGTTIN is blocked. Otherwise it is gone.
            Err(Errno::IO) if isatty(stdin()) => self.input_state = Input::OtherJob,
            Err(_) => self.input_state = Input::Ended,
        }
    }

    fn give_input(&mut self) {
        let Some(master) = &self.master else { return self.input.clear() };
        match self.input.pour(master) {
            Ok(()) | Err(Errno::AGAIN) => {}
            // No process has the terminal open to read it.
            Err(_) => self.input.clear(),
        }
    }

    fn take_output(&mut self) -> Taken {
        let Some(master) = &self.master else { return Taken::End };
        match self.output.fill(master) {
            Ok(0) => Taken::End,
            Ok(_) => Taken::Bytes,
            Err(Errno::AGAIN) => Taken::Nothing,
            // EIO: no process has the other end open.
            Err(_) => Taken::End,
        }
    }

    fn give_output(&mut self) {
        match self.output.pour(&self.sink.fd) {
            Ok(()) => self.written = self.sink.is_terminal.then(Instant::now),
            Err(Errno::AGAIN) => {}
            // The output has no reader any more, so the terminal is hung up.
            Err(_) => {
                self.output.clear();
                self.master = None;
            }
        }
    }

    fn hold(&mut self) {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        match self.master.as_ref().map(|master| ioctl_tiocgptpeer(master, flags)) {
            Some(Ok(slave)) => self.held = Some(slave),
            Some(Err(_)) => self.master = None,
            None => {}
        }
    }

    /// Copies the output that the ended program has left, to the last byte, unless `interrupt` becomes readable first.
    pub(crate) fn drain(mut self, interrupt: BorrowedFd<'_>) -> Result<(), Errno> {
        // From here on a hang-up is the end of the output.
        self.held = None;
        loop {
            if self.output.is_empty() && self.take_output() != Taken::Bytes {
                // All output of processes that have ended is read. The kernel delivers it before it reports that there
                // is none (drivers/tty/n_tty.c, `n_tty_read`).
                return self.linger(interrupt);
            }
            if self.sink.never_waits {
                self.give_output();
            }
            if !self.output.is_empty() {
                let mut polled = [
                    PollFd::new(&self.sink.fd, PollFlags::OUT),
                    PollFd::from_borrowed_fd(interrupt, PollFlags::IN),
                ];
                retry_on_intr(|| poll(&mut polled, None))?;
                if !polled[1].revents().is_empty() {
                    return Ok(());
                }
                if !polled[0].revents().is_empty() {
                    self.give_output();
                }
            }
        }
    }
}

impl Relay {
    /// Gives the reader of this process's terminal time to read the last output. CRI-O closes the terminal of an `exec`
    /// as soon as the runtime exits, and loses what it has not read by then (cri-o issue 8483). runc is too slow for
    /// most of these losses. No call reports when the other end of a pseudoterminal has been read.
    fn linger(&self, interrupt: BorrowedFd<'_>) -> Result<(), Errno> {
        let Some(rest) = lingers(self.written, Instant::now()) else { return Ok(()) };
        let rest = Timespec { tv_sec: 0, tv_nsec: rest.subsec_nanos().into() };
        let mut polled = [PollFd::from_borrowed_fd(interrupt, PollFlags::IN)];
        match poll(&mut polled, Some(&rest)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            restore(before);
        }
    }
}

/// The result of reading from the terminal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    Bytes,
    Nothing,
    End,
}

#[cfg(test)]
mod tests {
    use super::{LINGER, lingers};
    use std::time::{Duration, Instant};

    #[test]
    fn only_recent_output_delays_the_exit() {
        let now = Instant::now();
        let half = LINGER / 2;
        assert_eq!(lingers(None, now), None);
        assert_eq!(lingers(Some(now), now), Some(LINGER));
        assert_eq!(lingers(Some(now), now + half), Some(LINGER - half));
        assert_eq!(lingers(Some(now), now + LINGER), None);
        assert_eq!(lingers(Some(now), now + LINGER + Duration::from_secs(1)), None);
    }
}
