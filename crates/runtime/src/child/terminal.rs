//! The parent's end of the container's terminal.
//!
//! Whoever looks at it is somebody else (`--console-socket`), or it is us, in the foreground: then our own
//! terminal is made raw, so that every key is the container's, and bytes are copied both ways by a
//! [`Relay`]. What is shared with others, our standard streams, is never made non-blocking: that would hold for
//! everybody who has them, the shell too.

use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::sockets::patient::Elsewhere;
use husk_bundle::Container;
use husk_bundle::container::Terminal;
use husk_script::sys::Errno;
use husk_script::sys::tolerate;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, fstat, open};
use rustix::io::{read, retry_on_intr, write};
use rustix::process::getpgrp;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer};
use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::{
    OptionalActions, OutputModes, Termios, Winsize, isatty, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr,
    tcsetwinsize,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic;
use std::path::Path;

/// Whether we stay for as long as the container does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stay {
    /// We do.
    Foreground,
    /// We go when it is created or started.
    Detached,
}

/// Where the container's terminal goes.
pub(crate) enum Console {
    /// There is none.
    Absent,
    /// To whoever listens at `--console-socket`.
    Elsewhere(Elsewhere),
    /// To us, who have it once the container's process has made it.
    Here(Option<Relay>),
}

impl Console {
    /// Looks whether what is asked for makes sense, and connects, before there is a container.
    pub(crate) fn of(
        socket: Option<&Path>,
        container: &Container,
        stay: Stay,
        interrupt: &Interrupt,
    ) -> Result<Self, Error> {
        let terminal = container.process.as_ref().map_or(Terminal::No, |process| process.terminal);
        // The words are runc's.
        match (terminal, stay, socket) {
            (Terminal::No, _, None) => Ok(Self::Absent),
            (Terminal::Yes(_), Stay::Foreground, None) => Ok(Self::Here(None)),
            (Terminal::Yes(_), Stay::Detached, None) => {
                Err(Error::State("cannot allocate tty if husk will detach without setting console socket"))
            }
            (Terminal::Yes(_), Stay::Detached, Some(path)) => {
                Elsewhere::connect("--console-socket: connect", path, interrupt).map(Self::Elsewhere)
            }
            (_, _, Some(_)) => {
                Err(Error::State("cannot use console socket if husk will not detach or allocate tty"))
            }
        }
    }

    /// Takes the terminal that the container's process has made.
    pub(crate) fn receive(&mut self, master: OwnedFd, interrupt: &Interrupt) -> Result<(), Error> {
        /// The name that goes with it, as runc has it; receivers show it to people at most.
        const NAME: &[u8] = b"/dev/pts/ptmx";
        match self {
            Self::Absent => Err(Error::State("a terminal came that nobody asked for")),
            Self::Elsewhere(socket) => {
                socket.send("--console-socket: send the terminal to", NAME, &master, interrupt)
            }
            Self::Here(relay) => {
                *relay = Some(Relay::new(master).map_err(|errno| Error::kernel("take the terminal", errno))?);
                Ok(())
            }
        }
    }

    /// What is to be looked after in the foreground.
    pub(crate) fn relay(self) -> Option<Relay> {
        match self {
            Self::Here(relay) => relay,
            _ => None,
        }
    }
}

/// Makes standard input raw and returns how it was, unless it is no terminal, or another job's at the moment.
fn make_raw() -> Option<Termios> {
    let before = tcgetattr(stdin()).ok().filter(|_| is_in_front())?;
    let mut raw = before.clone();
    raw.make_raw();
    // As runc: lines still end as this terminal wants it, because the container's adds nothing.
    raw.output_modes |= before.output_modes & OutputModes::OPOST;
    tcsetattr(stdin(), OptionalActions::Now, &raw).ok()?;
    Some(before)
}

/// Whether standard input is ours to set. Where there is no job control it is.
fn is_in_front() -> bool {
    tcgetpgrp(stdin()).map_or(true, |front| front == getpgrp())
}

