//! Plans `exec`, which starts another process in a running container.
//!
//! Every process in the container's pid namespace can see the new process. With CAP_SYS_PTRACE it may trace a
//! process that holds no more privileges than itself. So all privileged work is done before the process enters: it
//! gives up everything the program will not have. Only then is it cloned into the pid namespace
//! (`Step::CloneParent`).

use crate::builder::{Builder, Error, Plan, mode};
use crate::host::{CgroupEntry, Host};
use crate::invocation::Invocation;
use crate::namespaces::{enter_cgroups, procfs};
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

/// The container that a process joins.
#[derive(Clone, Copy, Debug)]
pub struct JoinTarget {
    /// The pidfd of the container's first process.
    pub init: Fd,
    /// The kinds of namespaces that the container does not share with the caller.
    pub namespaces: Namespaces,
}

/// Writes the plan of a process that joins a container into `memory`. The process is the `process` of `container`.
///
/// # Errors
///
/// Fails if the process asks for something that cannot be done on this machine.
pub fn exec<'b>(
    container: &Container,
    target: JoinTarget,
    host: &Host,
    invocation: &Invocation<'_>,
    memory: &'b Bump,
) -> Result<Plan<'b>, Error> {
    let mut plan = Builder::new(memory);
    process::detach(invocation, host, Some(target.init), &mut plan);
    enter_cgroups(host, &mut plan)?;
    if host.entry == CgroupEntry::Moved {
        plan.at("exec").push(Step::Request { what: Request::Cgroup });
    }
    // Opens the caller's procfs, which no container can have tampered with.
    let proc = procfs::open(lsm::needs_procfs(container), &mut plan)?;
    // Setting the score may need privileges over the host, which the process gives up next.
    process::oom_score(container, &mut plan);
    process::limits(container, &mut plan);
    let is_born_again =
        target.namespaces.contains(Namespaces::PID) || target.namespaces.contains(Namespaces::TIME);
    if !is_born_again {
        process::scheduler(container, &mut plan);
    }
    affinity(container, &mut plan);
    // Keeps processes in the container from tracing this one until exec.
    plan.at("exec").push(Step::Undumpable);
    if target.namespaces.contains(Namespaces::TIME) {
        // A process that shares its memory cannot join a time namespace. This comes before the label's file is
        // opened, because the kernel accepts a label only from the process that opened the file.
        plan.push(Step::CloneParent { namespaces: Namespaces::EMPTY });
    }
    let label = lsm::open(container, host, proc, &mut plan)?;
    join(target, &mut plan);
    keyring::join(container, invocation, proc, &mut plan)?;
    procfs::close(proc, &mut plan);
    let root = root(&mut plan)?;
    terminal::open(container, root, Shown::Nowhere, &mut plan)?;
    plan.release(root);
    // The label is inherited by the process in which the list continues.
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
        // Must not be later: the parent must still be there to hand over the filter's listener.
        seccomp::load(container, host, When::Attended, &mut plan)?;
        process::wait(invocation.start, &mut plan);
        seccomp::load(container, host, When::Last, &mut plan)?;
        let environment = process::environment(process, host, invocation, &mut plan)?;
        process::exec(process, environment, &mut plan)?;
    }
    Ok(plan.finish(Namespaces::EMPTY))
}

/// Returns a bit mask with a bit for each processor.
#[must_use]
pub fn cpu_mask(cpus: &[usize]) -> Vec<u64> {
    let mut mask = vec![0_u64; cpus.iter().max().map_or(0, |highest| highest / 64 + 1)];
    cpus.iter().for_each(|cpu| mask[cpu / 64] |= 1 << (cpu % 64));
    mask
}

/// Limits the process to the processors of `execCPUAffinity`, if it is set.
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

/// Opens the root directory, which is the container's after joining.
fn root(plan: &mut Builder<'_>) -> Result<Reg, Error> {
    let root = plan.at("exec").register()?;
    plan.push(Step::Open { path: c"/", flags: OFlags::PATH | OFlags::DIRECTORY, mode: mode(0), out: root });
    Ok(root)
}

/// Enters the pid namespace, where the container sees the process. Until then it has given up all descriptors of
/// the host and all privileges that the program will not have.
fn appear(target: JoinTarget, plan: &mut Builder<'_>) {
    plan.at("exec");
    if target.namespaces.contains(Namespaces::PID) {
        plan.push(Step::CloneParent { namespaces: Namespaces::EMPTY });
    }
    plan.push(Step::Setsid);
}

/// Joins all namespaces with one setns(2), which either succeeds or changes nothing. The pid namespace takes
/// effect for children only.
fn join(target: JoinTarget, plan: &mut Builder<'_>) {
    let namespaces = target.namespaces;
    plan.at("exec").push(Step::Setns { fd: target.init.into(), namespaces });
    if namespaces.contains(Namespaces::USER) {
        // Until then the process has the caller's id, which the user namespace may not map.
        plan.push(Step::Setresgid { gid: Gid::from_raw(0) });
        plan.push(Step::Setresuid { uid: Uid::from_raw(0) });
    }
}
