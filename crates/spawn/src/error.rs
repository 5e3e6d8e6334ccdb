//! The crate's error type and its messages.

use core::fmt::{self, Display, Formatter};
use husk_listing::{Cause, FailedHook};
use husk_script::hook::Failed;
use husk_script::sys::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Why a process could not be started or waited for.
///
/// Formats as the act that failed and the reason:
///
/// ```text
/// exec /no/such: No such file or directory (os error 2)
/// cwd /root: Permission denied (os error 13)
/// uid 1000: killed by signal 9 before exec
/// ```
#[derive(Debug, thiserror::Error)]
#[error("{act}: {reason}")]
pub struct Error {
    act: Box<str>,
    reason: Reason,
    step: Option<usize>,
}

/// Why an act failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The kernel returned an error to the child or the parent.
    Errno(Errno),
    /// A hook ran in the child and failed.
    Hook(Failed),
    /// The child died during the step and never became the program.
    Died(ExitStatus),
    /// A string contains a NUL byte, which C strings cannot.
    Nul,
    /// Settings of the command contradict each other; the text says why.
    Conflict(&'static str),
}

impl Error {
    /// Creates an error, for closures that write steps. `act` is what was attempted.
    pub fn new(act: impl Into<Box<str>>, reason: impl Into<Reason>) -> Self {
        Self { act: act.into(), reason: reason.into(), step: None }
    }

    /// Creates the error of a step that failed in the child.
    pub(crate) fn of_step(step: usize, act: String, reason: Reason) -> Self {
        Self { act: act.into(), reason, step: Some(step) }
    }

    /// Creates an error about a path or another operand, which may be any bytes.
    pub(crate) fn about(act: &str, operand: &OsStr, reason: impl Into<Reason>) -> Self {
        Self::new(format!("{act} {}", operand.display()), reason)
    }

    /// Creates an error from one that std reports.
    pub(crate) fn from_io(act: impl Into<Box<str>>, error: &io::Error) -> Self {
        Self::new(act, Errno::from_io_error(error).unwrap_or(Errno::IO))
    }

    /// Returns the act that failed, as listings print it: `exec /no/such`.
    #[must_use]
    pub fn act(&self) -> &str {
        &self.act
    }

    /// Returns the index of the step that failed; `None` if the parent failed.
    #[must_use]
    pub fn step(&self) -> Option<usize> {
        self.step
    }

    /// Returns why the act failed.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Returns the kernel's error number, if the kernel returned one.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        match self.reason {
            Reason::Errno(errno) => Some(errno.raw_os_error()),
            _ => None,
        }
    }

    /// Returns the kind of error, as std names it.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match self.reason {
            Reason::Errno(errno) => errno.kind(),
            Reason::Died(_) | Reason::Hook(_) => io::ErrorKind::Other,
            Reason::Nul | Reason::Conflict(_) => io::ErrorKind::InvalidInput,
        }
    }
}

impl Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errno(errno) => io::Error::from(*errno).fmt(f),
            Self::Hook(failed) => FailedHook(*failed).fmt(f),
            Self::Died(status) => match status.signal() {
                Some(signal) => write!(f, "killed by signal {signal} before exec"),
                None => write!(f, "{status} before exec"),
            },
            Self::Nul => f.write_str("contains a NUL byte"),
            Self::Conflict(why) => f.write_str(why),
        }
    }
}

impl From<Errno> for Reason {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

/// For husk's own messages, which word the kernel's errors as Go does.
impl From<Reason> for Cause {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Errno(errno) => errno.into(),
            other => Self::Phrase(other.to_string()),
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}
