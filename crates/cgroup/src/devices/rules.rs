//! Rules about devices, and their meaning.
//!
//! All devices are denied at first, and the rules apply in order (config-linux.md, "Allowed Device list":
//! "entries MUST be applied in the listed order"). Each requested access (read, write or mknod) is decided by
//! the last rule that covers the device and the access. A rule of type `a` covers block and character devices,
//! and its numbers apply as usual.
//!
//! runc gives some rules version 1's meaning. There, a rule of type `a` resets everything, whatever its numbers
//! and accesses. Denying less than an earlier rule allows is an error. crun allows a request that a later rule
//! denies in part.

use core::fmt::{self, Display, Formatter};

/// An entry of `linux.resources.devices`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    pub allow: bool,
    /// `type`.
    pub kind: Type,
    /// `major`; `None` is any.
    pub major: Option<u32>,
    /// `minor`; `None` is any.
    pub minor: Option<u32>,
    pub access: DevicePermissions,
}

/// The type of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Type {
    /// Block and character devices.
    All,
    /// `b`.
    Block,
    /// `c`.
    Character,
}

/// A set of accesses to a device, in the kernel's bits (`BPF_DEVCG_ACC_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DevicePermissions(u8);

impl DevicePermissions {
    pub const NONE: Self = Self(0);
    /// `m`: creating a device node.
    pub const MKNOD: Self = Self(1);
    /// `r`.
    pub const READ: Self = Self(2);
    /// `w`.
    pub const WRITE: Self = Self(4);
    pub const ALL: Self = Self(7);

    /// Parses a non-empty string of the letters `rwm`.
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

    /// Returns the kernel's bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns the set of these bits; unknown bits are ignored.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & 7)
    }

    /// Returns the accesses that are in either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the accesses that are in both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the accesses that are not in `other`.
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

/// The request that the kernel passes to a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceAccess {
    /// The type of the device, never [`Type::All`].
    pub kind: Type,
    pub major: u32,
    pub minor: u32,
    /// The requested accesses.
    pub access: DevicePermissions,
}

impl Rule {
    /// Returns whether the rule covers this device.
    #[must_use]
    pub fn is_about(&self, request: &DeviceAccess) -> bool {
        (self.kind == Type::All || self.kind == request.kind)
            && self.major.is_none_or(|major| major == request.major)
            && self.minor.is_none_or(|minor| minor == request.minor)
    }

    /// Returns whether the rule covers every access to every device, so that no earlier rule matters.
    pub(crate) fn is_about_everything(&self) -> bool {
        matches!(
            self,
            Self { allow: _, kind: Type::All, major: None, minor: None, access: DevicePermissions::ALL }
        )
    }
}

/// Returns the accesses to a device that the rules allow, whatever is requested.
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

/// Returns whether the rules allow the request. A request for no access, as by access(2), is allowed if any
/// access is.
#[must_use]
pub fn allows(rules: &[Rule], request: &DeviceAccess) -> bool {
    let allowed = allowed(rules, request);
    allowed != DevicePermissions::NONE && request.access.without(allowed) == DevicePermissions::NONE
}

/// Returns the rules that apply to every container after its own, as in runc (libcontainer/specconv,
/// `AllowedDevices`) and crun. They allow creating any device node. They also allow using terminals, tun (which
/// old tools rely on) and the devices that runtimes provide (config-linux.md, "Default Devices").
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
    fn access_letters_parse_as_a_set() {
        assert_eq!(DevicePermissions::parse("mrw"), Some(DevicePermissions::ALL));
        assert_eq!(DevicePermissions::parse("ww").unwrap().to_string(), "w");
        assert_eq!(DevicePermissions::ALL.to_string(), "rwm");
        assert_eq!(DevicePermissions::parse("rx"), None);
        assert_eq!(DevicePermissions::parse(""), None);
    }

    #[test]
    fn last_matching_rule_decides_each_access() {
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
        // Each rule allows a part.
        assert!(ask(&[rule(true, "r"), rule(true, "w")], "rw"));
        // The second rule denies a part again.
        let holed = [rule(true, "rwm"), rule(false, "w")];
        assert!(ask(&holed, "rm"));
        assert!(!ask(&holed, "rw"));
        assert!(!ask(&[], "r"));
    }
}
