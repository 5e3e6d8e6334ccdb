//! The three standard streams of a child.

use super::fds::{self, Mapping};
use crate::Error;
use crate::memory::writer::Writer;
use husk_script::sys::Fd;
use husk_script::sys::file::{Mode, OFlags};
use husk_script::{Handle, Step};
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::OwnedFd;
use std::process::{ChildStderr, ChildStdin, ChildStdout};

/// What a standard stream of the program is.
#[derive(Debug)]
pub struct Stdio(pub(crate) Kind);

#[derive(Debug)]
pub(crate) enum Kind {
    Inherit,
    Null,
    Piped,
    Fd(OwnedFd),
}

impl Stdio {
    /// The parent's own.
    #[must_use]
    pub fn inherit() -> Self {
        Self(Kind::Inherit)
    }

    /// `/dev/null`.
    #[must_use]
    pub fn null() -> Self {
        Self(Kind::Null)
    }

    /// A pipe, whose other end is in the [`Child`](crate::Child).
    #[must_use]
    pub fn piped() -> Self {
        Self(Kind::Piped)
    }
}

impl<T: Into<OwnedFd>> From<T> for Stdio {
    /// A file, a socket, the pipe of another child: anything that owns a descriptor.
    fn from(fd: T) -> Self {
        Self(Kind::Fd(fd.into()))
    }
}

/// The streams of a command that sets none: inherited, or piped for
/// [`output`](crate::Command::output).
#[derive(Clone, Copy)]
pub(crate) enum Unset {
    Inherit,
    Capture,
    /// As `Capture`, and standard input is ours to write, whatever the command says.
    FeedAndCapture,
}

impl Unset {
    fn kind(self, stream: Fd) -> &'static Kind {
        match self {
            Self::Inherit => &Kind::Inherit,
            Self::Capture if stream == Fd::STDIN => &Kind::Null,
            Self::Capture | Self::FeedAndCapture => &Kind::Piped,
        }
    }
}

/// Both ends of the pipes of one child.
#[derive(Default)]
pub(crate) struct Pipes {
    /// Ours.
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: Option<ChildStdout>,
    pub(crate) stderr: Option<ChildStderr>,
    /// The child's, closed here once it exists.
    theirs: [Option<OwnedFd>; 3],
}

impl Pipes {
    /// Makes the pipes that `streams` ask for.
    pub(crate) fn open(streams: &[Option<Stdio>; 3], unset: Unset) -> Result<Self, Error> {
        let mut pipes = Self::default();
        for (index, stream) in STREAMS.into_iter().enumerate() {
            if !matches!(kind(&streams[index], unset, stream), Kind::Piped) {
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

    /// Writes down what each stream is made from, and opens `/dev/null` in the child where one is.
    pub(crate) fn map(
        &self,
        streams: &[Option<Stdio>; 3],
        unset: Unset,
        mappings: &mut Vec<Mapping>,
        writer: &mut Writer<'_>,
    ) -> Result<(), Error> {
        // An open file could get a number that is wanted for something else; so it is moved out of
        // the way at once.
        let above = fds::above(mappings);
        let mut null = None;
        for (index, to) in STREAMS.into_iter().enumerate() {
            let from = match kind(&streams[index], unset, to) {
                Kind::Inherit => continue,
                Kind::Fd(fd) => Handle::Number(Fd::of(fd)),
                Kind::Piped => {
                    self.theirs[index].as_ref().map_or(Handle::Number(to), |end| Fd::of(end).into())
                }
                Kind::Null => match null {
                    Some(handle) => handle,
                    None => *null.insert(open_null(above, writer)?),
                },
            };
            mappings.push(Mapping { from, to });
        }
        Ok(())
    }

    /// Closes the child's ends, which it now has itself.
    pub(crate) fn close_theirs(&mut self) {
        self.theirs = Default::default();
    }
}

const STREAMS: [Fd; 3] = [Fd::STDIN, Fd::STDOUT, Fd::STDERR];

fn kind(stream: &Option<Stdio>, unset: Unset, to: Fd) -> &Kind {
    match (unset, stream) {
        (Unset::FeedAndCapture, _) if to == Fd::STDIN => &Kind::Piped,
        (_, Some(stdio)) => &stdio.0,
        (_, None) => unset.kind(to),
    }
}

fn open_null(above: Fd, writer: &mut Writer<'_>) -> Result<Handle, Error> {
    let out = writer.register()?;
    writer.push(Step::Open { path: c"/dev/null", flags: OFlags::RDWR, mode: Mode::empty(), out });
    // Below 3 too, where a parent without standard streams has free numbers.
    writer.push(Step::Dup { from: out.into(), least: above, out });
    Ok(out.into())
}
