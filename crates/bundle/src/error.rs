//! The errors and warnings about a configuration, each with the field that it is about.

use core::fmt::{self, Display, Formatter};
use husk_listing::Cause;

/// The name of a field in config.json, such as `mounts[3].options[0]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Field(String);

impl Field {
    /// Returns the top-level field of this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// Returns the member of this object with the given name.
    #[must_use]
    pub fn key(&self, name: &str) -> Self {
        Self(format!("{}.{name}", self.0))
    }

    /// Like [`key`](Self::key), but returns `name` alone if this is the top level of the file.
    pub(crate) fn key_or_top(&self, name: &str) -> Self {
        if self.0.is_empty() { Self::new(name) } else { self.key(name) }
    }

    /// Returns the element of this array with the given index.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// Whether this is the field of the given name or one below it.
    #[must_use]
    pub fn is_within(&self, name: &str) -> bool {
        self.0.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }

    pub(crate) fn error(&self, kind: ErrorKind) -> Error {
        Error { field: self.clone(), kind }
    }
}

impl Display for Field {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // A key may contain control characters; a message must stay on one line.
        if self.0.contains(char::is_control) {
            write!(f, "{}", self.0.escape_debug())
        } else {
            f.write_str(&self.0)
        }
    }
}

/// A configuration that no machine can carry out.
#[derive(Debug, thiserror::Error)]
#[error("{field}: {kind}")]
pub struct Error {
    /// The field, or the file if it cannot be read at all.
    pub field: Field,
    /// The problem with the field.
    pub kind: ErrorKind,
}

/// The problem with a field.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Read(Cause),
    /// The path is a directory, a device or a pipe.
    #[error("is not a regular file")]
    NoFile,
    /// The file is longer than any real configuration.
    #[error("is longer than {0} bytes")]
    TooLong(u64),
    /// The file is not JSON.
    #[error("{0}")]
    Json(String),
    /// A value has the wrong type, or a number exceeds the range of its type.
    #[error("must be {0}")]
    Type(String),
    /// A name is not one of the values that the field may have.
    #[error("{0}")]
    NotOneOf(Box<UnknownName>),
    /// A required field is absent.
    #[error("is missing")]
    Missing,
    /// A field that must not be empty is empty.
    #[error("is empty")]
    Empty,
    /// A path that must be absolute is relative.
    #[error("{0:?} is not an absolute path")]
    Relative(String),
    /// A string contains a NUL byte, which cannot be passed to the kernel.
    #[error("contains a NUL byte")]
    Nul,
    /// A name is not one of the known values.
    #[error("{0:?} is unknown")]
    Unknown(String),
    /// The configuration follows another version of the specification.
    #[error("{0:?} is not supported; husk implements version 1.3")]
    Version(String),
    /// A number exceeds the range that the kernel accepts.
    #[error("{0} is out of range")]
    Range(i128),
    /// An entry that may occur once occurs twice.
    #[error("{0:?} occurs twice")]
    Twice(String),
    /// An error in runc's wording.
    #[error("{0}")]
    Phrase(String),
    /// Two settings exclude each other, or one needs another.
    #[error("{0}")]
    Conflict(&'static str),
}

/// A name that is not one of the values that its field may have.
#[derive(Debug, thiserror::Error)]
#[error("{found:?} is unknown; possible values: {}", known.join(", "))]
pub struct UnknownName {
    pub found: String,
    pub known: &'static [&'static str],
}

/// The audience of a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Every user.
    Always,
    /// Only users who ask for details with `--debug` or `validate`.
    OnRequest,
}

/// A field that is not carried out as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The users who see the warning.
    pub notice: Notice,
    /// The field that the warning is about.
    pub field: Field,
    /// A description of the action that husk takes instead.
    pub text: String,
}

impl Warning {
    /// Returns a warning for every user.
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
