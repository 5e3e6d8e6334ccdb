//! Errors of the verbs.

use husk_listing::Cause;
use husk_plan::{Origin, Part};
use rustix::process::geteuid;
use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};

/// The length limit of a record. A record holds less than the configuration, which may be this long itself.
pub(crate) const MOST_BYTES: u64 = 64 << 20;

/// Why a verb failed. Messages that engines parse are worded as runc's.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("invalid container ID {0:?}: use only letters, digits and _ + . -")]
    Id(String),
    #[error("container with given ID already exists")]
    Exists,
    #[error("container does not exist")]
    Missing,
    /// Another command deleted the container while this verb was working on it.
    #[error("container {0:?} was deleted by another command")]
    Deleted(String),
    /// The signal with this number ended the verb before the container's program began.
    #[error("ended by signal {0} before the program began")]
    Interrupted(i32),
    /// The record is not valid JSON, or not that of a container.
    #[error("state of the container cannot be read: {0}")]
    Record(serde_json::Error),
    /// The record's file cannot be trusted.
    #[error("state of the container cannot be read: {path}: {why}")]
    NoRecord {
        /// The record's path.
        path: PathBuf,
        why: NoRecord,
    },
    /// A later version of husk wrote the record.
    #[error(
        "state of the container has version {version}, and this husk knows versions up to {known}: use the husk that \
         created it"
    )]
    NewerRecord { version: u32, known: u32 },
    /// Another user could change the store.
    #[error("store {}: {}{why}", store.display(), UntrustedPath(store, place))]
    Distrusted {
        store: PathBuf,
        /// The directory or symlink that is at fault: the store or one of its ancestors.
        place: PathBuf,
        why: UntrustedReason,
    },
    /// The container is in the wrong state for the verb.
    #[error("{0}")]
    State(&'static str),
    /// The options for the terminal contradict each other.
    #[error("{refused} if husk will {condition}")]
    TerminalMode {
        /// The request that cannot be met.
        refused: &'static str,
        /// The options that it contradicts, as a verb phrase.
        condition: &'static str,
    },
    /// Nothing could ever be typed into the container's terminal.
    #[error(
        "the process wants a terminal, but there is none here to type in: run husk in a terminal, set \
         process.terminal to false, or detach with --console-socket"
    )]
    NoTerminal,
    /// The container to be deleted is not stopped.
    #[error("cannot delete container {id} that is not stopped: {status}")]
    NotStopped {
        /// The container's ID.
        id: String,
        /// The container's status.
        status: &'static str,
    },
    /// A user or group that does not exist.
    #[error("{what} {text:?}: {reason}")]
    Identity {
        /// `user`, `group` or `user or group`.
        what: &'static str,
        /// The text that the caller gave.
        text: String,
        reason: &'static str,
    },
    /// An option that is invalid for this container.
    #[error("{option}: {reason}")]
    Argument {
        /// The option's name, which may come with more words: `invalid --parent-path`.
        option: &'static str,
        reason: String,
    },
    /// A descriptor that is to be passed on to the program but is not open.
    #[error("{option}: descriptor {number} is not open")]
    Descriptor {
        /// The option or variable that announces the descriptor.
        option: &'static str,
        number: u64,
    },
    /// The configuration is invalid.
    #[error(transparent)]
    Bundle(#[from] husk_bundle::Error),
    #[error(transparent)]
    Cgroup(#[from] husk_cgroup::Error),
    /// This host cannot do what the configuration asks for.
    #[error(transparent)]
    Plan(#[from] husk_plan::Error),
    /// A step of the child failed.
    #[error("{origin}: {failure}")]
    Step {
        origin: Box<Origin>,
        /// The step and the reason, as the child reports them.
        failure: String,
    },
    /// A process could not be created or waited for.
    #[error("{}: {}", .0.act(), Cause::from(.0.reason()))]
    Spawn(husk_spawn::Error),
    /// CRIU is missing or failed, with its message.
    #[error("{0}")]
    Criu(String),
    /// An operation on one of husk's files failed.
    #[error("{act} {path}: {reason}")]
    File {
        /// The operation, as a verb: `read`.
        act: &'static str,
        path: PathBuf,
        reason: Cause,
    },
    /// Another system call failed.
    #[error("{act}: {reason}")]
    Kernel {
        /// The operation, as a phrase with a verb: `open the network namespace`.
        act: &'static str,
        reason: Cause,
    },
}

impl Error {
    /// Returns the error of a failed step. A failed hook is also named in runc's words.
    pub(crate) fn step(origin: impl Into<Origin>, failure: String) -> Self {
        let origin = Box::new(origin.into());
        let failure = match origin.part() {
            Part::Hook { kind, index } => format!("error running {kind} hook #{index}: {failure}"),
            Part::Mount | Part::Other => failure,
        };
        Self::Step { origin, failure }
    }

    /// A stable word for the error, to be matched by programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Id(_) => "invalid-id",
            Self::Exists => "exists",
            Self::Missing => "not-found",
            Self::Deleted(_) => "deleted",
            Self::Interrupted(_) => "interrupted",
            Self::Record(_) | Self::NoRecord { .. } | Self::NewerRecord { .. } => "unreadable-record",
            Self::Distrusted { .. } => "untrusted-store",
            Self::State(_) | Self::TerminalMode { .. } | Self::NoTerminal | Self::NotStopped { .. } => {
                "wrong-state"
            }
            Self::Bundle(_) => "invalid-config",
            Self::Plan(_) => "cannot-be-done",
            Self::Cgroup(_) => "cgroup",
            Self::Step { .. } => "step-failed",
            Self::Criu(_) => "criu",
            _ => "system",
        }
    }

    /// The field of config.json that the error comes from.
    #[must_use]
    pub fn field(&self) -> Option<String> {
        match self {
            Self::Bundle(error) => Some(error.field.to_string()),
            Self::Plan(error) => Some(error.origin().field().to_owned()),
            Self::Cgroup(error) => error.field().map(str::to_owned),
            Self::Step { origin, .. } => Some(origin.field().to_owned()),
            _ => None,
        }
    }

    pub(crate) fn file(act: &'static str, path: impl Into<PathBuf>, reason: impl Into<Cause>) -> Self {
        Self::File { act, path: path.into(), reason: reason.into() }
    }

    pub(crate) fn kernel(act: &'static str, reason: impl Into<Cause>) -> Self {
        Self::Kernel { act, reason: reason.into() }
    }
}

