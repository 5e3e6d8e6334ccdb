//! Formats the causes of errors in the words that engines look for.

use crate::{FailedHook, words};
use core::fmt::{self, Display, Formatter};
use husk_script::hook::Failed;
use husk_script::sys::Errno;
use std::error::Error;
use std::io;

/// Why an act failed.
///
/// Formats an error of the kernel as Go does, because engines match Go's words.
///
/// ```
/// # use husk_listing::Cause;
/// # use husk_script::sys::Errno;
/// assert_eq!(Cause::from(Errno::NOENT).to_string(), "no such file or directory");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The error of a system call, or the code of a failed hook.
    Errno(Errno),
    /// Any other cause, as a phrase.
    Phrase(String),
}

impl Cause {
    /// Returns the error number, if the cause is one.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Errno(errno) => Some(*errno),
            Self::Phrase(_) => None,
        }
    }
}

impl Display for Cause {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errno(errno) => match Failed::from_errno(*errno) {
                Some(failed) => FailedHook(failed).fmt(f),
                None => match words::of(*errno) {
                    Some(words) => f.write_str(words),
                    None => write!(f, "errno {}", errno.raw_os_error()),
                },
            },
            Self::Phrase(phrase) => f.write_str(phrase),
        }
    }
}

impl Error for Cause {}

impl From<Errno> for Cause {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        Self::from(&error)
    }
}

impl From<&io::Error> for Cause {
    fn from(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(number) => Self::Errno(Errno::from_raw_os_error(number)),
            None => Self::Phrase(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Cause;
    use husk_script::sys::Errno;
    use std::io;

    #[test]
    fn errors_of_the_kernel_are_in_gos_words() {
        let of_io = |number| Cause::from(io::Error::from_raw_os_error(number)).to_string();
        assert_eq!(of_io(13), "permission denied");
        assert_eq!(of_io(17), "file exists");
        assert_eq!(Cause::from(Errno::ISDIR).to_string(), "is a directory");
        assert_eq!(Cause::from(Errno::LOOP).to_string(), "too many levels of symbolic links");
        assert_eq!(Cause::from(Errno::from_raw_os_error(3333)).to_string(), "errno 3333");
    }

    #[test]
    fn other_errors_keep_their_words() {
        let error = io::Error::other("Datei fehlt (os error 2)");
        assert_eq!(Cause::from(error), Cause::Phrase("Datei fehlt (os error 2)".to_owned()));
    }
}
