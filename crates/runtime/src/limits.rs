//! Limits that a process in a user namespace cannot raise.
//!
//! There it has no privilege over the machine, and may not go beyond what it has inherited. It inherits from us: so
//! before it is born we raise our own upper bounds as far as its are to be raised, and leave alone what holds for
//! us. The child then sets what was asked for, and says if it cannot.

use husk_bundle::Container;
use husk_bundle::container::NamespaceKind;
use husk_script::sys::limits::{Rlimit, getrlimit, setrlimit};

/// Makes room for the limits of a container with a user namespace. Nothing changes for another one.
pub(crate) fn make_room(container: &Container) {
    let has_users = container.namespaces.iter().any(|namespace| namespace.kind == NamespaceKind::User);
    let Some(process) = container.process.as_ref().filter(|_| has_users) else { return };
    for (_, resource, wanted) in husk_plan::rlimits(process) {
        let ours = getrlimit(resource);
        if is_above(wanted.maximum, ours.maximum) {
            // Tolerated: it may be more than we are allowed, and the child's error has the field.
            setrlimit(resource, Rlimit { maximum: wanted.maximum, ..ours }).unwrap_or(());
        }
    }
}

/// Whether one bound is above another. None is above all.
fn is_above(one: Option<u64>, other: Option<u64>) -> bool {
    match (one, other) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(one), Some(other)) => one > other,
    }
}

#[cfg(test)]
mod tests {
    use super::is_above;

    #[test]
    fn no_bound_is_above_all() {
        assert!(is_above(None, Some(u64::MAX)));
        assert!(is_above(Some(2), Some(1)));
        assert!(!is_above(Some(1), Some(1)));
        assert!(!is_above(Some(1), None));
        assert!(!is_above(None, None));
    }
}
