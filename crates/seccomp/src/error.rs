//! Errors and warnings about a profile.

use crate::Abi;
use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};

/// The reason why a profile cannot become a program. Formats as the field and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// `SCMP_ACT_NOTIFY` is the default action: the calls that hand over the listener would wait for it.
    NotifyByDefault,
    /// `SCMP_ACT_NOTIFY` for `write`, which may be needed to hand over the listener. runc and crun reject it
    /// too.
    NotifyWrite {
        /// The index of the entry in `syscalls`.
        rule: usize,
    },
    /// Two entries have different actions for the same call and conditions.
    Conflict {
        /// The index of the later entry in `syscalls`.
        rule: usize,
        /// The call's name.
        call: &'static str,
        /// An ABI on which the conditions are equal. On others they may differ in an argument's upper half.
        abi: Abi,
    },
    /// The program is longer than the kernel accepts.
    TooLong {
        /// Its length in instructions.
        length: usize,
    },
}

impl Error {
    /// Returns the field of config.json that the error is about.
    #[must_use]
    pub fn field(&self) -> Cow<'static, str> {
        match self {
            Self::NotifyByDefault => "linux.seccomp.defaultAction".into(),
            Self::NotifyWrite { rule } => format!("linux.seccomp.syscalls[{rule}]").into(),
            Self::Conflict { rule, .. } => format!("linux.seccomp.syscalls[{rule}].args").into(),
            Self::TooLong { .. } => "linux.seccomp.syscalls".into(),
        }
    }

    /// Returns what is wrong with the field.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::NotifyByDefault => "SCMP_ACT_NOTIFY cannot be the default".to_owned(),
            Self::NotifyWrite { .. } => "SCMP_ACT_NOTIFY cannot be used for the write syscall".to_owned(),
            Self::Conflict { call, abi, .. } => {
                format!(
                    "an earlier entry has another action for {call} under these conditions (on {})",
                    abi.name()
                )
            }
            Self::TooLong { length } => {
                format!(
                    "the filter has {length} instructions; the kernel accepts at most {}",
                    crate::MAX_INSTRUCTIONS
                )
            }
        }
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field(), self.reason())
    }
}

impl std::error::Error for Error {}

/// A part of the profile that is ignored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// A name that is not a call of any architecture: a mistake, or newer than husk. The rule still applies to
    /// its other names.
    #[error("linux.seccomp.syscalls[{rule}].names: unknown system call {name:?} ignored")]
    UnknownCall {
        /// The index of the entry in `syscalls`.
        rule: usize,
        /// The unknown name.
        name: String,
    },
    /// The kernel rejects this flag without a listener.
    #[error("linux.seccomp.flags: SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV ignored without SCMP_ACT_NOTIFY")]
    NothingToReceive,
}