impl From<husk_spawn::Error> for Error {
    fn from(error: husk_spawn::Error) -> Self {
        Self::Spawn(error)
    }
}

/// Displays the path that others could change, unless it is the store itself.
struct UntrustedPath<'e>(&'e Path, &'e Path);

impl Display for UntrustedPath<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(store, place) = self;
        if store == place { Ok(()) } else { write!(f, "{}: ", place.display()) }
    }
}

/// Why the owner or permissions of a file or directory make it untrusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UntrustedReason {
    /// The owner is neither root nor the caller.
    Owner {
        /// The owner's user ID.
        uid: u32,
    },
    /// Other users may write to it.
    Writable {
        /// Its permission bits.
        mode: u32,
    },
}

impl Display for UntrustedReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner { uid } => {
                let us = geteuid().as_raw();
                write!(f, "it belongs to user {uid}, who is neither root nor the caller (user {us})")
            }
            Self::Writable { mode } => {
                write!(f, "other users may write to it (mode {mode:04o}); forbid it with 'chmod go-w'")
            }
        }
    }
}

/// Why the file in a record's path is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoRecord {
    /// It is a symlink, a directory, a FIFO, or anything else that is not a regular file.
    NoFile,
    /// It exceeds the length limit of a record.
    TooLong,
    /// Another user could have written it.
    Distrusted(UntrustedReason),
}

impl Display for NoRecord {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFile => f.write_str("it is not a regular file"),
            Self::TooLong => write!(f, "it is longer than {} MiB", MOST_BYTES >> 20),
            Self::Distrusted(why) => why.fmt(f),
        }
    }
}
