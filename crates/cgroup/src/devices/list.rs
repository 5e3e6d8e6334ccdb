//! Translates rules to lines for version 1's `devices.allow` and `devices.deny`.
//!
//! Version 1's controller has a default and exceptions from it, each with a type, major, minor and accesses. It
//! cannot make an exception from an exception. Denying only part of an allowed range silently has no effect
//! (security/device_cgroup.c, `dev_exception_rm`); here it is an error.

use super::rules::{DevicePermissions, Rule, Type};
use crate::error::Error;
use std::collections::BTreeMap;

/// The devices of an exception; the type is never [`Type::All`].
pub(crate) type Device = (Type, Option<u32>, Option<u32>);

/// The file, and the line to write to it.
pub(crate) type Line = (&'static str, String);

/// Reduces rules to a default (whether devices are allowed) and the exceptions from it.
pub(crate) fn flatten(rules: &[Rule]) -> Result<(bool, BTreeMap<Device, DevicePermissions>), Error> {
    let mut default = false;
    let mut exceptions: BTreeMap<Device, DevicePermissions> = BTreeMap::new();
    for (index, rule) in rules.iter().enumerate() {
        if rule.is_about_everything() {
            default = rule.allow;
            exceptions.clear();
            continue;
        }
        let kinds: &[Type] = match &rule.kind {
            Type::All => &[Type::Block, Type::Character],
            kind => core::slice::from_ref(kind),
        };
        for kind in kinds {
            let device = (*kind, rule.major, rule.minor);
            if rule.allow == default {
                take_back(&mut exceptions, device, rule.access, index)?;
            } else {
                let access = exceptions.entry(device).or_default();
                *access = access.union(rule.access);
            }
        }
    }
    Ok((default, exceptions))
}

/// Returns the lines for a new cgroup.
pub(crate) fn lines(rules: &[Rule]) -> Result<Vec<Line>, Error> {
    let (default, exceptions) = flatten(rules)?;
    let (first, others) =
        if default { ("devices.allow", "devices.deny") } else { ("devices.deny", "devices.allow") };
    let mut lines = vec![(first, "a".to_owned())];
    lines.extend(exceptions.iter().map(|((kind, major, minor), access)| {
        let kind = if *kind == Type::Block { 'b' } else { 'c' };
        (others, format!("{kind} {}:{} {access}", star(*major), star(*minor)))
    }));
    Ok(lines)
}

/// Removes `access` to `device` from all exceptions.
fn take_back(
    exceptions: &mut BTreeMap<Device, DevicePermissions>,
    device: Device,
    access: DevicePermissions,
    index: usize,
) -> Result<(), Error> {
    for (exception, allowed) in exceptions.iter_mut() {
        if allowed.intersection(access) == DevicePermissions::NONE || !overlap(exception, &device) {
            continue;
        }
        if !covers(&device, exception) {
            let field = format!("linux.resources.devices[{index}]");
            let reason = "cgroup version 1 cannot make an exception from an earlier, wider rule";
            return Err(Error::invalid(field, reason));
        }
        *allowed = allowed.without(access);
    }
    exceptions.retain(|_, allowed| *allowed != DevicePermissions::NONE);
    Ok(())
}

fn overlap(a: &Device, b: &Device) -> bool {
    let meet = |a: Option<u32>, b: Option<u32>| a.is_none() || b.is_none() || a == b;
    a.0 == b.0 && meet(a.1, b.1) && meet(a.2, b.2)
}

fn covers(wide: &Device, narrow: &Device) -> bool {
    let holds = |wide: Option<u32>, narrow: Option<u32>| wide.is_none() || wide == narrow;
    wide.0 == narrow.0 && holds(wide.1, narrow.1) && holds(wide.2, narrow.2)
}

fn star(number: Option<u32>) -> String {
    number.map_or_else(|| "*".to_owned(), |number| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(allow: bool, kind: Type, major: Option<u32>, minor: Option<u32>, access: &str) -> Rule {
        Rule { allow, kind, major, minor, access: DevicePermissions::parse(access).unwrap() }
    }

    #[test]
    fn rules_become_a_default_and_exceptions() {
        let rules = [
            rule(false, Type::All, None, None, "rwm"),
            rule(true, Type::Character, Some(1), Some(3), "r"),
            rule(true, Type::Character, Some(1), Some(3), "w"),
            rule(true, Type::All, Some(8), None, "rwm"),
            rule(false, Type::Block, Some(8), None, "m"),
        ];
        let expected = [
            ("devices.deny", "a"),
            ("devices.allow", "b 8:* rw"),
            ("devices.allow", "c 1:3 rw"),
            ("devices.allow", "c 8:* rwm"),
        ];
        assert_eq!(lines(&rules).unwrap(), expected.map(|(file, line)| (file, line.to_owned())));
    }

    #[test]
    fn rule_that_version_1_ignores_is_an_error() {
        let rules = [
            rule(true, Type::Character, Some(1), None, "rwm"),
            rule(false, Type::Character, Some(1), Some(3), "w"),
        ];
        let error = lines(&rules).unwrap_err().to_string();
        assert!(error.starts_with("linux.resources.devices[1]: "), "{error}");
    }

    #[test]
    fn allowing_default_is_followed_by_denials() {
        let rules = [
            rule(true, Type::All, None, None, "rwm"),
            rule(false, Type::Block, None, None, "rw"),
            rule(true, Type::Block, None, None, "w"),
        ];
        let expected = [("devices.allow", "a"), ("devices.deny", "b *:* r")];
        assert_eq!(lines(&rules).unwrap(), expected.map(|(file, line)| (file, line.to_owned())));
    }
}
