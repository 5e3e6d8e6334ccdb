//! The three standard streams of a child.

use super::fds::{self, FdMapping};
use crate::Error;
use crate::memory::writer::Writer;
use husk_script::sys::Fd;
use husk_script::sys::file::{Mode, OFlags};
use husk_script::{Handle, Step};
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::OwnedFd;
use std::process::{ChildStderr, ChildStdin, ChildStdout};

/// The source or destination of a standard stream of the program.
#[derive(Debug)]
pub struct Stdio(pub(crate) StdioKind);

#[derive(Debug)]
pub(crate) enum StdioKind {
    Inherit,
    Null,
    Piped,
    Fd(OwnedFd),
}

impl Stdio {
    /// Inherits the parent's stream.
    #[must_use]
    pub fn inherit() -> Self {
        Self(StdioKind::Inherit)
    }

    /// Uses `/dev/null`.
    #[must_use]
    pub fn null() -> Self {
        Self(StdioKind::Null)
    }

    /// Creates a pipe whose other end is in the [`Child`](crate::Child).
    #[must_use]
    pub fn piped() -> Self {
        Self(StdioKind::Piped)
    }
}

impl<T: Into<OwnedFd>> From<T> for Stdio {
    /// Uses anything that owns a descriptor: a file, a socket, the pipe of another child.
    fn from(fd: T) -> Self {
        Self(StdioKind::Fd(fd.into()))
    }
}

/// The source of streams that the command does not set.
#[derive(Clone, Copy)]
pub(crate) enum Unset {
    Inherit,
    Capture,
    /// Like `Capture`, but standard input is always a pipe that this process writes to.
    FeedAndCapture,
}

impl Unset {
    fn kind(self, stream: Fd) -> &'static StdioKind {
        match self {
            Self::Inherit => &StdioKind::Inherit,
            Self::Capture if stream == Fd::STDIN => &StdioKind::Null,
            Self::Capture | Self::FeedAndCapture => &StdioKind::Piped,
        }
    }
}

/// Streams of one child that are connected to its neighbours in a pipeline.
pub(crate) type Connected = [Option<OwnedFd>; 3];

/// Both ends of one child's pipes.
#[derive(Default)]
pub(crate) struct Pipes {
    /// This process's ends.
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: Option<ChildStdout>,
    pub(crate) stderr: Option<ChildStderr>,
    /// The child's ends, closed here once it exists.
    theirs: Connected,
}

impl Pipes {
    /// Creates the pipes that `streams` ask for, except for streams that are already connected.
    pub(crate) fn open(
        streams: &[Option<Stdio>; 3],
        unset: Unset,
        connected: Connected,
    ) -> Result<Self, Error> {
        let mut pipes = Self { theirs: connected, ..Self::default() };
        for (index, stream) in STREAMS.into_iter().enumerate() {
            let is_connected = pipes.theirs[index].is_some();
            if is_connected || !matches!(kind(&streams[index], unset, stream), StdioKind::Piped) {
                continue;
            }
            let (reader, writer) =
                pipe_with(PipeFlags::CLOEXEC).map_err(|errno| Error::new("pipe", errno))?;
            pipes.theirs[index] = Some(if stream == Fd::STDIN {
                pipes.stdin = Some(writer.into());
                reader
            } else if stream == Fd::STDOUT {
                pipes.stdout = Some(reader.into());
                writer
            } else {
                pipes.stderr = Some(reader.into());
                writer
            });
        }
        Ok(pipes)
    }

    /// Adds the mapping for each stream, and steps that open `/dev/null` in the child if a stream needs it.
    pub(crate) fn map(
        &self,
        streams: &[Option<Stdio>; 3],
        unset: Unset,
        mappings: &mut Vec<FdMapping>,
        writer: &mut Writer<'_>,
    ) -> Result<(), Error> {
        // A newly opened file could get a number that another mapping wants, so it is moved above them at
        // once.
        let above = fds::above(mappings);
        let mut null = None;
        for (index, to) in STREAMS.into_iter().enumerate() {
            if let Some(end) = &self.theirs[index] {
                mappings.push(FdMapping { from: Fd::of(end).into(), to });
                continue;
            }
            let from = match kind(&streams[index], unset, to) {
                StdioKind::Inherit | StdioKind::Piped => continue,
                StdioKind::Fd(fd) => Handle::Number(Fd::of(fd)),
                StdioKind::Null => match null {
                    Some(handle) => handle,
                    None => *null.insert(open_null(above, writer)?),
                },
            };
            mappings.push(FdMapping { from, to });
        }
        Ok(())
    }

    /// Closes the child's ends, of which the child has copies.
    pub(crate) fn close_theirs(&mut self) {
        self.theirs = Default::default();
    }
}

const STREAMS: [Fd; 3] = [Fd::STDIN, Fd::STDOUT, Fd::STDERR];

fn kind(stream: &Option<Stdio>, unset: Unset, to: Fd) -> &StdioKind {
    match (unset, stream) {
        (Unset::FeedAndCapture, _) if to == Fd::STDIN => &StdioKind::Piped,
        (_, Some(stdio)) => &stdio.0,
        (_, None) => unset.kind(to),
    }
}

fn open_null(above: Fd, writer: &mut Writer<'_>) -> Result<Handle, Error> {
    let out = writer.register()?;
    writer.push(Step::Open { path: c"/dev/null", flags: OFlags::RDWR, mode: Mode::empty(), out });
    // The parent may have no standard streams, so the file may also have a number below 3.
    writer.push(Step::Dup { from: out.into(), least: above, out });
    Ok(out.into())
}
