//! What can be wrong with a configuration, and where.

use core::fmt::{self, Display, Formatter};
use std::io;

/// A place in config.json: `mounts[3].options[0]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Field(String);

impl Field {
    /// The field of this name at the top.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// A member of this object.
    #[must_use]
    pub fn key(&self, name: &str) -> Self {
        Self(format!("{}.{name}", self.0))
    }

    /// Like [`key`](Self::key), but `name` stands alone if this is the top level of the file.
    pub(crate) fn key_or_top(&self, name: &str) -> Self {
        if self.0.is_empty() { Self::new(name) } else { self.key(name) }
    }

    /// An element of this array.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    pub(crate) fn error(&self, kind: Kind) -> Error {
        Error { field: self.clone(), kind }
    }
}

impl Display for Field {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // A key may hold anything; a message is one line.
        if self.0.contains(char::is_control) {
            write!(f, "{}", self.0.escape_debug())
        } else {
            f.write_str(&self.0)
        }
    }
}

/// A configuration that cannot be carried out, whatever the machine.
#[derive(Debug, thiserror::Error)]
#[error("{field}: {kind}")]
pub struct Error {
    /// Where.
    pub field: Field,
    /// What.
    pub kind: Kind,
}

/// What is wrong with a field.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Kind {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Read(io::Error),
    /// It is a directory, a device or a pipe.
    #[error("is no file")]
    NoFile,
    /// It has more bytes than any configuration.
    #[error("has more than {0} bytes")]
    TooLong(u64),
    /// It is no JSON, or a value is of another type or not one of those that there are.
    #[error("{0}")]
    Json(String),
    /// It has to be there.
    #[error("is missing")]
    Missing,
    /// It has to have something in it.
    #[error("is empty")]
    Empty,
    /// A path that has to begin at the root.
    #[error("{0:?} is not an absolute path")]
    Relative(String),
    /// A string with a NUL byte, which the kernel cannot be told.
    #[error("holds a NUL byte")]
    Nul,
    /// A value that is not one of those that there are.
    #[error("{0:?} is unknown")]
    Unknown(String),
    /// A number beyond what the kernel takes.
    #[error("{0} is out of range")]
    Range(i128),
    /// Something that may be said once was said twice.
    #[error("{0:?} is there twice")]
    Twice(String),
    /// Something that is said in runc's words.
    #[error("{0}")]
    Phrase(String),
    /// Two things that exclude each other, or one that needs another.
    #[error("{0}")]
    Conflict(&'static str),
}

/// The readers of a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Everybody.
    Always,
    /// Only somebody who asks for details, with `--debug` or `validate`.
    OnRequest,
}

/// Something that is carried out otherwise than written, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Its readers.
    pub notice: Notice,
    /// Where.
    pub field: Field,
    /// What was made of it.
    pub text: String,
}

impl Warning {
    /// A warning that everybody should see.
    #[must_use]
    pub fn new(field: Field, text: String) -> Self {
        Self { notice: Notice::Always, field, text }
    }
}

impl Display for Warning {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.text)
    }
}
