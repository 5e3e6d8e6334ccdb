//! What can be wrong with a profile, and what is odd about one.

use crate::Abi;

/// Why a profile cannot become a program. The words follow the field that is named in them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The listener would have to decide about the calls that hand it over.
    #[error("linux.seccomp.defaultAction: SCMP_ACT_NOTIFY cannot be the default")]
    NotifyByDefault,
    /// The same, for the one call that runc and crun do not allow to be notified.
    #[error("linux.seccomp.syscalls[{rule}]: SCMP_ACT_NOTIFY cannot be used for the write syscall")]
    NotifyWrite {
        /// The entry.
        rule: usize,
    },
    /// Two entries disagree about the same calls.
    #[error(
        "linux.seccomp.syscalls[{rule}].args: an earlier entry has another action for {call} under \
         these conditions (on {})", abi.name()
    )]
    Conflict {
        /// The later entry.
        rule: usize,
        /// The call.
        call: &'static str,
        /// Where the conditions are the same; on others they may differ in an argument's upper half.
        abi: Abi,
    },
    /// The kernel takes no program so long.
    #[error(
        "linux.seccomp.syscalls: {length} instructions, and the kernel takes {}",
        crate::MAX_INSTRUCTIONS
    )]
    TooLong {
        /// Its length.
        length: usize,
    },
}

/// Something that was left out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// A name that no architecture has a call for: mistaken, or newer than husk. The rule holds for
    /// its other names.
    #[error("linux.seccomp.syscalls[{rule}].names: unknown system call {name:?} ignored")]
    UnknownCall {
        /// The entry.
        rule: usize,
        /// The name.
        name: String,
    },
    /// The kernel refuses the flag without a listener, where it would have no meaning.
    #[error("linux.seccomp.flags: SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV ignored without SCMP_ACT_NOTIFY")]
    NothingToReceive,
}