fn restore(before: &Termios) {
    if is_in_front() {
        tolerate(tcsetattr(stdin(), OptionalActions::Now, before), "the terminal may be gone");
    }
}

/// The size of our own terminal, whichever standard stream it is.
fn our_size() -> Option<Winsize> {
    let sizes = [stdin(), stdout(), stderr()].into_iter().filter_map(|stream| tcgetwinsize(stream).ok());
    // One that nobody has set says nothing.
    sizes.into_iter().find(|size| size.ws_row != 0 && size.ws_col != 0)
}

/// Bytes on their way.
struct Buffer {
    bytes: Box<[u8; Self::SIZE]>,
    start: usize,
    end: usize,
}

impl Buffer {
    /// As much as the line discipline holds, and as a pipe takes at once when it is said to be writable.
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

    /// Reads once. Only while it is empty.
    fn fill(&mut self, from: impl AsFd) -> Result<usize, Errno> {
        let length = retry_on_intr(|| read(&from, &mut self.bytes[..]))?;
        (self.start, self.end) = (0, length);
        Ok(length)
    }

    /// Writes once.
    fn pour(&mut self, to: impl AsFd) -> Result<(), Errno> {
        self.start += retry_on_intr(|| write(&to, &self.bytes[self.start..self.end]))?;
        Ok(())
    }
}

/// Where the container's output goes: our standard output.
struct Sink {
    fd: OwnedFd,
    /// Whether a write never waits, or only after the kernel said that there is room.
    never_waits: bool,
}

impl Sink {
    fn new() -> Result<Self, Errno> {
        let kind = FileType::from_raw_mode(fstat(stdout())?.st_mode);
        if kind == FileType::Fifo || isatty(stdout()) {
            let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            // Opened once more it does not wait, and nobody else is concerned. Not everybody may.
            return match open("/proc/self/fd/1", flags, Mode::empty()) {
                Ok(fd) => Ok(Self { fd, never_waits: true }),
                Err(_) => Ok(Self { fd: rustix::io::fcntl_dupfd_cloexec(stdout(), 3)?, never_waits: false }),
            };
        }
        let never_waits = kind != FileType::Socket;
        Ok(Self { fd: rustix::io::fcntl_dupfd_cloexec(stdout(), 3)?, never_waits })
    }
}

/// Something that the relay waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Our standard input.
    Input,
    /// The container's terminal.
    Master,
    /// Our standard output.
    Output,
}

/// Copies between our standard streams and the container's terminal, which it holds.
pub(crate) struct Relay {
    /// How our own terminal was before it became raw.
    before: Option<Termios>,
    /// Gone when nobody can see any more what the container prints: it then finds its terminal hung up.
    master: Option<OwnedFd>,
    /// The other end, while the program holds none: otherwise the terminal would be hung up, for as long as
    /// the program does not open it again, and a hang-up is never over for who polls.
    held: Option<OwnedFd>,
    input: Buffer,
    input_state: Input,
    output: Buffer,
    sink: Sink,
}

/// What there is to be read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Input {
    /// What comes.
    Open,
    /// Nothing for now: another job has our terminal.
    Elsewhere,
    /// Nothing any more.
    Ended,
}

impl Relay {
    fn new(master: OwnedFd) -> Result<Self, Errno> {
        // The other end's settings, which both see. As runc: what the program prints arrives as printed.
        let mut modes = tcgetattr(&master)?;
        modes.output_modes.remove(OutputModes::ONLCR);
        tcsetattr(&master, OptionalActions::Now, &modes)?;
        // Nobody else has this one: the container's process closes its copy.
        fcntl_setfl(&master, fcntl_getfl(&master)? | OFlags::NONBLOCK)?;
        let mut relay = Self {
            before: None,
            master: Some(master),
            held: None,
            input: Buffer::new(),
            input_state: Input::Open,
            output: Buffer::new(),
            sink: Sink::new()?,
        };
        relay.come_forward();
        Ok(relay)
    }

