//! Plans how a container's process enters its namespaces, both new ones and existing ones that it joins.
//!
//! Usually the clone that makes the child also creates its namespaces. Four cases need separate steps:
//! - The container joins a user namespace. The new namespaces must belong to it, so they are made after joining.
//! - The container makes a user namespace and joins others. A privileged caller has no privileges over the others
//!   from inside the new user namespace, so the child joins them first.
//! - The container joins a pid namespace, which takes effect only for children.
//! - The container joins a time namespace, which requires memory that is not shared.
//!
//! In these cases steps make and join the namespaces, and the list continues in another process where necessary.
//! Processes in a joined pid namespace see every process there and may be allowed to trace it. So the container's
//! process enters that namespace last, after it has given up everything that its program will not have.

pub(crate) mod ids;
pub(crate) mod kernel;
pub(crate) mod procfs;

use crate::builder::{Builder, Error, mode};
use crate::host::{CgroupEntry, Host, NamespacePath};
use crate::invocation::ProgramStart;
use crate::origin::Origin;
use husk_bundle::Container;
use husk_bundle::container::{Namespace, NamespaceKind, Source};
use husk_script::sys::file::OFlags;
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::signal::Signal;
use husk_script::{Request, Step};

/// Returns the kinds of namespaces that are created for the container.
pub(crate) fn new(container: &Container) -> Namespaces {
    kinds(container, |namespace| namespace.path.is_none())
}

/// Returns the kinds of namespaces that the container joins.
pub(crate) fn joined(container: &Container) -> Namespaces {
    kinds(container, |namespace| namespace.path.is_some())
}

/// Returns the kinds of namespaces that the container creates or joins.
pub(crate) fn all(container: &Container) -> Namespaces {
    kinds(container, |_| true)
}

fn kinds(container: &Container, wanted: impl Fn(&Namespace) -> bool) -> Namespaces {
    let namespaces = container.namespaces.iter().filter(|namespace| wanted(namespace));
    namespaces.fold(Namespaces::EMPTY, |all, namespace| all | flag(namespace.kind))
}

/// Returns the kinds of namespaces that the container does not share with its creator.
#[must_use]
pub fn apart(container: &Container) -> Namespaces {
    container.namespaces.iter().fold(Namespaces::EMPTY, |all, namespace| all | flag(namespace.kind))
}

/// Whether the container creates or joins a namespace of this kind.
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

/// Whether steps make the new namespaces, instead of the clone that makes the child.
fn in_steps(container: &Container, host: &Host) -> bool {
    const LATE: Namespaces = Namespaces::USER.union(Namespaces::PID).union(Namespaces::TIME);
    let joined = joined(container);
    // An OOM score may also need a privilege that the child loses in a user namespace.
    let scored = container.process.as_ref().is_some_and(|process| process.oom_score_adj.is_some());
    let uses_privilege = host.euid == 0 && (!joined.is_empty() || scored);
    !joined.intersection(LATE).is_empty()
        || (new(container).contains(Namespaces::USER) && uses_privilege)
        || has_clocks(container)
}

/// Whether the container has a time namespace of its own. Before Linux 6.2 a process does not enter one at exec,
/// and a process cloned into one can no longer set its clocks. So it is made, its clocks are set, and another
/// process is cloned.
fn has_clocks(container: &Container) -> bool {
    new(container).contains(Namespaces::TIME)
}

/// Returns the namespaces that the clone of the child creates.
pub(crate) fn initial_namespaces(container: &Container, host: &Host) -> Namespaces {
    if in_steps(container, host) { Namespaces::EMPTY } else { at_once(container, host) }
}

/// Returns the new namespaces that can be made before the process enters the container's cgroup. A new cgroup
/// namespace has its maker's cgroup as the root, so it waits if the process still has to be moved. A process
/// cloned directly into another cgroup has that one as the root (cgroup_post_fork in kernel/cgroup/cgroup.c).
fn at_once(container: &Container, host: &Host) -> Namespaces {
    match host.entry {
        CgroupEntry::None | CgroupEntry::Born => new(container),
        CgroupEntry::Moved | CgroupEntry::Enters(_) => new(container).without(Namespaces::CGROUP),
    }
}

