//! Passes descriptors to the program, and limits that it could not raise itself.
//!
//! The descriptors are sockets to listen on (sd_listen_fds(3)) and those of `--preserve-fds`. They keep their numbers.
//! None of husk's own can be among them. Each number must be one that the caller left open across exec, and husk opens
//! all of its own close-on-exec.
//!
//! A process in a user namespace has no privilege over the host, and may not raise a limit beyond what it inherited. So
//! before husk creates it, husk raises its own hard limits as far as needed, and leaves its soft limits alone. The
//! child then sets the limits that were asked for, and reports those that fail.

use crate::error::Error;
use husk_bundle::Container;
use husk_bundle::container::NamespaceKind;
use husk_script::sys::Fd;
use husk_script::sys::file::fcntl_is_kept_on_exec;
use husk_script::sys::limits::{Rlimit, getrlimit, setrlimit};
use husk_script::sys::tolerate;
use std::env;

/// Returns the number of sockets that husk was given to listen on. The variables count only if `LISTEN_PID` is this
/// process.
pub(crate) fn listen_fds() -> u32 {
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    if number("LISTEN_PID") == Some(std::process::id()) { number("LISTEN_FDS").unwrap_or(0) } else { 0 }
}

/// Checks that all these descriptors are open and are kept on exec.
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

/// Raises this process's hard limits to those of a container with a user namespace. Does nothing for other containers.
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

/// Returns whether one limit is above another. `None` is unlimited.
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
    fn unlimited_is_above_every_limit() {
        assert!(is_above(None, Some(u64::MAX)));
        assert!(is_above(Some(2), Some(1)));
        assert!(!is_above(Some(1), Some(1)));
        assert!(!is_above(Some(1), None));
        assert!(!is_above(None, None));
    }
}
