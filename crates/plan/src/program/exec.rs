//! `exec`: another process in a container that runs.
//!
//! Whoever lives in the container's pid namespace sees every process in it, and with CAP_SYS_PTRACE may
//! look into those that hold no more than it does itself. So everything that needs privilege is done
//! before the process is seen inside: it sheds what the program will not have, and only then is born
//! into the pid namespace (`Step::CloneParent`).

use crate::builder::{Builder, Error, Plan, mode};
use crate::host::{CgroupEntry, Host};
use crate::invocation::Invocation;
use crate::namespaces::procfs;
use crate::program::seccomp::When;
use crate::program::terminal::Shown;
use crate::program::{identity, keyring, lsm, process, seccomp, terminal};
use bumpalo::Bump;
use husk_bundle::Container;
use husk_bundle::container::{ExecAffinity, NoNewPrivileges};
use husk_script::sys::file::OFlags;
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::{Fd, Gid, Uid};
use husk_script::{Reg, Request, Step};

/// The container that a process is to be in.
#[derive(Clone, Copy, Debug)]
pub struct JoinTarget {
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
    target: JoinTarget,
    host: &Host,
    invocation: &Invocation<'_>,
    memory: &'b Bump,
) -> Result<Plan<'b>, Error> {
    let mut plan = Builder::new(memory);
    process::detach(invocation, host, Some(target.init), &mut plan);
    if host.entry == CgroupEntry::Moved {
        plan.at("exec").push(Step::Request { what: Request::Cgroup });
    }
    // The caller's, which no container has prepared.
    let proc = procfs::open(lsm::needs_procfs(container), &mut plan)?;
    // What would need privilege over the host, which is given up next.
    process::oom_score(container, &mut plan);
    process::limits(container, &mut plan);
    let is_born_again =
        target.namespaces.contains(Namespaces::PID) || target.namespaces.contains(Namespaces::TIME);
    if !is_born_again {
        process::scheduler(container, &mut plan);
    }
    affinity(container, &mut plan);
    // Nobody inside looks into what we are until we are the program.
    plan.at("exec").push(Step::Undumpable);
    if target.namespaces.contains(Namespaces::TIME) {
        // One of time cannot be joined by who shares its memory. Before the label's file is opened, which the kernel
        // takes a label through only from who opened it.
        plan.push(Step::CloneParent { namespaces: Namespaces::EMPTY });
    }
    let label = lsm::open(container, host, proc, &mut plan)?;
    join(target, &mut plan);
    keyring::join(container, invocation, proc, &mut plan)?;
    procfs::close(proc, &mut plan);
    let root = root(&mut plan)?;
    terminal::open(container, root, Shown::Nowhere, &mut plan)?;
    plan.release(root);
    // Whatever process it goes on in has this from the one before.
    lsm::confine(label, &mut plan);
    identity::assume(container, host, invocation, &mut plan)?;
    if let Some(process) = &container.process {
        if process.no_new_privileges == NoNewPrivileges::Set {
            plan.at("process.noNewPrivileges").push(Step::NoNewPrivs);
        }
        appear(target, &mut plan);
        if is_born_again {
            process::request_scheduler(container, &mut plan);
        }
        terminal::control(container, &mut plan);
        // Not later: nobody may be left to hand its listener over.
        seccomp::load(container, host, When::Attended, &mut plan)?;
        process::wait(invocation.start, &mut plan);
        seccomp::load(container, host, When::Last, &mut plan)?;
        let environment = process::environment(process, host, invocation, &mut plan)?;
        process::exec(process, environment, &mut plan)?;
    }
    Ok(plan.finish(Namespaces::EMPTY))
}

/// A bit for each processor.
#[must_use]
pub fn cpu_mask(cpus: &[usize]) -> Vec<u64> {
    let mut mask = vec![0_u64; cpus.iter().max().map_or(0, |highest| highest / 64 + 1)];
    cpus.iter().for_each(|cpu| mask[cpu / 64] |= 1 << (cpu % 64));
    mask
}

/// The processors that were asked for, in place of all.
fn affinity(container: &Container, plan: &mut Builder<'_>) {
    let Some(ExecAffinity { initial, finally }) =
        container.process.as_ref().map(|process| &process.exec_affinity)
    else {
        return;
    };
    if let Some(cpus) = finally.as_ref().or(initial.as_ref()) {
        let mask = plan.slice(&cpu_mask(cpus));
        plan.at("process.execCPUAffinity").push(Step::SchedSetaffinity { mask });
    }
}

/// The container's root, which is ours by now.
fn root(plan: &mut Builder<'_>) -> Result<Reg, Error> {
    let root = plan.at("exec").register()?;
    plan.push(Step::Open { path: c"/", flags: OFlags::PATH | OFlags::DIRECTORY, mode: mode(0), out: root });
    Ok(root)
}

/// Is seen inside from here on: with no more than the program will have, and with nothing of the host's.
fn appear(target: JoinTarget, plan: &mut Builder<'_>) {
    plan.at("exec");
    if target.namespaces.contains(Namespaces::PID) {
        plan.push(Step::CloneParent { namespaces: Namespaces::EMPTY });
    }
    plan.push(Step::Setsid);
}

/// Joins all at once: either we are inside or we are not. The pid namespace among them holds for children
/// only.
fn join(target: JoinTarget, plan: &mut Builder<'_>) {
    let namespaces = target.namespaces;
    plan.at("exec").push(Step::Setns { fd: target.init.into(), namespaces });
    if namespaces.contains(Namespaces::USER) {
        // Until now we are whoever called us, who may be nobody in there.
        plan.push(Step::Setresgid { gid: Gid::from_raw(0) });
        plan.push(Step::Setresuid { uid: Uid::from_raw(0) });
    }
}