/// The point at which the list continues in the process that becomes the program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ForkPoint {
    /// The first process becomes the program.
    First,
    /// The list continues in another process before it joins a time namespace.
    BeforeJoining,
    /// The list continues in another process after it has entered the namespaces.
    Entered,
    /// The list continues in another process after it has given up everything that the program will not have.
    Last,
}

fn fork_point(container: &Container, host: &Host) -> ForkPoint {
    let mounts_proc = container
        .mounts
        .iter()
        .any(|mount| matches!(&mount.source, Source::New { fstype, .. } if fstype == "proc"));
    if joined(container).contains(Namespaces::PID) {
        // A procfs shows the pid namespace of the process that mounts it, unless the kernel takes another one as
        // an option.
        if mounts_proc && !host.procfs_takes_pidns { ForkPoint::Entered } else { ForkPoint::Last }
    } else if has_clocks(container) || in_steps(container, host) && new(container).contains(Namespaces::PID) {
        ForkPoint::Entered
    } else if joined(container).contains(Namespaces::TIME) {
        ForkPoint::BeforeJoining
    } else {
        ForkPoint::First
    }
}

/// Starts a session, unless another process becomes the program and starts it.
pub(crate) fn lead_session(container: &Container, host: &Host, plan: &mut Builder<'_>) {
    if fork_point(container, host) == ForkPoint::First {
        plan.push(Step::Setsid);
    }
}

/// Whether the process that becomes the program is cloned after everything else is done.
pub(crate) fn appears_last(container: &Container, host: &Host) -> bool {
    fork_point(container, host) == ForkPoint::Last
}

/// Continues the list in another process, and repeats the settings that a clone does not inherit.
fn go_on(container: &Container, host: &Host, now: ForkPoint, start: ProgramStart, plan: &mut Builder<'_>) {
    let made = if now == ForkPoint::Entered { new(container) } else { Namespaces::EMPTY };
    plan.push(Step::CloneParent { namespaces: made.intersection(Namespaces::PID) });
    die_with_creator(start, plan);
    if fork_point(container, host) == now {
        plan.at("process").push(Step::Setsid);
    }
}

