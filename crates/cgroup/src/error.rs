//! What can go wrong with a cgroup, and what is left out of one.

use crate::controller::Controllers;
use core::fmt::{self, Display, Formatter};
use rustix::io::Errno;
use std::borrow::Cow;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A field of the configuration: `linux.resources.memory.limit`.
pub type Field = Cow<'static, str>;

/// Why a cgroup is not as it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value that no kernel takes, or two that exclude each other.
    #[error("{field}: {reason}")]
    Invalid {
        /// Where it stands.
        field: Field,
        /// What is wrong with it.
        reason: Cow<'static, str>,
    },
    /// What is asked for needs a controller that this cgroup does not have.
    #[error("{field}: this cgroup has no {controller} controller: {hint}")]
    NoController {
        /// What asks for it.
        field: Field,
        /// Its name.
        controller: String,
        /// Why there is none.
        hint: Hint,
    },
    /// The kernel does not take a setting.
    #[error("{field}: write {value:?} to {file}")]
    Set {
        /// What asks for it.
        field: Field,
        /// The file below the cgroup.
        file: String,
        /// What was written.
        value: String,
        /// What the kernel says.
        source: Errno,
    },
    /// A limit on memory below what is in use.
    #[error("{field}: rejecting {what} limit {limit} <= usage {usage}")]
    InUse {
        /// Which limit.
        field: Field,
        /// What it limits.
        what: &'static str,
        /// The limit asked for.
        limit: u64,
        /// What is in use.
        usage: u64,
    },
    /// The kernel took another value than it was given.
    #[error("{field}: the {bound} allowed is {taken}")]
    Clamped {
        /// What asks for it.
        field: Field,
        /// `maximum` or `minimum`.
        bound: &'static str,
        /// What the kernel made of it.
        taken: u64,
    },
    /// The device filter is not in force.
    #[error("linux.resources.devices: {act}")]
    Devices {
        /// What was tried.
        act: &'static str,
        /// What the kernel says.
        source: Errno,
    },
    /// There is no cgroup file system where there always is one.
    #[error("{}: no cgroup file system is mounted there", .0.display())]
    NotMounted(PathBuf),
    /// A cgroup that is somebody else's (runtime.md, "create": an existing one "MUST be empty").
    #[error("container's cgroup is not empty: {count} process(es) found in {}", path.display())]
    NotEmpty {
        /// Which.
        path: PathBuf,
        /// How many processes are in it.
        count: usize,
    },
    /// A cgroup in which nothing would run.
    #[error("container's cgroup unexpectedly frozen: {}", .0.display())]
    Frozen(PathBuf),
    /// The root of a hierarchy, whose limits nobody sets and which nobody removes.
    #[error("linux.cgroupsPath: {0:?} is the root of the cgroup tree")]
    Root(String),
    /// A cgroup among threads, where processes and their limits cannot be.
    #[error("{}: is a {kind} cgroup, which cannot have these limits", path.display())]
    Threaded {
        /// Which.
        path: PathBuf,
        /// The kernel's word for it.
        kind: String,
    },
    /// An act on a cgroup as a whole.
    #[error("{act} {}", path.display())]
    Act {
        /// What was tried.
        act: &'static str,
        /// With what.
        path: PathBuf,
        /// What the kernel says.
        source: Errno,
    },
    /// A file of the kernel's that does not read as it always does.
    #[error("{}: {text:?} was not expected there", path.display())]
    Unexpected {
        /// The file.
        path: PathBuf,
        /// What it says.
        text: String,
    },
    /// It took too long.
    #[error("{act} {}: not done after {seconds} seconds{}", path.display(), Remaining(pids))]
    Deadline {
        /// What was waited for.
        act: &'static str,
        /// Of which cgroup.
        path: PathBuf,
        /// How long.
        seconds: u64,
        /// The processes that are still there.
        pids: Vec<i32>,
    },
    /// Systemd, or the way to it.
    #[error(transparent)]
    Systemd(#[from] SystemdError),
    /// There is no freezer.
    #[error("freezer not supported: {}", .0.display())]
    NoFreezer(PathBuf),
}

impl Error {
    /// What the kernel said, where it was the kernel.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Set { source, .. } | Self::Devices { source, .. } | Self::Act { source, .. } => {
                Some(*source)
            }
            _ => None,
        }
    }

    /// The field of the configuration that it is about.
    #[must_use]
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::Invalid { field, .. }
            | Self::NoController { field, .. }
            | Self::Set { field, .. }
            | Self::InUse { field, .. }
            | Self::Clamped { field, .. } => Some(field),
            Self::Devices { .. } => Some("linux.resources.devices"),
            Self::Root(_) => Some("linux.cgroupsPath"),
            _ => None,
        }
    }

    /// Whether it is for want of permission, which a caller without privileges may pass over when no
    /// limits are asked for.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        matches!(self.errno(), Some(Errno::ACCESS | Errno::PERM | Errno::ROFS))
    }

    /// Whether it says that the kernel leaves a cgroup where it is although no process in it is known: the caller may not
    /// remove it, or somebody else keeps making cgroups below it. Another try will not help.
    #[must_use]
    pub fn is_about_an_empty_cgroup(&self) -> bool {
        matches!(self, Self::Deadline { pids, .. } if pids.is_empty())
    }

    pub(crate) fn invalid(field: impl Into<Field>, reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Invalid { field: field.into(), reason: reason.into() }
    }
}

