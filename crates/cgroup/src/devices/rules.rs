//! Rules about devices, and what they mean.
//!
//! All devices are denied, and rules change that one after the other (config-linux.md, "Allowed Device
//! list": "entries MUST be applied in the listed order"): each access that is asked for, reading,
//! writing or mknod, is decided by the last rule that is about this device and this access. A rule of
//! type `a` is about block and character devices, and its numbers hold as those of any other.
//!
//! runc gives some rules another meaning, which is version 1's: one of type `a` resets everything,
//! whatever numbers and accesses it names; and a denial of less than an earlier rule allows is an
//! error. crun lets a request pass that a later rule denies in part.

use core::fmt::{self, Display, Formatter};

/// One of `linux.resources.devices`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// `allow`.
    pub allow: bool,
    /// `type`.
    pub kind: Type,
    /// `major`, or any.
    pub major: Option<u32>,
    /// `minor`, or any.
    pub minor: Option<u32>,
    /// `access`.
    pub access: DevicePermissions,
}

/// The type of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Type {
    /// Both.
    All,
    /// `b`.
    Block,
    /// `c`.
    Character,
}

/// What is done with a device: a set, in the kernel's bits (`BPF_DEVCG_ACC_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DevicePermissions(u8);

impl DevicePermissions {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// `m`: making a node for it.
    pub const MKNOD: Self = Self(1);
    /// `r`.
    pub const READ: Self = Self(2);
    /// `w`.
    pub const WRITE: Self = Self(4);
    /// Each.
    pub const ALL: Self = Self(7);

    /// The set of these letters, if they are some of `rwm`.
    #[must_use]
    pub fn parse(letters: &str) -> Option<Self> {
        let letters = letters.chars().map(|letter| match letter {
            'm' => Some(Self::MKNOD),
            'r' => Some(Self::READ),
            'w' => Some(Self::WRITE),
            _ => None,
        });
        let mut set = Self::NONE;
        for letter in letters {
            set = set.union(letter?);
        }
        (set != Self::NONE).then_some(set)
    }

    /// The kernel's bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The set of these bits.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & 7)
    }

    /// Those of either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those of both.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// These without those.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl Display for DevicePermissions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let letters = [(Self::READ, "r"), (Self::WRITE, "w"), (Self::MKNOD, "m")];
        let letters = letters.into_iter().filter(|(access, _)| self.intersection(*access) != Self::NONE);
        letters.map(|(_, letter)| letter).try_for_each(|letter| f.write_str(letter))
    }
}

/// What the kernel asks a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceAccess {
    /// Block or character.
    pub kind: Type,
    /// The major number.
    pub major: u32,
    /// The minor number.
    pub minor: u32,
    /// What is to be done with it.
    pub access: DevicePermissions,
}

impl Rule {
    /// Whether the rule is about this device.
    #[must_use]
    pub fn is_about(&self, request: &DeviceAccess) -> bool {
        (self.kind == Type::All || self.kind == request.kind)
            && self.major.is_none_or(|major| major == request.major)
            && self.minor.is_none_or(|minor| minor == request.minor)
    }

    /// Whether it is about every access to every device, so that no earlier rule matters.
    pub(crate) fn is_about_everything(&self) -> bool {
        matches!(
            self,
            Self { allow: _, kind: Type::All, major: None, minor: None, access: DevicePermissions::ALL }
        )
    }
}

/// What the rules allow to be done with a device, whatever is asked for.
pub(crate) fn allowed(rules: &[Rule], request: &DeviceAccess) -> DevicePermissions {
    let (mut allowed, mut decided) = (DevicePermissions::NONE, DevicePermissions::NONE);
    for rule in rules.iter().rev().filter(|rule| rule.is_about(request)) {
        if rule.allow {
            allowed = allowed.union(rule.access.without(decided));
        }
        decided = decided.union(rule.access);
        if decided == DevicePermissions::ALL {
            break;
        }
    }
    allowed
}

/// Whether the rules allow it. (No access at all, which access(2) can ask for, is allowed where any is.)
#[must_use]
pub fn allows(rules: &[Rule], request: &DeviceAccess) -> bool {
    let allowed = allowed(rules, request);
    allowed != DevicePermissions::NONE && request.access.without(allowed) == DevicePermissions::NONE
}

/// What every container may do, after all rules of its own, as in runc (libcontainer/specconv,
/// `AllowedDevices`) and crun: make nodes; use the devices that runtimes put there (config-linux.md,
/// "Default Devices"), terminals, and tun, which old tools count upon.
#[must_use]
pub const fn built_in() -> [Rule; 11] {
    const fn node(major: u32, minor: Option<u32>) -> Rule {
        Rule { allow: true, kind: Type::Character, major: Some(major), minor, access: DevicePermissions::ALL }
    }
    const fn mknod(kind: Type) -> Rule {
        Rule { allow: true, kind, major: None, minor: None, access: DevicePermissions::MKNOD }
    }
    [
        mknod(Type::Character),
        mknod(Type::Block),
        node(1, Some(3)),
        node(1, Some(8)),
        node(1, Some(7)),
        node(5, Some(0)),
        node(1, Some(5)),
        node(1, Some(9)),
        node(136, None),
        node(5, Some(2)),
        node(10, Some(200)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_a_set() {
        assert_eq!(DevicePermissions::parse("mrw"), Some(DevicePermissions::ALL));
        assert_eq!(DevicePermissions::parse("ww").unwrap().to_string(), "w");
        assert_eq!(DevicePermissions::ALL.to_string(), "rwm");
        assert_eq!(DevicePermissions::parse("rx"), None);
        assert_eq!(DevicePermissions::parse(""), None);
    }

    #[test]
    fn each_access_has_its_last_rule() {
        let rule = |allow, access| Rule {
            allow,
            kind: Type::Character,
            major: Some(1),
            minor: Some(3),
            access: DevicePermissions::parse(access).unwrap(),
        };
        let ask = |rules: &[Rule], access| {
            let access = DevicePermissions::parse(access).unwrap();
            allows(rules, &DeviceAccess { kind: Type::Character, major: 1, minor: 3, access })
        };
        // Two rules that each allow a part.
        assert!(ask(&[rule(true, "r"), rule(true, "w")], "rw"));
        // One that takes a part away again.
        let holed = [rule(true, "rwm"), rule(false, "w")];
        assert!(ask(&holed, "rm"));
        assert!(!ask(&holed, "rw"));
        assert!(!ask(&[], "r"));
    }
}
