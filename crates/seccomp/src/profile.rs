//! A configuration's seccomp profile in plain types. `bundle` fills them from `linux.seccomp`.

use crate::Arch;
use core::ops::BitOr;

/// `linux.seccomp`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// `defaultAction`, with `defaultErrnoRet`.
    pub default_action: Action,
    /// `architectures`. The native one need not be listed.
    pub architectures: Vec<Arch>,
    /// `flags`, which apply to the whole filter.
    pub flags: Flags,
    /// `syscalls`.
    pub rules: Vec<Rule>,
}

/// An entry of `syscalls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// `names`. A name that is not a call of any architecture is ignored with a warning.
    pub names: Vec<String>,
    /// `action`, with `errnoRet`.
    pub action: Action,
    /// `args`: all must match. If two are on the same argument, any condition of the entry suffices. runc and
    /// crun read it that way, because libseccomp allows one condition per argument.
    pub conditions: Vec<Condition>,
}

/// The kernel's action on a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// Ends the thread. `SCMP_ACT_KILL` is the same.
    #[default]
    KillThread,
    /// Ends the process.
    KillProcess,
    /// Sends `SIGSYS` to the thread.
    Trap,
    /// Makes the call return this error number.
    Errno(u16),
    /// Notifies a tracer with this number. Without a tracer the call returns `ENOSYS`.
    Trace(u16),
    /// Makes the call and logs it.
    Log,
    /// Makes the call.
    Allow,
    /// Lets the process that holds the listener decide.
    Notify,
}

/// The reason why an action is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAction {
    /// No action has this name.
    #[error("unknown action")]
    Unknown,
    /// An `errnoRet` for an action that does not return it, which the specification forbids.
    #[error("the action takes no errnoRet")]
    Errno,
}

/// The `errnoRet` of an action that takes one, if the configuration does not set it.
const EPERM: u32 = 1;

impl Action {
    /// All names of actions in a configuration.
    pub const NAMES: [&'static str; 9] = [
        "SCMP_ACT_ALLOW",
        "SCMP_ACT_ERRNO",
        "SCMP_ACT_KILL",
        "SCMP_ACT_KILL_PROCESS",
        "SCMP_ACT_KILL_THREAD",
        "SCMP_ACT_LOG",
        "SCMP_ACT_NOTIFY",
        "SCMP_ACT_TRACE",
        "SCMP_ACT_TRAP",
    ];

    /// Returns the action with this name in a configuration. `errno` is the entry's `errnoRet`.
    ///
    /// # Errors
    ///
    /// See [`BadAction`].
    pub fn from_oci(name: &str, errno: Option<u32>) -> Result<Self, BadAction> {
        // libseccomp also keeps only the lower 16 bits.
        let data = (errno.unwrap_or(EPERM) & 0xffff) as u16;
        let action = match name {
            "SCMP_ACT_ERRNO" => return Ok(Self::Errno(data)),
            "SCMP_ACT_TRACE" => return Ok(Self::Trace(data)),
            "SCMP_ACT_ALLOW" => Self::Allow,
            "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => Self::KillThread,
            "SCMP_ACT_KILL_PROCESS" => Self::KillProcess,
            "SCMP_ACT_LOG" => Self::Log,
            "SCMP_ACT_NOTIFY" => Self::Notify,
            "SCMP_ACT_TRAP" => Self::Trap,
            _ => return Err(BadAction::Unknown),
        };
        if errno.is_some() { Err(BadAction::Errno) } else { Ok(action) }
    }

    /// Returns the filter's return value (`SECCOMP_RET_*` of `<linux/seccomp.h>`, with the data).
    #[must_use]
    pub const fn value(self) -> u32 {
        match self {
            Self::KillProcess => 0x8000_0000,
            Self::KillThread => 0x0000_0000,
            Self::Trap => 0x0003_0000,
            Self::Errno(number) => 0x0005_0000 | number as u32,
            Self::Notify => 0x7fc0_0000,
            Self::Trace(data) => 0x7ff0_0000 | data as u32,
            Self::Log => 0x7ffc_0000,
            Self::Allow => 0x7fff_0000,
        }
    }
}

