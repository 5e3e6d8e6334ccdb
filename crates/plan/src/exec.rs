//! `exec`: another process in a container that runs.
//!
//! Whoever lives in the container's pid namespace sees every process in it, and with CAP_SYS_PTRACE may
//! look into those that hold no more than it does itself. So everything that needs privilege is done
//! before the process is seen inside: it sheds what the program will not have, and only then is born
//! into the pid namespace (`Step::CloneParent`).

use crate::builder::{Builder, Error, Plan};
use crate::host::Host;
use crate::seccomp::When;
use crate::{Call, identity, keyring, lsm, process, seccomp};
use bumpalo::Bump;
use husk_bundle::Container;
use husk_bundle::container::NoNewPrivileges;
use husk_script::Step;
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::{Fd, Gid, Uid};

/// The container that a process is to be in.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The pidfd of its first process.
    pub init: Fd,
    /// The kinds of namespaces that it does not share with us.
    pub namespaces: Namespaces,
}

/// Writes the plan of a process that joins a container into `memory`. Its `process` is the one of
/// `container`.
///
/// # Errors
///
/// If it asks for something that cannot be done on this machine.
pub fn exec<'b>(
    container: &Container,
    target: Target,
    host: &Host,
    call: &Call<'_>,
    memory: &'b Bump,
) -> Result<Plan<'b>, Error> {
    let mut plan = Builder::new(memory);
    process::detach(call, host, Some(target.init), &mut plan);
    // Through the caller's procfs, which no container has prepared.
    let label = lsm::open(container, host, &mut plan)?;
    // What would need privilege over the host, which is given up next.
    process::oom_score(container, &mut plan);
    process::limits(container, &mut plan);
    // Nobody inside looks into what we are until we are the program.
    plan.at("exec").push(Step::Undumpable);
    join(target, &mut plan);
    keyring::join(container, call, &mut plan)?;
    lsm::confine(label, &mut plan);
    identity::bounding(container, &mut plan);
    // A filter needs CAP_SYS_ADMIN, which the next line gives up, or no_new_privs.
    seccomp::load(container, host, When::Privileged, &mut plan)?;
    identity::become_user(container, host, &mut plan);
    if let Some(process) = &container.process {
        process::cwd(process, &mut plan)?;
        if process.no_new_privileges == NoNewPrivileges::Set {
            plan.at("process.noNewPrivileges").push(Step::NoNewPrivs);
        }
        // Only now, with no more than the program will have: whoever is inside sees it from here on.
        if target.namespaces.contains(Namespaces::PID) {
            plan.at("exec").push(Step::CloneParent { namespaces: Namespaces::EMPTY });
        }
        process::find(process, call, &mut plan)?;
        seccomp::load(container, host, When::Last, &mut plan)?;
        process::exec(process, host, call, &mut plan)?;
    }
    Ok(plan.finish(Namespaces::EMPTY))
}

/// Joins all at once: either we are inside or we are not. The pid namespace among them holds for
/// children only, and one of time cannot be joined by who shares its memory.
fn join(target: Target, plan: &mut Builder<'_>) {
    let namespaces = target.namespaces.without(Namespaces::TIME);
    plan.at("exec").push(Step::Setns { fd: target.init.into(), namespaces });
    if namespaces.contains(Namespaces::USER) {
        // Until now we are whoever called us, who may be nobody in there.
        plan.push(Step::Setresgid { gid: Gid::from_raw(0) });
        plan.push(Step::Setresuid { uid: Uid::from_raw(0) });
    }
}
