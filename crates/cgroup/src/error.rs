//! Errors and warnings of cgroups.

use crate::controller::Controllers;
use core::fmt::{self, Display, Formatter};
use husk_listing::Cause;
use rustix::io::Errno;
use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

/// A field of the configuration, such as `linux.resources.memory.limit`.
pub type Field = Cow<'static, str>;

/// The reason why a cgroup is not as requested.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value that no kernel accepts, or two values that exclude each other.
    #[error("{field}: {reason}")]
    Invalid {
        field: Field,
        /// A phrase that follows the field in the message.
        reason: Cow<'static, str>,
    },
    /// A setting needs a controller that this cgroup does not have.
    #[error("{field}: this cgroup has no {controller} controller: {hint}")]
    NoController {
        /// The field that needs the controller.
        field: Field,
        /// The controller's name.
        controller: String,
        /// Why the controller is missing.
        hint: Hint,
    },
    /// The kernel rejects a setting.
    #[error("{field}: write {value:?} to {file}: {}", Cause::from(*errno))]
    Set {
        /// The field that the setting comes from.
        field: Field,
        /// The file's name in the cgroup.
        file: String,
        /// The value that was written.
        value: String,
        /// The kernel's error.
        errno: Errno,
    },
    /// A memory limit below the current usage.
    #[error("{field}: rejecting {what} limit {limit} <= usage {usage}")]
    InUse {
        /// The limit's field.
        field: Field,
        /// The limited quantity: `memory` or `memory+swap`.
        what: &'static str,
        /// The requested limit in bytes.
        limit: u64,
        /// The current usage in bytes.
        usage: u64,
    },
    /// The kernel stored a different value than the one written.
    #[error("{field}: the {bound} allowed is {taken}")]
    Clamped {
        /// The field that the setting comes from.
        field: Field,
        /// `maximum` or `minimum`.
        bound: &'static str,
        /// The value that the kernel stored.
        taken: u64,
    },
    /// The device filter is not in force.
    #[error("linux.resources.devices: {act}: {}", Cause::from(*errno))]
    Devices {
        /// The step that failed.
        act: &'static str,
        /// The kernel's error.
        errno: Errno,
    },
    /// No cgroup file system is mounted at a path that always has one.
    #[error("{}: no cgroup file system is mounted there", .0.display())]
    NotMounted(PathBuf),
    /// A cgroup with processes in it, which another program uses (runtime.md, "create": an existing one "MUST
    /// be empty").
    #[error("container's cgroup is not empty: {count} process(es) found in {}", path.display())]
    NotEmpty {
        path: PathBuf,
        /// The number of processes in it.
        count: usize,
    },
    /// A frozen cgroup, in which no process would run.
    #[error("container's cgroup unexpectedly frozen: {}", .0.display())]
    Frozen(PathBuf),
    /// The root of a hierarchy, which can be neither limited nor removed.
    #[error("linux.cgroupsPath: {0:?} is the root of the cgroup tree")]
    Root(String),
    /// A threaded cgroup, which cannot hold processes with these limits.
    #[error("{}: is a {kind} cgroup, which cannot have these limits", path.display())]
    Threaded {
        path: PathBuf,
        /// The kernel's name for its type, from `cgroup.type`.
        kind: String,
    },
    /// An operation on a whole cgroup failed.
    #[error("{act} {}: {}", path.display(), Cause::from(*errno))]
    Act {
        /// The operation.
        act: &'static str,
        /// Its cgroup or file.
        path: PathBuf,
        /// The kernel's error.
        errno: Errno,
    },
    /// A kernel file whose contents do not have the usual form.
    #[error("{}: unexpected contents {text:?}", path.display())]
    Unexpected {
        path: PathBuf,
        /// The file's contents.
        text: String,
    },
    /// An operation did not finish in time.
    #[error("{act} {}: timed out after {seconds} seconds{}", path.display(), Remaining(pids))]
    Deadline {
        /// The operation.
        act: &'static str,
        /// Its cgroup.
        path: PathBuf,
        /// The time limit.
        seconds: u64,
        /// The processes that are still in the cgroup.
        pids: Vec<i32>,
    },
    /// Systemd, or the connection to it, failed.
    #[error(transparent)]
    Systemd(#[from] SystemdError),
    /// The cgroup has no freezer.
    #[error("freezer not supported: {}", .0.display())]
    NoFreezer(PathBuf),
}

impl Error {
    /// Returns the kernel's error, if the kernel reported one.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Set { errno, .. } | Self::Devices { errno, .. } | Self::Act { errno, .. } => Some(*errno),
            _ => None,
        }
    }

    /// Returns the field of the configuration that the error is about.
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

    /// Returns whether the error is a lack of permission. A caller without privileges may ignore it if no
    /// limits are requested.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        matches!(self.errno(), Some(Errno::ACCESS | Errno::PERM | Errno::ROFS))
    }

    /// Returns whether a cgroup could not be removed although no process in it is known. The caller may lack
    /// permission, or another program keeps creating cgroups below it. Another try will not help.
    #[must_use]
    pub fn is_about_an_empty_cgroup(&self) -> bool {
        matches!(self, Self::Deadline { pids, .. } if pids.is_empty())
    }

    pub(crate) fn invalid(field: impl Into<Field>, reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Invalid { field: field.into(), reason: reason.into() }
    }
}

