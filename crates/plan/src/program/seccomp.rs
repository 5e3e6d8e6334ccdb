//! Compiles `linux.seccomp` into a filter, which the child loads.

use crate::builder::{Builder, Error};
use crate::host::Host;
use husk_bundle::Container;
use husk_bundle::container::{NoNewPrivileges, UnknownCalls};
use husk_script::Step;
use husk_script::sys::process::SockFilter;
use husk_seccomp::{Action, Profile, Table};

/// The point at which a filter is loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// The filter is loaded while the process has CAP_SYS_ADMIN, which loading needs without no_new_privs.
    Privileged,
    /// The filter is loaded while the parent can still hand over the listener. The program has no_new_privs.
    Attended,
    /// The filter is loaded last, directly before exec. The program has no_new_privs.
    Last,
}

const FIELD: &str = "linux.seccomp";

/// Returns the profile's decisions on this machine, which can be printed, and the names that are not system calls.
///
/// # Errors
///
/// Fails if the profile contradicts itself.
pub fn decisions(container: &Container, host: &Host) -> Result<Option<(Table, Vec<String>)>, Error> {
    let Some(profile) = &container.seccomp else { return Ok(None) };
    let (table, unknown) = Table::new(profile, &host.machine).map_err(|error| Error::seccomp(&error))?;
    Ok(Some((table, unknown.iter().map(|unknown| unknown.to_string()).collect())))
}

impl Error {
    fn seccomp(error: &husk_seccomp::Error) -> Self {
        Self::new(error.field().into_owned().into(), error.reason())
    }
}

/// Returns when the container's filter is loaded, if it has one.
pub(crate) fn wanted(container: &Container) -> Option<When> {
    let (profile, process) = (container.seccomp.as_ref()?, container.process.as_ref()?);
    Some(match process.no_new_privileges {
        NoNewPrivileges::Set if notifies(profile) => When::Attended,
        NoNewPrivileges::Set => When::Last,
        NoNewPrivileges::Unset => When::Privileged,
    })
}

fn notifies(profile: &Profile) -> bool {
    profile.rules.iter().any(|rule| rule.action == Action::Notify)
}

pub(crate) fn load(
    container: &Container,
    host: &Host,
    when: When,
    plan: &mut Builder<'_>,
) -> Result<(), Error> {
    let Some(profile) = container.seccomp.as_ref().filter(|_| wanted(container) == Some(when)) else {
        return Ok(());
    };
    if notifies(profile) && container.seccomp_listener.is_none() {
        return Err(plan.at("linux.seccomp.listenerPath").error("seccomp listenerPath is not set"));
    }
    // Names that no machine knows belong to calls that no program can make.
    let (table, unknown) = Table::new(profile, &host.machine).map_err(|error| Error::seccomp(&error))?;
    if let Some(unknown) = unknown.first().filter(|_| container.unknown_calls == UnknownCalls::Refused) {
        let reason =
            format!("unknown system call, and run.oci.seccomp_fail_unknown_syscall is set: {unknown}");
        return Err(plan.at(FIELD).error(reason));
    }
    let program = table.program().map_err(|error| Error::seccomp(&error))?;
    let instructions = program.instructions.iter();
    let instructions =
        instructions.map(|from| SockFilter { code: from.code, jt: from.jt, jf: from.jf, k: from.k });
    let instructions: Vec<_> = instructions.collect();
    let (flags, notifies) = (program.flags.bits(), program.notifies());
    let program = plan.slice(&instructions);
    plan.at(FIELD).push(if notifies {
        Step::SeccompListener { flags, program }
    } else {
        Step::Seccomp { flags, program }
    });
    Ok(())
}
