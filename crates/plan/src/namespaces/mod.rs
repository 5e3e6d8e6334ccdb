//! How a container's process comes into its namespaces: those that are made and those that are
//! somebody else's.
//!
//! Mostly a child is born in new namespaces by the one call that makes it. Not so where
//! - a user namespace is joined: the new ones are to belong to it, so they are made afterwards;
//! - others are joined and a user namespace is made: who has privileges here joins them while he has
//!   them, for there he has none over them;
//! - a pid namespace is joined, which holds only for who is born afterwards;
//! - a time namespace is joined, which asks for memory of one's own.
//!
//! There the list comes by them in steps, and goes on in another process where it must. A process in
//! somebody's pid namespace is seen by those who live there, and they may be allowed to trace it. So a
//! container's process appears there last, when it has shed all that its program will not have.

pub(crate) mod ids;
pub(crate) mod kernel;
pub(crate) mod procfs;

use crate::builder::{Builder, Error, mode};
use crate::host::{CgroupEntry, Host, NamespacePath};
use crate::invocation::Start;
use husk_bundle::Container;
use husk_bundle::container::{Namespace, NamespaceKind, Source};
use husk_script::sys::file::OFlags;
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::signal::Signal;
use husk_script::{Request, Step};

/// The namespaces that are made.
pub(crate) fn new(container: &Container) -> Namespaces {
    kinds(container, |namespace| namespace.path.is_none())
}

/// The namespaces that are somebody else's.
pub(crate) fn joined(container: &Container) -> Namespaces {
    kinds(container, |namespace| namespace.path.is_some())
}

/// The namespaces that are not the caller's.
pub(crate) fn all(container: &Container) -> Namespaces {
    kinds(container, |_| true)
}

fn kinds(container: &Container, wanted: impl Fn(&Namespace) -> bool) -> Namespaces {
    let namespaces = container.namespaces.iter().filter(|namespace| wanted(namespace));
    namespaces.fold(Namespaces::EMPTY, |all, namespace| all | flag(namespace.kind))
}

/// The kinds of namespaces that the container does not share with who creates it.
#[must_use]
pub fn apart(container: &Container) -> Namespaces {
    container.namespaces.iter().fold(Namespaces::EMPTY, |all, namespace| all | flag(namespace.kind))
}

/// Whether the container has a namespace of this kind, of its own or one that it joins.
pub(crate) fn has(container: &Container, kind: NamespaceKind) -> bool {
    container.namespaces.iter().any(|namespace| namespace.kind == kind)
}

fn flag(kind: NamespaceKind) -> Namespaces {
    match kind {
        NamespaceKind::User => Namespaces::USER,
        NamespaceKind::Mount => Namespaces::MOUNT,
        NamespaceKind::Pid => Namespaces::PID,
        NamespaceKind::Network => Namespaces::NET,
        NamespaceKind::Ipc => Namespaces::IPC,
        NamespaceKind::Uts => Namespaces::UTS,
        NamespaceKind::Cgroup => Namespaces::CGROUP,
        NamespaceKind::Time => Namespaces::TIME,
    }
}

/// Whether the new namespaces are made by steps, and not by the call that makes the child.
fn in_steps(container: &Container, host: &Host) -> bool {
    const LATE: Namespaces = Namespaces::USER.union(Namespaces::PID).union(Namespaces::TIME);
    let joined = joined(container);
    // The privilege that an OOM score may need is gone in a user namespace, too.
    let scored = container.process.as_ref().is_some_and(|process| process.oom_score_adj.is_some());
    let uses_privilege = host.euid == 0 && (!joined.is_empty() || scored);
    !joined.intersection(LATE).is_empty()
        || (new(container).contains(Namespaces::USER) && uses_privilege)
        || has_clocks(container)
}

/// Whether it has clocks of its own. Before Linux 6.2 nobody enters a time namespace at exec, and who is born in one
/// can set no clock any more: it is made, its clocks are set, and another process is born.
fn has_clocks(container: &Container) -> bool {
    new(container).contains(Namespaces::TIME)
}

/// The namespaces that the child is born in.
pub(crate) fn born_in(container: &Container, host: &Host) -> Namespaces {
    if in_steps(container, host) { Namespaces::EMPTY } else { at_once(container, host) }
}

/// The new namespaces without one whose root is the cgroup that its maker is in, if that is not yet the
/// container's. (At its birth in another cgroup a process has that one as the root: cgroup_post_fork in
/// kernel/cgroup/cgroup.c.)
fn at_once(container: &Container, host: &Host) -> Namespaces {
    match host.entry {
        CgroupEntry::None | CgroupEntry::Born => new(container),
        CgroupEntry::Moved => new(container).without(Namespaces::CGROUP),
    }
}

/// When the list goes on in the process that becomes the program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Birth {
    /// From the beginning.
    First,
    /// Before a time namespace is joined.
    BeforeJoining,
    /// When its namespaces are there.
    Entered,
    /// When it is what the program will be.
    Last,
}

fn birth(container: &Container, host: &Host) -> Birth {
    let mounts_proc = container
        .mounts
        .iter()
        .any(|mount| matches!(&mount.source, Source::New { fstype, .. } if fstype == "proc"));
    if joined(container).contains(Namespaces::PID) {
        // A procfs shows the pid namespace of who mounts it, unless the kernel can be told another one.
        if mounts_proc && !host.procfs_takes_pidns { Birth::Entered } else { Birth::Last }
    } else if has_clocks(container) || in_steps(container, host) && new(container).contains(Namespaces::PID) {
        Birth::Entered
    } else if joined(container).contains(Namespaces::TIME) {
        Birth::BeforeJoining
    } else {
        Birth::First
    }
}

