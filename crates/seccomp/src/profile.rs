//! What a configuration asks for, in plain types. `bundle` fills them from `linux.seccomp`.

use crate::Arch;
use core::ops::BitOr;

/// `linux.seccomp`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// `defaultAction`, with `defaultErrnoRet`.
    pub default_action: Action,
    /// `architectures`. The native one need not be listed.
    pub architectures: Vec<Arch>,
    /// `flags`.
    pub flags: Flags,
    /// `syscalls`.
    pub rules: Vec<Rule>,
}

/// One entry of `syscalls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// `names`. What is no call of any architecture is left out, with a warning.
    pub names: Vec<String>,
    /// `action`, with `errnoRet`.
    pub action: Action,
    /// `args`: all must hold. If two are about the same argument, one is enough: that is how runc
    /// and crun read such an entry, because libseccomp takes no two conditions on one argument.
    pub conditions: Vec<Condition>,
}

/// What happens to a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// The thread ends; `SCMP_ACT_KILL` is the same.
    #[default]
    KillThread,
    /// The process ends.
    KillProcess,
    /// The thread gets `SIGSYS`.
    Trap,
    /// The call returns this error number.
    Errno(u16),
    /// A tracer is told, with this number; without one the call returns `ENOSYS`.
    Trace(u16),
    /// The call is made and logged.
    Log,
    /// The call is made.
    Allow,
    /// Whoever holds the listener decides.
    Notify,
}

/// Why an action cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAction {
    /// No action has this name.
    #[error("unknown action")]
    Unknown,
    /// An error number for an action that has no use for it. The specification wants this refused.
    #[error("the action takes no errnoRet")]
    Errno,
}

/// `EPERM`, what an action returns that may say an error number and does not.
const EPERM: u32 = 1;

impl Action {
    /// All names that a configuration gives to actions.
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

    /// The action with this name in a configuration, and with the `errnoRet` beside it.
    ///
    /// # Errors
    ///
    /// See [`BadAction`].
    pub fn from_oci(name: &str, errno: Option<u32>) -> Result<Self, BadAction> {
        // libseccomp keeps the lower sixteen bits as well.
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

    /// What a program returns for it (`SECCOMP_RET_*` of `<linux/seccomp.h>`, and the data).
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

/// One entry of `args`.
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

    /// The argument with this index, if a call has so many.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "less than six")]
    pub const fn new(index: u32) -> Option<Self> {
        if index < 6 { Some(Self(index as u8)) } else { None }
    }

    /// Its index.
    #[must_use]
    pub const fn index(self) -> u8 {
        self.0
    }
}

/// What an argument must be. Numbers are without sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Anything but this.
    NotEqual(u64),
    /// Less.
    Less(u64),
    /// Less, or the same.
    LessOrEqual(u64),
    /// The same.
    Equal(u64),
    /// The same, or more.
    GreaterOrEqual(u64),
    /// More.
    Greater(u64),
    /// The same in the bits of the mask.
    MaskedEqual {
        /// The bits that count.
        mask: u64,
        /// What they must be. Bits outside the mask do not matter, here neither.
        value: u64,
    },
}

impl Comparison {
    /// All names that a configuration gives to comparisons.
    pub const NAMES: [&'static str; 7] = [
        "SCMP_CMP_EQ",
        "SCMP_CMP_GE",
        "SCMP_CMP_GT",
        "SCMP_CMP_LE",
        "SCMP_CMP_LT",
        "SCMP_CMP_MASKED_EQ",
        "SCMP_CMP_NE",
    ];

    /// The comparison with this name in a configuration, and with `value` and `valueTwo` beside it.
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

    /// Whether an argument is what it must be.
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

/// Flags of seccomp(2), the bits that the kernel gave them.
///
/// The default is what runc and crun take where a configuration has no `flags` at all:
/// [`Flags::SPEC_ALLOW`]. An empty list is [`Flags::NONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    /// None.
    pub const NONE: Self = Self(0);
    /// Every action but `ALLOW` is logged.
    pub const LOG: Self = Self(1 << 1);
    /// Mitigations against speculative store bypass are not switched on.
    pub const SPEC_ALLOW: Self = Self(1 << 2);
    /// The call returns a listener. No configuration says so; a rule with `NOTIFY` does.
    pub const NEW_LISTENER: Self = Self(1 << 3);
    /// A call that the listener has received can only be interrupted by a fatal signal.
    pub const WAIT_KILLABLE_RECV: Self = Self(1 << 5);

    /// All names that a configuration gives to flags.
    pub const NAMES: [&'static str; 4] = [
        "SECCOMP_FILTER_FLAG_LOG",
        "SECCOMP_FILTER_FLAG_SPEC_ALLOW",
        "SECCOMP_FILTER_FLAG_TSYNC",
        "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV",
    ];

    /// The flag with this name in a configuration. `TSYNC` is none: there is one thread.
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

    /// Their bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether all of `other` are among them.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These without `other`.
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
    fn every_name_is_read() {
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
    fn actions_are_what_the_kernel_reads() {
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
    fn an_error_number_needs_an_action_that_returns_it() {
        assert_eq!(Action::from_oci("SCMP_ACT_ALLOW", Some(1)), Err(BadAction::Errno));
        assert_eq!(BadAction::Errno.to_string(), "the action takes no errnoRet");
    }

    #[test]
    fn a_mask_comes_first() {
        let comparison = Comparison::from_oci("SCMP_CMP_MASKED_EQ", 0x7e02_0000, 4).unwrap();
        assert_eq!(comparison, Comparison::MaskedEqual { mask: 0x7e02_0000, value: 4 });
    }

    #[test]
    fn flags_by_default() {
        assert_eq!(Flags::default(), Flags::SPEC_ALLOW);
        assert_eq!(Flags::from_oci("SECCOMP_FILTER_FLAG_TSYNC"), Some(Flags::NONE));
    }
}
