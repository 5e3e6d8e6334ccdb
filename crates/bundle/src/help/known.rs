//! The names that a configuration may use, sorted, out of the tables that it is read by.

use crate::fields::hooks::HOOKS;
use crate::fields::{linux, memory, options};
use husk_seccomp::{Action, Arch, Comparison, Flags};

/// Keys of `hooks`.
#[must_use]
pub fn hooks() -> Vec<&'static str> {
    HOOKS.to_vec()
}

/// What may stand in `mounts[].options` and is not a file system's own.
#[must_use]
pub fn mount_options() -> Vec<&'static str> {
    sorted(options::MEANINGS.iter().map(|(name, _)| *name))
}

/// `linux.namespaces[].type`.
#[must_use]
pub fn namespaces() -> Vec<&'static str> {
    sorted(linux::NAMESPACES.iter().map(|(name, ..)| *name))
}

/// Capabilities, in the order of their numbers.
#[must_use]
pub fn capabilities() -> Vec<String> {
    let mut all: Vec<_> = caps::all().into_iter().collect();
    all.sort_by_key(caps::Capability::index);
    all.iter().map(ToString::to_string).collect()
}

/// `linux.memoryPolicy.mode`.
#[must_use]
pub fn memory_policy_modes() -> Vec<&'static str> {
    sorted(memory::MODES.iter().map(|(name, _)| *name))
}

/// `linux.memoryPolicy.flags`.
#[must_use]
pub fn memory_policy_flags() -> Vec<&'static str> {
    sorted(memory::FLAGS.iter().map(|(name, _)| *name))
}

/// Actions of `linux.seccomp`.
#[must_use]
pub fn seccomp_actions() -> Vec<&'static str> {
    sorted(Action::NAMES)
}

/// Operators of `linux.seccomp`.
#[must_use]
pub fn seccomp_operators() -> Vec<&'static str> {
    sorted(Comparison::NAMES)
}

/// Architectures of `linux.seccomp`. Libseccomp's `NATIVE` is read, but is none of the specification's.
#[must_use]
pub fn seccomp_archs() -> Vec<&'static str> {
    sorted(Arch::NAMES.into_iter().filter(|(_, arch)| *arch != Arch::Native).map(|(name, _)| name))
}

/// `linux.seccomp.flags`, with the bits that the kernel is told for them.
#[must_use]
pub fn seccomp_flags() -> Vec<(&'static str, Flags)> {
    Flags::NAMES.into_iter().filter_map(|name| Some((name, Flags::from_oci(name)?))).collect()
}

fn sorted(names: impl IntoIterator<Item = &'static str>) -> Vec<&'static str> {
    let mut names: Vec<_> = names.into_iter().collect();
    names.sort_unstable();
    names
}