    /// Takes our terminal, if we may: at the beginning, and when we are continued after a stop.
    pub(crate) fn come_forward(&mut self) {
        let found = make_raw();
        self.input_state = match self.input_state {
            Input::Ended => Input::Ended,
            _ if found.is_none() && isatty(stdin()) => Input::Elsewhere,
            _ => Input::Open,
        };
        // What it was the first time is what it will be again.
        if let (None, Some(before)) = (&self.before, found) {
            self.before = Some(before.clone());
            // A panic aborts, and nothing would be dropped.
            let say = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                restore(&before);
                say(info);
            }));
        }
        self.resize();
    }

    /// Gives the container's terminal the size of ours.
    pub(crate) fn resize(&self) {
        if let (Some(master), Some(size)) = (&self.master, our_size()) {
            tolerate(tcsetwinsize(master, size), "the other end of the terminal may be closed");
        }
    }

    /// What to wait for.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (End, BorrowedFd<'_>, PollFlags)> {
        let nothing = PollFlags::empty();
        let when = |wanted: bool, flag| if wanted { flag } else { nothing };
        let is_there = self.master.is_some();
        let input = when(is_there && self.input_state == Input::Open && self.input.is_empty(), PollFlags::IN);
        let output = when(is_there && !self.output.is_empty(), PollFlags::OUT);
        let master =
            when(self.output.is_empty(), PollFlags::IN) | when(!self.input.is_empty(), PollFlags::OUT);
        let master_fd = self.master.as_ref().map(|fd| (End::Master, fd.as_fd(), master));
        let ends = [
            Some((End::Input, stdin(), input)),
            master_fd,
            Some((End::Output, self.sink.fd.as_fd(), output)),
        ];
        // What is waited for in no way must not be polled: a hang-up is always told.
        ends.into_iter().flatten().filter(move |(.., flags)| *flags != nothing)
    }

    /// Copies what can be copied at this end without waiting.
    pub(crate) fn turn(&mut self, end: End, events: PollFlags) {
        match end {
            End::Input => self.take_input(),
            End::Output => self.give_output(),
            End::Master => {
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
            // A terminal that has become another job's, for we hold SIGTTIN back; or one that is gone.
            Err(Errno::IO) if isatty(stdin()) => self.input_state = Input::Elsewhere,
            Err(_) => self.input_state = Input::Ended,
        }
    }

    fn give_input(&mut self) {
        let Some(master) = &self.master else { return self.input.clear() };
        match self.input.pour(master) {
            Ok(()) | Err(Errno::AGAIN) => {}
            // Nobody has the terminal open, so nobody will read it.
            Err(_) => self.input.clear(),
        }
    }

    fn take_output(&mut self) -> Taken {
        let Some(master) = &self.master else { return Taken::End };
        match self.output.fill(master) {
            Ok(0) => Taken::End,
            Ok(_) => Taken::Bytes,
            Err(Errno::AGAIN) => Taken::Nothing,
            // EIO: nobody has the other end open.
            Err(_) => Taken::End,
        }
    }

    fn give_output(&mut self) {
        match self.output.pour(&self.sink.fd) {
            Ok(()) | Err(Errno::AGAIN) => {}
            // Nobody sees it any more, so the terminal is hung up.
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

    /// After the program has ended: copies what it left, to the last byte, unless `interrupt` becomes
    /// readable before.
    pub(crate) fn drain(mut self, interrupt: BorrowedFd<'_>) -> Result<(), Errno> {
        // From here on the end is one.
        self.held = None;
        loop {
            if self.output.is_empty() && self.take_output() != Taken::Bytes {
                // All that was printed by who has ended is here by now: the kernel hands it over before it
                // says that there is nothing (drivers/tty/n_tty.c, `n_tty_read`).
                return Ok(());
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

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            restore(before);
        }
    }
}

/// What there was to read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    Bytes,
    Nothing,
    End,
}
