//! What the program inherits from us: descriptors, and limits that it could not raise itself.
//!
//! The descriptors are those that the caller passes on to the program: sockets to listen on (sd_listen_fds(3)), and
//! those of `--preserve-fds`. They keep the numbers they have. None of ours can be among them: each number has to be
//! taken by what the caller left open over exec, and all that we open closes on exec.
//!
//! A process in a user namespace has no privilege over the machine, and may not raise a limit beyond what it has
//! inherited. It inherits from us: so before it is born we raise our own upper bounds as far as its are to be raised,
//! and leave alone what holds for us. The child then sets what was asked for, and says if it cannot.

use crate::error::Error;
use husk_bundle::Container;
use husk_bundle::container::NamespaceKind;
use husk_script::sys::Fd;
use husk_script::sys::file::fcntl_is_kept_on_exec;
use husk_script::sys::limits::{Rlimit, getrlimit, setrlimit};
use husk_script::sys::tolerate;
use std::env;

/// How many sockets we were given to listen on: the variables are meant for us only if they say so.
pub(crate) fn listen_fds() -> u32 {
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    if number("LISTEN_PID") == Some(std::process::id()) { number("LISTEN_FDS").unwrap_or(0) } else { 0 }
}

/// Whether they are all there.
pub(crate) fn check_descriptors(listen_fds: u32, preserve_fds: u32) -> Result<(), Error> {
    let (first, listen_fds) = (u64::from(Fd::FIRST_EXTRA.number().unsigned_abs()), u64::from(listen_fds));
    let passed = first..first + listen_fds + u64::from(preserve_fds);
    for number in passed {
        let fd = i32::try_from(number).ok().and_then(Fd::new);
        if !fd.is_some_and(|fd| fcntl_is_kept_on_exec(fd).unwrap_or(false)) {
            let option = if number < first + listen_fds { "LISTEN_FDS" } else { "--preserve-fds" };
            return Err(Error::Descriptor { option, number });
        }
    }
    Ok(())
}

/// Makes room for the limits of a container with a user namespace. Nothing changes for another one.
pub(crate) fn make_room(container: &Container) {
    let has_users = container.namespaces.iter().any(|namespace| namespace.kind == NamespaceKind::User);
    let Some(process) = container.process.as_ref().filter(|_| has_users) else { return };
    for (_, resource, wanted) in husk_plan::rlimits(process) {
        let ours = getrlimit(resource);
        if is_above(wanted.maximum, ours.maximum) {
            let raised = setrlimit(resource, Rlimit { maximum: wanted.maximum, ..ours });
            tolerate(raised, "the error of the child's own call names the field");
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