/// Joins the existing namespaces, and makes those that the child's clone did not create.
pub(crate) fn enter(
    container: &Container,
    host: &Host,
    start: ProgramStart,
    plan: &mut Builder<'_>,
) -> Result<(), Error> {
    // Opens all of them before joining any: afterwards a path may name another file or be inaccessible.
    let mut opened = Vec::new();
    for (index, namespace) in container.namespaces.iter().enumerate() {
        let Some(path) = &namespace.path else { continue };
        let origin = Origin::with_path(format!("linux.namespaces[{index}]"), path);
        plan.at(origin.clone());
        check(flag(namespace.kind), host.namespaces.get(index).and_then(Option::as_ref), plan)?;
        let register = plan.register()?;
        let path = plan.text(path)?;
        // The file may have been replaced since it was checked; opening it must not block.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        plan.push(Step::Open { path, flags, mode: mode(0), out: register });
        opened.push((origin, flag(namespace.kind), register));
    }
    if joined(container).contains(Namespaces::TIME) {
        go_on(container, host, ForkPoint::BeforeJoining, start, plan);
    }
    if joined(container).contains(Namespaces::USER) {
        // Processes with capabilities over that namespace may trace the child as soon as it joins.
        plan.at("linux.namespaces").push(Step::Undumpable);
    }
    // A privileged caller joins the user namespace last, because inside it has no privileges over the others. A
    // caller without privileges joins it first to gain some.
    opened.sort_by_key(|(_, kind, _)| (*kind == Namespaces::USER) == (host.euid == 0));
    for (origin, kind, register) in opened {
        plan.at(origin);
        plan.push(Step::Setns { fd: register.into(), namespaces: kind });
        if kind == Namespaces::PID && fork_point(container, host) == ForkPoint::Last {
            // Every procfs mount needs this descriptor, to show the joined pid namespace.
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

/// Moves the process into cgroups of version 1. A single thread can move itself without a lock that makes another process
/// wait for milliseconds (`cgroup_procs_write_start` in kernel/cgroup/cgroup.c).
pub(crate) fn enter_cgroups(host: &Host, plan: &mut Builder<'_>) -> Result<(), Error> {
    let CgroupEntry::Enters(directories) = &host.entry else { return Ok(()) };
    for directory in directories {
        let path = plan.text(directory.join("tasks"))?;
        plan.at("linux.cgroupsPath").push(Step::WriteFile { path, bytes: b"0", tolerate: None });
    }
    Ok(())
}

/// Has the process moved into the container's cgroup unless it is there already, and makes the cgroup namespace whose
/// root is that cgroup.
pub(crate) fn settle(container: &Container, host: &Host, plan: &mut Builder<'_>) {
    if host.entry == CgroupEntry::Moved {
        plan.at("linux.cgroupsPath").push(Step::Request { what: Request::Cgroup });
    }
    let left = new(container).without(at_once(container, host));
    if !left.is_empty() {
        plan.at("linux.namespaces").push(Step::Unshare { namespaces: left });
    }
}

/// Refuses a path that is not a namespace of the right kind, with a clearer message than the kernel's.
fn check(kind: Namespaces, found: Option<&NamespacePath>, plan: &Builder<'_>) -> Result<(), Error> {
    let name = |kind| {
        let names = Namespaces::NAMES;
        names.into_iter().find(|(known, _)| *known == kind).map_or("other", |(_, name)| name)
    };
    match found {
        Some(NamespacePath::Unreadable(reason)) => Err(plan.error(format!("cannot be opened: {reason}"))),
        Some(NamespacePath::Other) => Err(plan.error("is not a namespace")),
        Some(NamespacePath::Namespace { kind: found, .. }) if *found != kind => {
            let (found, wanted) = (name(*found), name(kind));
            Err(plan.error(format!("is a namespace of type {found}, not {wanted}")))
        }
        Some(NamespacePath::Namespace { own: true, .. }) if kind == Namespaces::USER => {
            Err(plan.error("is the caller's own user namespace; leave out this entry to stay in it"))
        }
        _ => Ok(()),
    }
}

/// Continues in another process if one is needed after the namespaces are entered. It is the first process of a
/// new pid namespace, or is inside a joined one so that a procfs mount shows that namespace.
pub(crate) fn fork_here(container: &Container, host: &Host, start: ProgramStart, plan: &mut Builder<'_>) {
    if fork_point(container, host) == ForkPoint::Entered {
        plan.at("linux.namespaces");
        go_on(container, host, ForkPoint::Entered, start, plan);
    }
}

/// Continues in a process inside the joined pid namespace, whose processes may trace it. Before that it has given
/// up every privilege that the program will not have. It has also closed descriptors of the host's file systems,
/// and shares no memory with a more privileged process.
pub(crate) fn appear(container: &Container, host: &Host, start: ProgramStart, plan: &mut Builder<'_>) {
    if appears_last(container, host) {
        plan.at("linux.namespaces");
        plan.push(Step::Undumpable);
        go_on(container, host, ForkPoint::Last, start, plan);
    }
}

/// Makes the process die with its creator until it waits for `start`, so that no half-made container remains.
pub(crate) fn die_with_creator(start: ProgramStart, plan: &mut Builder<'_>) {
    if let ProgramStart::On(_) = start {
        plan.at("process").push(Step::ParentDeathSignal { signal: Signal::KILL, parent: None });
    }
}
