//! Errors and warnings about a profile.

use crate::Abi;

/// The reason why a profile cannot become a program. Each message begins with the field that it is about.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// `SCMP_ACT_NOTIFY` is the default action: the calls that hand over the listener would wait for it.
    #[error("linux.seccomp.defaultAction: SCMP_ACT_NOTIFY cannot be the default")]
    NotifyByDefault,
    /// `SCMP_ACT_NOTIFY` for `write`, which may be needed to hand over the listener. runc and crun reject it
    /// too.
    #[error("linux.seccomp.syscalls[{rule}]: SCMP_ACT_NOTIFY cannot be used for the write syscall")]
    NotifyWrite {
        /// The index of the entry in `syscalls`.
        rule: usize,
    },
    /// Two entries have different actions for the same call and conditions.
    #[error(
        "linux.seccomp.syscalls[{rule}].args: an earlier entry has another action for {call} under \
         these conditions (on {})", abi.name()
    )]
    Conflict {
        /// The index of the later entry in `syscalls`.
        rule: usize,
        /// The call's name.
        call: &'static str,
        /// An ABI on which the conditions are equal. On others they may differ in an argument's upper half.
        abi: Abi,
    },
    /// The program is longer than the kernel accepts.
    #[error(
        "linux.seccomp.syscalls: {length} instructions, and the kernel takes {}",
        crate::MAX_INSTRUCTIONS
    )]
    TooLong {
        /// Its length in instructions.
        length: usize,
    },
}

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
