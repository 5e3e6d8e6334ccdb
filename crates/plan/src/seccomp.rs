//! `linux.seccomp`: compiled here, loaded by the child.

use crate::builder::{Builder, Error};
use crate::host::Host;
use husk_bundle::Container;
use husk_bundle::container::NoNewPrivileges;
use husk_script::Step;
use husk_script::sys::process::Instruction;
use husk_seccomp::Table;

/// When a filter is loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// While there is CAP_SYS_ADMIN, which a program that may gain privileges needs for it.
    Privileged,
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
    let (table, unknown) = Table::new(profile, &host.machine).map_err(Error::seccomp)?;
    Ok(Some((table, unknown.iter().map(|unknown| unknown.to_string()).collect())))
}

impl Error {
    fn seccomp(error: impl ToString) -> Self {
        Self::new(FIELD, error.to_string())
    }
}

pub(crate) fn load(
    container: &Container,
    host: &Host,
    when: When,
    plan: &mut Builder<'_>,
) -> Result<(), Error> {
    let (Some(profile), Some(process)) = (&container.seccomp, &container.process) else { return Ok(()) };
    let wanted = match process.no_new_privileges {
        NoNewPrivileges::Set => When::Last,
        NoNewPrivileges::Unset => When::Privileged,
    };
    if when != wanted {
        return Ok(());
    }
    plan.at(FIELD);
    // Names that no machine knows are of calls that nobody can make.
    let (table, _unknown) = Table::new(profile, &host.machine).map_err(Error::seccomp)?;
    let program = table.program().map_err(|error| plan.error(error.to_string()))?;
    if program.notifies() {
        return Err(plan.error("SCMP_ACT_NOTIFY is not supported yet"));
    }
    let instructions = program.instructions.iter();
    let instructions =
        instructions.map(|from| Instruction { code: from.code, jt: from.jt, jf: from.jf, k: from.k });
    let instructions: Vec<_> = instructions.collect();
    let step = Step::Seccomp { flags: program.flags.bits(), program: plan.slice(&instructions) };
    plan.push(step);
    Ok(())
}
