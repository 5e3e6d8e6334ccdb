//! A network namespace that several sandboxes share, such as those of a test and of its services.
//!
//! One short-lived process creates the network in a user namespace that no program ever enters. Each sandbox enters
//! that user namespace to join the network, and then creates a user namespace of its own inside. So the programs are
//! privileged over nothing that they share, and each sandbox is isolated from the others as from the host.

use super::sys;
use crate::host::{Host, JoinedNetwork};
use crate::profile::Profile;
use bumpalo::Bump;
use husk_plan::{Builder, Error, Plan};
use husk_script::sys::Fd;
use husk_script::sys::file::{Mode, OFlags};
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::signal::Signal;
use husk_script::{Reg, Request, Step};

/// Joins a network, and creates the other namespaces of the sandbox. If the program gets a sysfs, returns one of that
/// network. The sysfs must be created before the program's own user namespace, which has no privileges over the network.
pub(super) fn join(
    profile: &Profile,
    host: &Host,
    joined: JoinedNetwork,
    plan: &mut Builder<'_>,
) -> Result<Option<Reg>, Error> {
    plan.at("net");
    // First, because it grants the privileges that joining the network needs.
    if let Some(user) = joined.user {
        plan.push(Step::Setns { fd: user.into(), namespaces: Namespaces::USER });
    }
    plan.push(Step::Setns { fd: joined.net.into(), namespaces: Namespaces::NET });
    let sysfs = sys::create(profile, host, plan)?;
    plan.at("init").push(Step::Unshare { namespaces: super::namespaces(host) });
    Ok(sysfs)
}

/// Builds the plan of the process that creates a network and sends its descriptors: of the user namespace, if it has one
/// of its own, and of the network namespace. It waits for an answer until it is killed.
pub(crate) fn plan<'b>(host: &Host, memory: &'b Bump) -> Result<Plan<'b>, Error> {
    let mut plan = Builder::new(memory);
    plan.at("init").push(Step::ParentDeathSignal { signal: Signal::KILL, parent: None });
    // Closes its copy of our end of the channel: if we are killed before the last step, its request then fails.
    plan.push(Step::CloseOthers { first: Fd::FIRST_EXTRA, keep: None });
    if host.user_namespace {
        super::map_ids((host.uid, host.gid), (host.uid, host.gid), &mut plan);
    }
    plan.at("net").push(Step::Unshare { namespaces: Namespaces::NET });
    plan.push(Step::LoopbackUp);
    let user = host.user_namespace.then_some(c"/proc/self/ns/user");
    for path in user.into_iter().chain([c"/proc/self/ns/net"]) {
        let fd = plan.register()?;
        plan.push(Step::Open { path, flags: OFlags::RDONLY, mode: Mode::empty(), out: fd });
        plan.push(Step::RequestWith { what: Request::Files, fd: fd.into() });
        plan.release(fd);
    }
    let user = if host.user_namespace { Namespaces::USER } else { Namespaces::EMPTY };
    Ok(plan.finish(user))
}
