//! What can go wrong with a container.

use husk_script::sys::Errno;
use rustix::process::geteuid;
use std::fmt::{self, Display, Formatter};
use std::io;
use std::path::{Path, PathBuf};

/// More than this is no record: it holds less than the configuration, which may be as long.
pub(crate) const MOST_BYTES: u64 = 64 << 20;

/// Why a verb failed. The words that engines look for are runc's.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name that is no container's.
    #[error("invalid container ID {0:?}: letters, digits and _ + . - only")]
    Id(String),
    /// A name that is another container's.
    #[error("container with given ID already exists")]
    Exists,
    /// A container that is not there.
    #[error("container does not exist")]
    Missing,
    /// A container that somebody else has deleted, while this verb was at work on it.
    #[error("container {0:?} was deleted meanwhile")]
    Deleted(String),
    /// A signal has ended the verb before the container's program began.
    #[error("ended by signal {0} before the program began")]
    Interrupted(i32),
    /// A container whose record says nothing that can be understood.
    #[error("state of the container cannot be read: {0}")]
    Record(#[source] serde_json::Error),
    /// A record that is not a file of ours.
    #[error("state of the container cannot be read: {path}: {why}")]
    NoRecord {
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        why: NoRecord,
    },
    /// A store that somebody else could change.
    #[error("store {}: {}{why}", store.display(), UntrustedPath(store, place))]
    Distrusted {
        /// The directory of the containers.
        store: PathBuf,
        /// The directory or symlink that is the reason: itself, or one above.
        place: PathBuf,
        /// What is wrong with it.
        why: Distrust,
    },
    /// A container that is in no state for this.
    #[error("{0}")]
    State(&'static str),
    /// A running container that was to be deleted.
    #[error("cannot delete container {id} that is not stopped: {status}")]
    NotStopped {
        /// Its name.
        id: String,
        /// What it is.
        status: &'static str,
    },
    /// A user or group that nobody is.
    #[error("{what} {text:?}: {reason}")]
    Identity {
        /// Which of the two.
        what: &'static str,
        /// What was said.
        text: String,
        /// Why it is nobody.
        reason: &'static str,
    },
    /// An option that makes no sense for this container.
    #[error("{option}: {reason}")]
    Argument {
        /// Which.
        option: &'static str,
        /// Why not.
        reason: String,
    },
    /// A descriptor that is to be passed on and that the caller has not.
    #[error("{option}: descriptor {number} is not open")]
    Descriptor {
        /// What says that it is there.
        option: &'static str,
        /// Its number.
        number: u64,
    },
    /// What was asked makes no sense.
    #[error(transparent)]
    Bundle(#[from] husk_bundle::Error),
    /// Its cgroup.
    #[error(transparent)]
    Cgroup(#[from] husk_cgroup::Error),
    /// What was asked cannot be done here.
    #[error(transparent)]
    Plan(#[from] husk_plan::Error),
    /// A step of the child failed: the field it comes from, and what the child says.
    #[error("{origin}: {failure}")]
    Step {
        /// The field of config.json.
        origin: String,
        /// The step and the reason.
        failure: String,
    },
    /// The process could not be made or waited for.
    #[error(transparent)]
    Spawn(#[from] husk_spawn::Error),
    /// CRIU, or what it says.
    #[error("{0}")]
    Criu(String),
    /// A file of ours.
    #[error("{act} {path}: {reason}")]
    File {
        /// What was tried.
        act: &'static str,
        /// With what.
        path: PathBuf,
        /// Why it failed.
        reason: io::Error,
    },
    /// Something else that the kernel refused.
    #[error("{act}: {reason}")]
    Kernel {
        /// What was tried.
        act: &'static str,
        /// Why it failed.
        reason: io::Error,
    },
}

impl Error {
    /// A step that failed. Of a hook it is said as runc says it, too.
    pub(crate) fn step(origin: &str, failure: String) -> Self {
        let hook = origin.strip_prefix("hooks.").and_then(|hook| hook.strip_suffix(']')?.split_once('['));
        let failure = match hook {
            Some((kind, index)) => format!("error running {kind} hook #{index}: {failure}"),
            None => failure,
        };
        Self::Step { origin: origin.to_owned(), failure }
    }

    /// A word for programs, which stays what it is.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Id(_) => "invalid-id",
            Self::Exists => "exists",
            Self::Missing => "not-found",
            Self::Deleted(_) => "deleted",
            Self::Interrupted(_) => "interrupted",
            Self::Record(_) | Self::NoRecord { .. } => "unreadable-record",
            Self::Distrusted { .. } => "untrusted-store",
            Self::State(_) | Self::NotStopped { .. } => "wrong-state",
            Self::Bundle(_) => "invalid-config",
            Self::Plan(_) => "cannot-be-done",
            Self::Cgroup(_) => "cgroup",
            Self::Step { .. } => "step-failed",
            Self::Criu(_) => "criu",
            _ => "system",
        }
    }

    /// The field of config.json that it comes from.
    #[must_use]
    pub fn field(&self) -> Option<String> {
        // After the field stands what it says: `mounts[3] /dev/shm`.
        let field = |origin: &str| origin.split(' ').next().map(str::to_owned);
        match self {
            Self::Bundle(error) => Some(error.field.to_string()),
            Self::Plan(error) => field(error.origin()),
            Self::Cgroup(error) => error.field().map(str::to_owned),
            Self::Step { origin, .. } => field(origin),
            _ => None,
        }
    }

    pub(crate) fn file(act: &'static str, path: impl Into<PathBuf>, reason: impl Into<io::Error>) -> Self {
        Self::File { act, path: path.into(), reason: reason.into() }
    }

    pub(crate) fn kernel(act: &'static str, errno: Errno) -> Self {
        Self::Kernel { act, reason: errno.into() }
    }
}

/// Which place it is that others could change, if it is not the store itself.
struct UntrustedPath<'e>(&'e Path, &'e Path);

impl Display for UntrustedPath<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(store, place) = self;
        if store == place { Ok(()) } else { write!(f, "{}: ", place.display()) }
    }
}

/// What is wrong with who may change a file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Distrust {
    /// It belongs to somebody who is neither root nor the caller.
    Owner {
        /// Who that is.
        uid: u32,
    },
    /// Others may write to it.
    Writable {
        /// Its permissions.
        mode: u32,
    },
}

impl Display for Distrust {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner { uid } => {
                let us = geteuid().as_raw();
                write!(f, "it belongs to user {uid}, who is neither root nor the caller (user {us})")
            }
            Self::Writable { mode } => {
                write!(f, "others may write to it (mode {mode:04o}): take that away with 'chmod go-w'")
            }
        }
    }
}

/// Why what is where a record should be is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoRecord {
    /// It is a symlink, a directory, a FIFO, or anything else that is not a regular file.
    NoFile,
    /// It is longer than a record can be.
    TooLong,
    /// Somebody else could have written it.
    Distrusted(Distrust),
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
