//! Lists the names that a configuration may use, from the tables with which it is read. Lists are sorted unless
//! noted.

use crate::fields::hooks::HOOKS;
use crate::fields::{linux, memory, options};
use husk_seccomp::{Action, Arch, Comparison, Flags};

/// Returns the keys of `hooks`, in the order in which the hooks run.
#[must_use]
pub fn hooks() -> Vec<&'static str> {
    HOOKS.to_vec()
}

/// Returns the values of `mounts[].options` that are not specific to a file system.
#[must_use]
pub fn mount_options() -> Vec<&'static str> {
    sorted(options::MEANINGS.iter().map(|(name, _)| *name))
}

/// Returns the values of `linux.namespaces[].type`.
#[must_use]
pub fn namespaces() -> Vec<&'static str> {
    sorted(linux::NAMESPACES.iter().map(|(name, ..)| *name))
}

/// Returns all capabilities, ordered by number.
#[must_use]
pub fn capabilities() -> Vec<String> {
    let mut all: Vec<_> = caps::all().into_iter().collect();
    all.sort_by_key(caps::Capability::index);
    all.iter().map(ToString::to_string).collect()
}

/// Returns the values of `linux.memoryPolicy.mode`.
#[must_use]
pub fn memory_policy_modes() -> Vec<&'static str> {
    sorted(memory::MODES.iter().map(|(name, _)| *name))
}

/// Returns the values of `linux.memoryPolicy.flags`.
#[must_use]
pub fn memory_policy_flags() -> Vec<&'static str> {
    sorted(memory::FLAGS.iter().map(|(name, _)| *name))
}

/// Returns the actions of `linux.seccomp`.
#[must_use]
pub fn seccomp_actions() -> Vec<&'static str> {
    sorted(Action::NAMES)
}

/// Returns the operators of `linux.seccomp`.
#[must_use]
pub fn seccomp_operators() -> Vec<&'static str> {
    sorted(Comparison::NAMES)
}

/// Returns the architectures of `linux.seccomp`. Libseccomp's `NATIVE` is accepted but is not in the
/// specification, so it is not listed.
#[must_use]
pub fn seccomp_archs() -> Vec<&'static str> {
    sorted(Arch::NAMES.into_iter().filter(|(_, arch)| *arch != Arch::Native).map(|(name, _)| name))
}

/// Returns the values of `linux.seccomp.flags`, in table order, with the bits that the kernel takes for them.
#[must_use]
pub fn seccomp_flags() -> Vec<(&'static str, Flags)> {
    Flags::NAMES.into_iter().filter_map(|name| Some((name, Flags::from_oci(name)?))).collect()
}

fn sorted(names: impl IntoIterator<Item = &'static str>) -> Vec<&'static str> {
    let mut names: Vec<_> = names.into_iter().collect();
    names.sort_unstable();
    names
}
