//! Settings: the values to write to a cgroup's files, and how to handle failures.
//!
//! Resources are first converted to a flat list of settings, which makes all decisions. Then one loop writes
//! them relative to a directory's descriptor. Tests compare the list in its printed form.

pub(crate) mod convert;
pub(crate) mod v1;
pub(crate) mod v2;

use crate::error::{Error, Field, Hint, LimitWarning};
use crate::files;
use core::fmt::{self, Display, Formatter};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::borrow::Cow;

/// One file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) phase: Phase,
    /// The field of the configuration that it comes from.
    pub(crate) field: Field,
    /// The file's name in the cgroup.
    pub(crate) file: Cow<'static, str>,
    /// The value; each line is written by itself.
    pub(crate) value: String,
    /// The fallback if the file does not exist.
    pub(crate) missing: Missing,
    pub(crate) manner: WriteMode,
}

/// The fallback for a setting whose file does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Error,
    /// Skips the setting, which would have no effect.
    Ignore,
    /// Skips the setting and returns a warning.
    Warn(&'static str),
    /// Writes this value to this file instead.
    Instead(&'static str, String),
}

/// The way in which a setting is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteMode {
    Once,
    /// The setting is written once. If the kernel rejects it with `EINVAL`, it is written again after all other
    /// settings, because it may depend on one of them.
    Retry,
    /// The setting is written once and read back, because the kernel silently clamps the value.
    Verify,
}

/// The moment at which a setting is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The setting is written before the cgroup contains a process.
    Early,
    /// The setting is written just before the process execs, because it could slow down, stop or kill a process
    /// during its setup.
    Late,
}

impl Setting {
    /// Creates a setting that is written before the cgroup contains a process.
    pub(crate) fn early(
        field: impl Into<Field>,
        file: impl Into<Cow<'static, str>>,
        value: impl ToString,
    ) -> Self {
        Self::new(Phase::Early, field, file, value)
    }

    /// Creates a setting that is written just before the process runs its program.
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
        Self { phase, field, file, value, missing: Missing::Error, manner: WriteMode::Once }
    }

    pub(crate) fn missing(self, missing: Missing) -> Self {
        Self { missing, ..self }
    }

    pub(crate) fn manner(self, manner: WriteMode) -> Self {
        Self { manner, ..self }
    }

    fn error(&self, file: &str, value: &str, errno: Errno) -> Error {
        Error::Set { field: self.field.clone(), file: file.to_owned(), value: value.to_owned(), errno }
    }

    /// Writes the setting. `hint` says why a file does not exist.
    fn write(
        &self,
        directory: BorrowedFd<'_>,
        hint: &dyn Fn(&str) -> Option<(String, Hint)>,
        warnings: &mut Vec<LimitWarning>,
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
                warnings.push(LimitWarning::new(self.field.clone(), *text));
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

    /// Returns the error for a version 1 memory limit below the usage that cannot be reclaimed.
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
            WriteMode::Once => Ok(()),
            WriteMode::Retry => f.write_str(", again at the end"),
            WriteMode::Verify => f.write_str(", read back"),
        }
    }
}

/// Writes the settings in order, then retries the rejected [`WriteMode::Retry`] ones.
pub(crate) fn write_all<'a>(
    directory: BorrowedFd<'_>,
    settings: impl Iterator<Item = &'a Setting>,
    hint: &dyn Fn(&str) -> Option<(String, Hint)>,
    warnings: &mut Vec<LimitWarning>,
) -> Result<(), Error> {
    let mut again = Vec::new();
    for setting in settings {
        match setting.write(directory, hint, warnings) {
            Err(error) if setting.manner == WriteMode::Retry && error.errno() == Some(Errno::INVAL) => {
                again.push(setting);
            }
            Err(error) => return Err(error),
            Ok(()) if setting.manner == WriteMode::Verify => setting.verify(directory)?,
            Ok(()) => {}
        }
    }
    again.into_iter().try_for_each(|setting| setting.write(directory, hint, warnings))
}