/// How long systemd may take for a job.
pub const SYSTEMD_PATIENCE: Duration = Duration::from_secs(30);

/// Bytes that are no message of D-Bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what came from the bus is no message")]
pub struct Malformed;

/// What can go wrong with systemd.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SystemdError {
    /// There is no way to it.
    #[error(
        "connect to systemd at {address} (without privileges it takes a session bus: install dbus-user-session)"
    )]
    Connect {
        /// Where it was looked for.
        address: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// The environment does not say where the bus of the user is.
    #[error("no user bus: neither DBUS_SESSION_BUS_ADDRESS nor XDG_RUNTIME_DIR leads to one")]
    NoUserBus,
    /// The other end does not believe who we are.
    #[error("the bus refuses us: {0}")]
    Refused(String),
    /// The connection broke.
    #[error("talk to systemd: {act}")]
    Broken {
        /// What was tried.
        act: &'static str,
        /// What the kernel says.
        source: io::Error,
    },
    /// What came is no D-Bus.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// It took too long.
    #[error("systemd: {act}: no answer after {} seconds", SYSTEMD_PATIENCE.as_secs())]
    Deadline {
        /// What was waited for.
        act: String,
    },
    /// Systemd says no.
    #[error("systemd: {member}: {text} ({name})")]
    Call {
        /// What was asked for.
        member: &'static str,
        /// The name of the error.
        name: String,
        /// What it says.
        text: String,
    },
    /// The job came to another end.
    #[error("systemd: unit {unit}: job {result}")]
    Job {
        /// The unit.
        unit: String,
        /// How it ended: `failed`, `timeout`, `canceled`.
        result: String,
    },
    /// A field of the configuration.
    #[error("{field}: {reason}")]
    Field {
        /// Which.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl SystemdError {
    /// Whether systemd knows a unit of this name already.
    pub(crate) fn is_unit_exists(&self) -> bool {
        matches!(self, Self::Call { name, .. } if name == "org.freedesktop.systemd1.UnitExists")
    }

    /// Whether it does not know one of this name.
    pub(crate) fn is_no_such_unit(&self) -> bool {
        matches!(self, Self::Call { name, .. } if name == "org.freedesktop.systemd1.NoSuchUnit")
    }
}

/// Why a cgroup has no such controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Nowhere in this hierarchy.
    NotInHierarchy {
        /// What there is.
        available: Controllers,
    },
    /// A cgroup above does not pass it on.
    NotEnabled {
        /// What is passed on.
        available: Controllers,
        /// What the kernel says to the wish.
        errno: Option<Errno>,
    },
    /// No hierarchy of version 1 with it is mounted.
    NotMounted,
}

impl Display for Hint {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInHierarchy { available } => {
                write!(
                    f,
                    "the kernel has none in this hierarchy (it has {available}); it may be mounted as version 1"
                )
            }
            Self::NotEnabled { available, errno: Some(Errno::BUSY) } => {
                write!(f, "the cgroup above has processes of its own and passes on {available} only")
            }
            Self::NotEnabled { available, errno: Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) } => {
                write!(f, "it is not delegated (delegated are {available}); systemd does with Delegate=yes")
            }
            Self::NotEnabled { available, .. } => {
                write!(f, "the cgroup above passes on {available} only, see its cgroup.subtree_control")
            }
            Self::NotMounted => f.write_str("no hierarchy with it is mounted"),
        }
    }
}

/// Pids at the end of a message.
struct Remaining<'a>(&'a [i32]);

impl Display for Remaining<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let [first, rest @ ..] = self.0 {
            write!(f, "; processes in it: {first}")?;
            rest.iter().try_for_each(|pid| write!(f, ", {pid}"))?;
        }
        Ok(())
    }
}

/// Something asked for that has no effect here, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Where it stands.
    pub field: Field,
    /// Why it has none.
    pub text: Cow<'static, str>,
}

impl Warning {
    pub(crate) fn new(field: impl Into<Field>, text: impl Into<Cow<'static, str>>) -> Self {
        Self { field: field.into(), text: text.into() }
    }
}

impl Display for Warning {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.text)
    }
}
