//! Settings: what is written to which file of a cgroup, and what may come of it.
//!
//! Resources become a flat list of these, where everything is decided; then one loop writes them
//! below one descriptor of a directory. The list prints as text, which is what tests compare.

pub(crate) mod convert;
pub(crate) mod v1;
pub(crate) mod v2;

use crate::error::{Error, Field, Hint, Warning};
use crate::files;
use core::fmt::{self, Display, Formatter};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::borrow::Cow;

/// One thing to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// When it is written.
    pub(crate) phase: Phase,
    /// What asks for it.
    pub(crate) field: Field,
    /// The file below the cgroup.
    pub(crate) file: Cow<'static, str>,
    /// What is written to it, each line by itself.
    pub(crate) value: String,
    /// What if the file is not there.
    pub(crate) missing: Missing,
    /// What if the kernel takes it otherwise than at once.
    pub(crate) manner: Manner,
}

/// What becomes of a setting whose file is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It is an error.
    Error,
    /// Nothing: it would have no effect.
    Ignore,
    /// The caller is told.
    Warn(&'static str),
    /// This is written instead.
    Instead(&'static str, String),
}

/// How a setting is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Once.
    Once,
    /// If the kernel says that it does not go with others, which are written after it, then once
    /// more after these.
    Retry,
    /// And read back, because the kernel takes the nearest value that it likes.
    Verify,
}

/// When settings are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Before there is a process.
    Early,
    /// When the process is about to run its program: what would slow down, stop or kill one that is
    /// still being set up.
    Late,
}

impl Setting {
    /// A setting that is written before there is a process.
    pub(crate) fn early(
        field: impl Into<Field>,
        file: impl Into<Cow<'static, str>>,
        value: impl ToString,
    ) -> Self {
        Self::new(Phase::Early, field, file, value)
    }

    /// A setting that is written when the process is about to run its program.
    pub(crate) fn late(
        field: impl Into<Field>,
        file: impl Into<Cow<'static, str>>,
        value: impl ToString,
    ) -> Self {
        Self::new(Phase::Late, field, file, value)
    }

    fn new(
        phase: Phase,
        field: impl Into<Field>,
        file: impl Into<Cow<'static, str>>,
        value: impl ToString,
    ) -> Self {
        let (field, file, value) = (field.into(), file.into(), value.to_string());
        Self { phase, field, file, value, missing: Missing::Error, manner: Manner::Once }
    }

    pub(crate) fn missing(self, missing: Missing) -> Self {
        Self { missing, ..self }
    }

    pub(crate) fn manner(self, manner: Manner) -> Self {
        Self { manner, ..self }
    }

    fn error(&self, file: &str, value: &str, source: Errno) -> Error {
        Error::Set { field: self.field.clone(), file: file.to_owned(), value: value.to_owned(), source }
    }

    /// Writes it. `hint` says why a file is not there.
    fn write(
        &self,
        directory: BorrowedFd<'_>,
        hint: &dyn Fn(&str) -> Option<(String, Hint)>,
        warnings: &mut Vec<Warning>,
    ) -> Result<(), Error> {
        let errno = match files::write_lines(directory, &self.file, &self.value) {
            Ok(()) => return Ok(()),
            Err(errno) => errno,
        };
        if errno != Errno::NOENT {
            return Err(self
                .in_use(directory, errno)
                .unwrap_or_else(|| self.error(&self.file, &self.value, errno)));
        }
        match &self.missing {
            Missing::Ignore => Ok(()),
            Missing::Warn(text) => {
                warnings.push(Warning::new(self.field.clone(), *text));
                Ok(())
            }
            Missing::Instead(other, value) => match files::write_lines(directory, other, value) {
                Ok(()) => Ok(()),
                Err(Errno::NOENT) => Err(self.absent(other, value, hint)),
                Err(errno) => Err(self.error(other, value, errno)),
            },
            Missing::Error => Err(self.absent(&self.file, &self.value, hint)),
        }
    }

    /// What version 1 says in place of reclaiming.
    fn in_use(&self, directory: BorrowedFd<'_>, errno: Errno) -> Option<Error> {
        if errno != Errno::BUSY || self.file != "memory.limit_in_bytes" {
            return None;
        }
        let usage = files::number(directory, "memory.usage_in_bytes").ok()?;
        Some(Error::InUse {
            field: self.field.clone(),
            what: "memory",
            limit: self.value.parse().ok()?,
            usage,
        })
    }

    fn absent(&self, file: &str, value: &str, hint: &dyn Fn(&str) -> Option<(String, Hint)>) -> Error {
        match hint(file) {
            Some((controller, hint)) => Error::NoController { field: self.field.clone(), controller, hint },
            None => self.error(file, value, Errno::NOENT),
        }
    }

    fn verify(&self, directory: BorrowedFd<'_>) -> Result<(), Error> {
        let (Ok(taken), Ok(asked)) = (files::number(directory, &self.file), self.value.parse::<u64>()) else {
            return Ok(());
        };
        let bound = match asked.cmp(&taken) {
            core::cmp::Ordering::Equal => return Ok(()),
            core::cmp::Ordering::Greater => "maximum",
            core::cmp::Ordering::Less => "minimum",
        };
        Err(Error::Clamped { field: self.field.clone(), bound, taken })
    }
}

impl Display for Setting {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} = {}", self.phase, self.file, self.value.replace('\n', "|"))?;
        match &self.missing {
            Missing::Error => {}
            Missing::Ignore => f.write_str(" if there")?,
            Missing::Warn(_) => f.write_str(" or a warning")?,
            Missing::Instead(file, value) => write!(f, " or {file} = {value}")?,
        }
        match self.manner {
            Manner::Once => Ok(()),
            Manner::Retry => f.write_str(", again at the end"),
            Manner::Verify => f.write_str(", read back"),
        }
    }
}

/// Writes those settings whose phase it is, in their order. Afterwards those that did not go with what
/// was written after them.
pub(crate) fn write_all<'a>(
    directory: BorrowedFd<'_>,
    settings: impl Iterator<Item = &'a Setting>,
    hint: &dyn Fn(&str) -> Option<(String, Hint)>,
    warnings: &mut Vec<Warning>,
) -> Result<(), Error> {
    let mut again = Vec::new();
    for setting in settings {
        match setting.write(directory, hint, warnings) {
            Err(error) if setting.manner == Manner::Retry && error.errno() == Some(Errno::INVAL) => {
                again.push(setting);
            }
            Err(error) => return Err(error),
            Ok(()) if setting.manner == Manner::Verify => setting.verify(directory)?,
            Ok(()) => {}
        }
    }
    again.into_iter().try_for_each(|setting| setting.write(directory, hint, warnings))
}
