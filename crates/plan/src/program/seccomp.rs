//! `linux.seccomp`: compiled here, loaded by the child.

use crate::builder::{Builder, Error};
use crate::host::Host;
use husk_bundle::Container;
use husk_bundle::container::{NoNewPrivileges, UnknownCalls};
use husk_script::Step;
use husk_script::sys::process::Instruction;
use husk_seccomp::{Action, Profile, Table};

/// When a filter is loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// While there is CAP_SYS_ADMIN, which a program that may gain privileges needs for it.
    Privileged,
    /// While the parent is there to hand over the listener, for a program that may not gain privileges.
    Attended,
    /// As the last thing before the program, which may not gain privileges.
    Last,
}

const FIELD: &str = "linux.seccomp";

/// What the container's profile decides on this machine, which prints itself, and the names in it that
/// are no call's.
///
/// # Errors
///
/// If the profile contradicts itself.
pub fn decisions(container: &Container, host: &Host) -> Result<Option<(Table, Vec<String>)>, Error> {
    let Some(profile) = &container.seccomp else { return Ok(None) };
    let (table, unknown) = Table::new(profile, &host.machine).map_err(|error| Error::seccomp(&error))?;
    Ok(Some((table, unknown.iter().map(|unknown| unknown.to_string()).collect())))
}

impl Error {
    /// The words begin with the field that they are about.
    fn seccomp(error: &husk_seccomp::Error) -> Self {
        let text = error.to_string();
        let (field, reason) = text.split_once(": ").unwrap_or((FIELD, &text));
        Self::new(field, reason.to_owned())
    }
}

/// When the container's filter is loaded, if it has one.
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
    // Names that no machine knows are of calls that nobody can make.
    let (table, unknown) = Table::new(profile, &host.machine).map_err(|error| Error::seccomp(&error))?;
    if let Some(unknown) = unknown.first().filter(|_| container.unknown_calls == UnknownCalls::Refused) {
        let reason =
            format!("unknown system call, and run.oci.seccomp_fail_unknown_syscall is set: {unknown}");
        return Err(plan.at(FIELD).error(reason));
    }
    let program = table.program().map_err(|error| Error::seccomp(&error))?;
    let instructions = program.instructions.iter();
    let instructions =
        instructions.map(|from| Instruction { code: from.code, jt: from.jt, jf: from.jf, k: from.k });
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
