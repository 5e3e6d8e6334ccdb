//! Turns a command into a list of steps.

use crate::Error;
use crate::clone::CloneCall;
use crate::command::Command;
use crate::command::fds::{self, FdMapping};
use crate::command::filter;
use crate::command::join::IN_PARENT;
use crate::command::stdio::{Pipes, Unset};
use crate::error::Reason;
use crate::memory::forget;
use crate::memory::pool::ScriptRef;
use crate::memory::writer::{ListMemory, Sharing, Writer};
use husk_listing::Line;
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::signal::Signal;
use husk_script::sys::{CArray, CPtr, Fd};
use husk_script::{Script, Step};
use rustix::process::{geteuid, getpid};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

/// The inputs of a list besides its command.
pub(crate) struct SpawnSetup<'a> {
    /// The call that clones the child; only `clone3` resets its signal handlers.
    pub(crate) call: CloneCall,
    /// The source of standard streams that the command does not set.
    pub(crate) unset: Unset,
    /// The pipes made for this child.
    pub(crate) pipes: &'a Pipes,
    /// The child's end of the socket to this process.
    pub(crate) channel: Option<Fd>,
    /// This process's end; set if the child waits for an answer.
    pub(crate) answers: Option<Fd>,
    /// The addresses of the child's stack; empty for a listing.
    pub(crate) stack: Range<usize>,
}

/// Writes the command's list into `memory`.
pub(crate) fn write<'b>(
    command: &Command,
    around: &SpawnSetup<'_>,
    memory: &'b ListMemory,
) -> Result<ScriptRef<'b>, Error> {
    let mut list = Writer::new(memory);
    match &command.whole {
        Some(whole) => whole(&mut list)?,
        None => settings(command, around, &mut list)?,
    }
    let steps = list.finish();
    let (journal, times) = memory.journal(steps, command.sharing, command.timed)?;
    let channel = around.channel;
    if !steps.iter().any(|step| matches!(step, Step::ForgetMemory)) {
        return Ok(memory.keep(Script { steps, journal, channel, times, unneeded: &[] }));
    }
    if command.sharing != Sharing::Copied {
        let why = "would empty the memory of this process too without Command::own_memory";
        return Err(Error::new(Line(&Step::ForgetMemory).to_string(), Reason::Conflict(why)));
    }
    let kept = memory.kept();
    let script = Script { steps: forget::rest(steps, kept)?, journal, channel, times, unneeded: &[] };
    forget::others(script, kept, around.stack.clone())
}

/// Writes the steps of the settings. The lines are in the order of the system calls; comments say where the
/// order matters.
fn settings(command: &Command, around: &SpawnSetup<'_>, list: &mut Writer<'_>) -> Result<(), Error> {
    let is_last = command.appears_last();
    signals(command, around.call, list);
    join(command, list);
    // The process that becomes the program must lead the session. If that process appears last, the first one,
    // which exits, must not create the session.
    if !is_last {
        session(command, list);
    }
    if let Some(fd) = around.answers {
        // Closes the child's copy: while it is open, the child would wait forever for a parent that has died.
        list.push(Step::Close { fd: fd.into() });
    }
    // Must precede everything that needs an id: the child has no ids until they are mapped.
    command.maps.write(command.groups.as_deref(), list);
    hostname(command, list);
    limits(command, list);
    if !is_last {
        scheduler(command, list);
    }
    for steps in &command.steps {
        steps(list)?;
    }
    identity(command, list);
    if !is_last {
        // After ids change, because the kernel then clears this signal (kernel/cred.c, `commit_creds`).
        parent_death(command, list);
    }
    // After the identity, so that the program cannot start in a directory it may not enter.
    cwd(command, list)?;
    descriptors(command, around, list)?;
    if is_last {
        appear(command, around, list);
    }
    // After descriptors, because the terminal is the program's standard input.
    terminal(command, list);
    if command.no_new_privs {
        list.push(Step::NoNewPrivs);
    }
    for steps in &command.final_steps {
        steps(list)?;
    }
    // Must be last before exec, so that pending signals meet the program's final dispositions rather than partly set ones.
    list.push(Step::SignalMask { blocked: command.blocked });
    // Follows it, so that the filter need not allow more than the program's exec.
    filter::write(command, list);
    exec(command, list)
}

fn signals(command: &Command, call: CloneCall, list: &mut Writer<'_>) {
    if call == CloneCall::Clone {
        list.push(Step::ResetHandlers);
    }
    // Rust's runtime ignores SIGPIPE in this process, and exec keeps ignored signals ignored.
    if !command.ignored.contains(&Signal::PIPE) {
        list.push(Step::DefaultAction { signal: Signal::PIPE });
    }
    for &signal in &command.ignored {
        list.push(Step::IgnoreSignal { signal });
    }
}

fn session(command: &Command, list: &mut Writer<'_>) {
    if command.new_session {
        list.push(Step::Setsid);
    }
    if let Some(group) = command.process_group {
        list.push(Step::Setpgid { group });
    }
}

/// Joins namespaces, a user namespace first: it grants the privileges that joining the others needs.
fn join(command: &Command, list: &mut Writer<'_>) {
    let user = command.joins(Namespaces::USER);
    if command.runs_in_second_process() && command.joins(Namespaces::TIME) {
        list.push(Step::CloneParent { namespaces: Namespaces::EMPTY });
    }
    if user {
        // Processes with capabilities over that namespace may trace the child as soon as it has joined.
        list.push(Step::Undumpable);
    }
    for first in [true, false] {
        for join in &command.joins {
            let left = if user || command.runs_in_second_process() { Namespaces::EMPTY } else { IN_PARENT };
            let kinds = join.kinds.without(left);
            if !kinds.is_empty() && kinds.contains(Namespaces::USER) == first {
                list.push(Step::Setns { fd: Fd::of(&join.fd).into(), namespaces: kinds });
            }
        }
    }
    if user {
        let new = command.namespaces.without(Namespaces::PID);
        if !new.is_empty() {
            list.push(Step::Unshare { namespaces: new });
        }
        let namespaces = command.namespaces.intersection(Namespaces::PID);
        if !namespaces.is_empty() {
            list.push(Step::CloneParent { namespaces });
        }
    }
}

