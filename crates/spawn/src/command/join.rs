//! Existing namespaces that a process joins.

use husk_script::sys::namespace::Namespaces;
use std::os::fd::OwnedFd;

/// Namespaces to join.
#[derive(Debug)]
pub(crate) struct Join {
    /// A namespace, or the pidfd of a process that is in the namespaces.
    pub(crate) fd: OwnedFd,
    /// The kinds to join.
    pub(crate) kinds: Namespaces,
}

/// Namespaces that cannot be joined in shared memory, so the parent joins them (`time_namespace.rs`).
pub(crate) const IN_PARENT: Namespaces = Namespaces::TIME;