/// How long a call or job of systemd may take.
pub const SYSTEMD_PATIENCE: Duration = Duration::from_secs(30);

/// Bytes that are not a D-Bus message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bus sent an invalid message")]
pub struct Malformed;

/// Errors of systemd and of the bus to it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SystemdError {
    /// The bus cannot be reached.
    #[error(
        "connect to systemd at {address}: {reason} (a caller without privileges needs a session bus: install \
         dbus-user-session)"
    )]
    Connect {
        /// The socket's address.
        address: String,
        /// The kernel's error.
        reason: Cause,
    },
    /// The environment does not name the user's bus.
    #[error("no user bus: set DBUS_SESSION_BUS_ADDRESS or XDG_RUNTIME_DIR")]
    NoUserBus,
    /// The bus rejects our authentication.
    #[error("the bus rejects the authentication: {0}")]
    Refused(String),
    /// The connection broke.
    #[error("talk to systemd: {act}: {reason}")]
    Broken {
        /// The step that failed.
        act: &'static str,
        /// The kernel's error.
        reason: Cause,
    },
    /// The bus sent something that is not D-Bus.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Systemd did not answer in time.
    #[error("systemd: {act}: no answer after {} seconds", SYSTEMD_PATIENCE.as_secs())]
    Deadline {
        /// The call or job that was waited for.
        act: String,
    },
    /// Systemd answered with an error.
    #[error("systemd: {member}: {text} ({name})")]
    Call {
        /// The method that was called.
        member: &'static str,
        /// The D-Bus name of the error.
        name: String,
        /// The error's message.
        text: String,
    },
    /// The job did not end with `done`.
    #[error("systemd: unit {unit}: job {result}")]
    Job {
        unit: String,
        /// The job's result: `failed`, `timeout`, `canceled`.
        result: String,
    },
    /// A field of the configuration cannot be passed to systemd.
    #[error("{field}: {reason}")]
    Field {
        field: String,
        /// A phrase that follows the field in the message.
        reason: String,
    },
}

impl SystemdError {
    /// Returns whether systemd already has a unit of this name.
    pub(crate) fn is_unit_exists(&self) -> bool {
        matches!(self, Self::Call { name, .. } if name == "org.freedesktop.systemd1.UnitExists")
    }

    /// Returns whether systemd has no unit of this name.
    pub(crate) fn is_no_such_unit(&self) -> bool {
        matches!(self, Self::Call { name, .. } if name == "org.freedesktop.systemd1.NoSuchUnit")
    }
}

/// The reason why a cgroup does not have a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// The hierarchy does not have the controller at all.
    NotInHierarchy {
        /// The controllers that the hierarchy has.
        available: Controllers,
    },
    /// An ancestor does not enable the controller for its children.
    NotEnabled {
        /// The controllers that are enabled.
        available: Controllers,
        /// The kernel's error on a request for more.
        errno: Option<Errno>,
    },
    /// No hierarchy of version 1 with the controller is mounted.
    NotMounted,
}

impl Display for Hint {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInHierarchy { available } => {
                write!(f, "this hierarchy has {available}; the controller may be mounted as version 1")
            }
            Self::NotEnabled { available, errno: Some(Errno::BUSY) } => {
                write!(f, "the parent cgroup has processes of its own (it enables {available})")
            }
            Self::NotEnabled { available, errno: Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) } => {
                write!(
                    f,
                    "it is not delegated (delegated: {available}); set Delegate=yes in the systemd unit"
                )
            }
            Self::NotEnabled { available, .. } => {
                write!(f, "the parent cgroup enables {available}; see its cgroup.subtree_control")
            }
            Self::NotMounted => f.write_str("no hierarchy with this controller is mounted"),
        }
    }
}

/// Prints pids at the end of a message.
struct Remaining<'a>(&'a [i32]);

impl Display for Remaining<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let [first, rest @ ..] = self.0 {
            write!(f, "; remaining processes: {first}")?;
            rest.iter().try_for_each(|pid| write!(f, ", {pid}"))?;
        }
        Ok(())
    }
}

/// A requested setting that has no effect here, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitWarning {
    pub field: Field,
    pub text: Cow<'static, str>,
}

impl LimitWarning {
    pub(crate) fn new(field: impl Into<Field>, text: impl Into<Cow<'static, str>>) -> Self {
        Self { field: field.into(), text: text.into() }
    }
}

impl Display for LimitWarning {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.text)
    }
}