/// Continues the list in a second process, in the joined pid namespace.
///
/// Until here the child was outside, invisible to processes in that namespace. It shared this process's
/// memory and held copies of its descriptors. A process inside that may trace the second process finds only
/// the program's identity, the program's descriptors and a copy of the memory. Reading the copy requires
/// CAP_SYS_PTRACE in this process's user namespace.
fn appear(command: &Command, around: &SpawnSetup<'_>, list: &mut Writer<'_>) {
    let mut kept: Vec<Fd> = command.fds.iter().map(|(to, _)| *to).chain(around.channel).collect();
    kept.sort_unstable();
    let mut first = Some(Fd::FIRST_EXTRA);
    for fd in kept {
        if let (Some(first), Some(last)) = (first, fd.before())
            && first <= last
        {
            list.push(Step::CloseRange { first, last });
        }
        first = (fd < Fd::MAX).then(|| fd.after());
    }
    if let Some(first) = first {
        list.push(Step::CloseRange { first, last: Fd::MAX });
    }
    list.push(Step::Undumpable);
    list.push(Step::CloneParent { namespaces: Namespaces::EMPTY });
    parent_death(command, list);
    session(command, list);
    // The kernel may reset the scheduler for a new process (sched(7), "The reset-on-fork flag").
    scheduler(command, list);
}

fn hostname(command: &Command, list: &mut Writer<'_>) {
    if let Some(name) = &command.hostname {
        let name = list.slice(name.as_bytes());
        list.push(Step::Sethostname { name });
    }
}

/// Sets limits and scheduling. This must precede the change of identity, because raising limits and priorities needs
/// privileges.
fn limits(command: &Command, list: &mut Writer<'_>) {
    for &(resource, limit) in &command.rlimits {
        list.push(Step::Setrlimit { resource, limit });
    }
    if let Some(nice) = command.nice {
        list.push(Step::Setpriority { nice });
    }
    if let Some((class, level)) = command.io_priority {
        list.push(Step::IoprioSet { class, level });
    }
    if let Some(mask) = &command.affinity {
        let mask = list.slice(mask);
        list.push(Step::SchedSetaffinity { mask });
    }
    if let Some(mask) = command.umask {
        list.push(Step::Umask { mask });
    }
}

fn scheduler(command: &Command, list: &mut Writer<'_>) {
    if let Some(attr) = command.scheduler {
        list.push(Step::SchedSetattr { attr });
    }
}

/// Changes the identity: groups before the user, because changing groups needs privileges.
fn identity(command: &Command, list: &mut Writer<'_>) {
    match &command.groups {
        Some(groups) => {
            let groups = list.slice(groups);
            list.push(Step::Setgroups { groups });
        }
        // Drops root's groups, so that another user does not get them by oversight.
        None if command.uid.is_some() && geteuid().is_root() && !command.enters_user_namespace() => {
            list.push(Step::Setgroups { groups: &[] });
        }
        None => {}
    }
    if let Some(gid) = command.gid {
        list.push(Step::Setresgid { gid });
    }
    if let Some(uid) = command.uid {
        list.push(Step::Setresuid { uid });
    }
}

fn parent_death(command: &Command, list: &mut Writer<'_>) {
    if let Some(signal) = command.parent_death_signal {
        let parent = (!command.enters_pid_namespace()).then(getpid);
        list.push(Step::ParentDeathSignal { signal, parent });
    }
}

fn cwd(command: &Command, list: &mut Writer<'_>) -> Result<(), Error> {
    if let Some(path) = &command.cwd {
        let path = list.text(path)?;
        list.push(Step::Chdir { path });
    }
    Ok(())
}

fn descriptors(command: &Command, around: &SpawnSetup<'_>, list: &mut Writer<'_>) -> Result<(), Error> {
    let mut mappings: Vec<FdMapping> =
        command.fds.iter().map(|(to, fd)| FdMapping { from: Fd::of(fd).into(), to: *to }).collect();
    around.pipes.map(&command.streams, around.unset, &mut mappings, list)?;
    fds::arrange(&mut mappings, list)
}

fn terminal(command: &Command, list: &mut Writer<'_>) {
    if command.controlling_terminal {
        list.push(Step::Tiocsctty { terminal: Fd::STDIN });
    }
    if command.foreground {
        list.push(Step::Tcsetpgrp { terminal: Fd::STDIN });
    }
}

fn exec(command: &Command, list: &mut Writer<'_>) -> Result<(), Error> {
    let program = command.resolved_program()?;
    let path = list.text(&program)?;
    let mut argv = list.pointers(command.args.len() + 2);
    argv.push(list.text(command.arg0.as_deref().unwrap_or(&command.program))?.into());
    for argument in &command.args {
        argv.push(list.text(argument)?.into());
    }
    argv.push(CPtr::NULL);
    let argv = CArray::new(argv.into_bump_slice()).expect("ends with the only null pointer");
    let envp = command.environment.write(list)?;
    list.push(Step::Execve { path, argv, envp });
    Ok(())
}