/// A session of its own, unless this process only makes way for the one that is to have it.
pub(crate) fn lead_session(container: &Container, host: &Host, plan: &mut Builder<'_>) {
    if birth(container, host) == Birth::First {
        plan.push(Step::Setsid);
    }
}

/// Whether the process that is to be the program is born when everything else is done.
pub(crate) fn appears_last(container: &Container, host: &Host) -> bool {
    birth(container, host) == Birth::Last
}

/// Goes on in another process. What the kernel does not hand on to it is said once more.
fn go_on(container: &Container, host: &Host, now: Birth, start: Start, plan: &mut Builder<'_>) {
    let made = if now == Birth::Entered { new(container) } else { Namespaces::EMPTY };
    plan.push(Step::CloneParent { namespaces: made.intersection(Namespaces::PID) });
    die_with_creator(start, plan);
    if birth(container, host) == now {
        plan.at("process").push(Step::Setsid);
    }
}

/// Joins the namespaces that are somebody else's, and makes those that the child was not born in.
pub(crate) fn enter(
    container: &Container,
    host: &Host,
    start: Start,
    plan: &mut Builder<'_>,
) -> Result<(), Error> {
    // All of them before any is joined: afterwards the paths might be others', or closed to us.
    let mut opened = Vec::new();
    for (index, namespace) in container.namespaces.iter().enumerate() {
        let Some(path) = &namespace.path else { continue };
        let origin = format!("linux.namespaces[{index}] {}", path.display());
        plan.at(origin.clone());
        check(flag(namespace.kind), host.namespaces.get(index).and_then(Option::as_ref), plan)?;
        let register = plan.register()?;
        let path = plan.text(path)?;
        // Whatever came to be there since it was looked at, nothing waits for it.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        plan.push(Step::Open { path, flags, mode: mode(0), out: register });
        opened.push((origin, flag(namespace.kind), register));
    }
    if joined(container).contains(Namespaces::TIME) {
        go_on(container, host, Birth::BeforeJoining, start, plan);
    }
    if joined(container).contains(Namespaces::USER) {
        // Processes with capabilities over that namespace may trace the child as soon as it is there.
        plan.at("linux.namespaces").push(Step::Undumpable);
    }
    // With privileges here the user namespace last, because there are none over the others afterwards;
    // without, first, because it gives some.
    opened.sort_by_key(|(_, kind, _)| (*kind == Namespaces::USER) == (host.euid == 0));
    for (origin, kind, register) in opened {
        plan.at(origin);
        plan.push(Step::Setns { fd: register.into(), namespaces: kind });
        if kind == Namespaces::PID && birth(container, host) == Birth::Last {
            // Every procfs that is mounted needs to be told of it.
            plan.pid_namespace = Some(register);
        } else {
            plan.release(register);
        }
    }
    let left = at_once(container, host).without(Namespaces::PID);
    if in_steps(container, host) && !left.is_empty() {
        plan.at("linux.namespaces").push(Step::Unshare { namespaces: left });
    }
    Ok(())
}

/// Comes into the container's cgroup, if it was not born there, and makes the cgroup namespace of which
/// that is the root.
pub(crate) fn settle(container: &Container, host: &Host, plan: &mut Builder<'_>) {
    if host.entry == CgroupEntry::Moved {
        plan.at("linux.cgroupsPath").push(Step::Request { what: Request::Cgroup });
    }
    let left = new(container).without(at_once(container, host));
    if !left.is_empty() {
        plan.at("linux.namespaces").push(Step::Unshare { namespaces: left });
    }
}

/// Refuses a path that is no namespace of its kind, with better words than the kernel has.
fn check(kind: Namespaces, found: Option<&NamespacePath>, plan: &Builder<'_>) -> Result<(), Error> {
    let name = |kind| {
        let names = Namespaces::NAMES;
        names.into_iter().find(|(known, _)| *known == kind).map_or("other", |(_, name)| name)
    };
    match found {
        Some(NamespacePath::Unreadable(reason)) => Err(plan.error(format!("cannot be opened: {reason}"))),
        Some(NamespacePath::Other) => Err(plan.error("is no namespace")),
        Some(NamespacePath::Namespace { kind: found, .. }) if *found != kind => {
            let (found, wanted) = (name(*found), name(kind));
            Err(plan.error(format!("is a namespace of another type: {found} where {wanted} is wanted")))
        }
        Some(NamespacePath::Namespace { own: true, .. }) if kind == Namespaces::USER => {
            Err(plan.error("is the caller's own user namespace, which is no other to join"))
        }
        _ => Ok(()),
    }
}

/// The first process of a pid namespace, or one that has to be in it for the mounts to come.
pub(crate) fn be_born(container: &Container, host: &Host, start: Start, plan: &mut Builder<'_>) {
    if birth(container, host) == Birth::Entered {
        plan.at("linux.namespaces");
        go_on(container, host, Birth::Entered, start, plan);
    }
}

/// Appears in a pid namespace that others live in. All privilege that the program will not have is shed
/// before, and so is everything else that one who may trace it would find: descriptors of the host's
/// file systems, and memory that is shared with a process of more privilege.
pub(crate) fn appear(container: &Container, host: &Host, start: Start, plan: &mut Builder<'_>) {
    if appears_last(container, host) {
        plan.at("linux.namespaces");
        plan.push(Step::Undumpable);
        go_on(container, host, Birth::Last, start, plan);
    }
}

/// Until it waits for `start` a process dies with who creates it, so that nothing half made is left.
pub(crate) fn die_with_creator(start: Start, plan: &mut Builder<'_>) {
    if let Start::On(_) = start {
        plan.at("process").push(Step::ParentDeathSignal { signal: Signal::KILL, parent: None });
    }
}