/// An entry of `args`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// `index`.
    pub argument: Argument,
    /// `op`, with `value` and `valueTwo`.
    pub comparison: Comparison,
}

/// One of the six arguments of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Argument(u8);

impl Argument {
    pub(crate) const FIRST: Self = Self(0);

    /// Returns the argument with this index, if it is below six.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "less than six")]
    pub const fn new(index: u32) -> Option<Self> {
        if index < 6 { Some(Self(index as u8)) } else { None }
    }

    /// Returns the index of the argument, 0 to 5.
    #[must_use]
    pub const fn index(self) -> u8 {
        self.0
    }
}

/// The condition on an argument. Numbers are unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Not equal to this value.
    NotEqual(u64),
    /// Less than this value.
    Less(u64),
    /// Less than or equal to this value.
    LessOrEqual(u64),
    /// Equal to this value.
    Equal(u64),
    /// Greater than or equal to this value.
    GreaterOrEqual(u64),
    /// Greater than this value.
    Greater(u64),
    /// Equal to the value in the bits of the mask.
    MaskedEqual {
        /// The bits that are compared.
        mask: u64,
        /// Their value. Bits outside the mask are ignored.
        value: u64,
    },
}

impl Comparison {
    /// All names of comparisons in a configuration.
    pub const NAMES: [&'static str; 7] = [
        "SCMP_CMP_EQ",
        "SCMP_CMP_GE",
        "SCMP_CMP_GT",
        "SCMP_CMP_LE",
        "SCMP_CMP_LT",
        "SCMP_CMP_MASKED_EQ",
        "SCMP_CMP_NE",
    ];

    /// Returns the comparison with this name in a configuration, with the entry's `value` and `valueTwo`.
    #[must_use]
    pub fn from_oci(name: &str, value: u64, value_two: u64) -> Option<Self> {
        Some(match name {
            "SCMP_CMP_NE" => Self::NotEqual(value),
            "SCMP_CMP_LT" => Self::Less(value),
            "SCMP_CMP_LE" => Self::LessOrEqual(value),
            "SCMP_CMP_EQ" => Self::Equal(value),
            "SCMP_CMP_GE" => Self::GreaterOrEqual(value),
            "SCMP_CMP_GT" => Self::Greater(value),
            "SCMP_CMP_MASKED_EQ" => Self::MaskedEqual { mask: value, value: value_two },
            _ => return None,
        })
    }

    /// Returns whether the argument matches.
    #[must_use]
    pub const fn holds(self, argument: u64) -> bool {
        match self {
            Self::NotEqual(value) => argument != value,
            Self::Less(value) => argument < value,
            Self::LessOrEqual(value) => argument <= value,
            Self::Equal(value) => argument == value,
            Self::GreaterOrEqual(value) => argument >= value,
            Self::Greater(value) => argument > value,
            Self::MaskedEqual { mask, value } => argument & mask == value & mask,
        }
    }
}

/// Flags of seccomp(2), with the kernel's bits.
///
/// The default is [`Flags::SPEC_ALLOW`], as in runc and crun for a configuration without `flags`. An empty list
/// in the configuration means [`Flags::NONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    /// No flags.
    pub const NONE: Self = Self(0);
    /// Logs every action except `ALLOW`.
    pub const LOG: Self = Self(1 << 1);
    /// Leaves mitigations against speculative store bypass disabled.
    pub const SPEC_ALLOW: Self = Self(1 << 2);
    /// Makes seccomp(2) return a listener. A rule with `NOTIFY` sets this flag; a configuration cannot name it.
    pub const NEW_LISTENER: Self = Self(1 << 3);
    /// Once the listener has received a call, only fatal signals can interrupt it.
    pub const WAIT_KILLABLE_RECV: Self = Self(1 << 5);

    /// All names of flags in a configuration.
    pub const NAMES: [&'static str; 4] = [
        "SECCOMP_FILTER_FLAG_LOG",
        "SECCOMP_FILTER_FLAG_SPEC_ALLOW",
        "SECCOMP_FILTER_FLAG_TSYNC",
        "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV",
    ];

    /// Returns the flag with this name in a configuration. `TSYNC` is [`Flags::NONE`]: there is one thread.
    #[must_use]
    pub fn from_oci(name: &str) -> Option<Self> {
        Some(match name {
            "SECCOMP_FILTER_FLAG_LOG" => Self::LOG,
            "SECCOMP_FILTER_FLAG_SPEC_ALLOW" => Self::SPEC_ALLOW,
            "SECCOMP_FILTER_FLAG_TSYNC" => Self::NONE,
            "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV" => Self::WAIT_KILLABLE_RECV,
            _ => return None,
        })
    }

    /// Returns the kernel's bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns whether all flags of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the flags without those of `other`.
    #[must_use]
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl Default for Flags {
    fn default() -> Self {
        Self::SPEC_ALLOW
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_name_is_parsed() {
        assert!(Action::NAMES.iter().all(|name| Action::from_oci(name, None).is_ok()));
        assert!(Comparison::NAMES.iter().all(|name| Comparison::from_oci(name, 0, 0).is_some()));
        assert!(Flags::NAMES.iter().all(|name| Flags::from_oci(name).is_some()));
        assert!(Arch::NAMES.iter().all(|(name, arch)| Arch::from_oci(name) == Some(*arch)));
        assert_eq!(Action::from_oci("SCMP_ACT_NONE", None), Err(BadAction::Unknown));
        assert_eq!(Comparison::from_oci("SCMP_CMP_NONE", 0, 0), None);
        assert_eq!(Flags::from_oci("SECCOMP_FILTER_FLAG_NEW_LISTENER"), None);
        assert_eq!(Arch::from_oci("SCMP_ARCH_VAX"), None);
        assert_eq!(Argument::new(6), None);
    }

    // The values of <linux/seccomp.h>.
    #[test]
    fn action_values_match_the_kernels() {
        let value = |name, errno| Action::from_oci(name, errno).unwrap().value();
        assert_eq!(value("SCMP_ACT_KILL", None), 0);
        assert_eq!(value("SCMP_ACT_KILL_THREAD", None), 0);
        assert_eq!(value("SCMP_ACT_KILL_PROCESS", None), 0x8000_0000);
        assert_eq!(value("SCMP_ACT_TRAP", None), 0x0003_0000);
        assert_eq!(value("SCMP_ACT_ERRNO", None), 0x0005_0001);
        assert_eq!(value("SCMP_ACT_ERRNO", Some(38)), 0x0005_0026);
        assert_eq!(value("SCMP_ACT_ERRNO", Some(0)), 0x0005_0000);
        assert_eq!(value("SCMP_ACT_NOTIFY", None), 0x7fc0_0000);
        assert_eq!(value("SCMP_ACT_TRACE", None), 0x7ff0_0001);
        assert_eq!(value("SCMP_ACT_TRACE", Some(7)), 0x7ff0_0007);
        assert_eq!(value("SCMP_ACT_LOG", None), 0x7ffc_0000);
        assert_eq!(value("SCMP_ACT_ALLOW", None), 0x7fff_0000);
    }

    #[test]
    fn errno_needs_an_action_that_returns_it() {
        assert_eq!(Action::from_oci("SCMP_ACT_ALLOW", Some(1)), Err(BadAction::Errno));
        assert_eq!(BadAction::Errno.to_string(), "the action takes no errnoRet");
    }

    #[test]
    fn masked_comparison_takes_the_mask_first() {
        let comparison = Comparison::from_oci("SCMP_CMP_MASKED_EQ", 0x7e02_0000, 4).unwrap();
        assert_eq!(comparison, Comparison::MaskedEqual { mask: 0x7e02_0000, value: 4 });
    }

    #[test]
    fn default_flag_is_spec_allow() {
        assert_eq!(Flags::default(), Flags::SPEC_ALLOW);
        assert_eq!(Flags::from_oci("SECCOMP_FILTER_FLAG_TSYNC"), Some(Flags::NONE));
    }
}
