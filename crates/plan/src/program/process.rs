//! The program: its session, limits, directory, environment, and its beginning.

use crate::builder::{Builder, Error, mode};
use crate::host::Host;
use crate::invocation::{Invocation, Start};
use crate::mounts::devices;
use crate::namespaces;
use husk_bundle::Container;
use husk_bundle::container::{MemoryPolicy, Process, Scheduler, Terminal};
use husk_script::sys::file::OFlags;
use husk_script::sys::limits::{Resource, Rlimit, SchedAttr};
use husk_script::sys::signal::{Signal, SignalSet};
use husk_script::sys::{CArray, Errno, Fd};
use husk_script::{Reg, Request, Step};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// No disposition of ours, and no descriptor but the one that is still needed.
pub(crate) fn detach(invocation: &Invocation<'_>, host: &Host, needed: Option<Fd>, plan: &mut Builder<'_>) {
    plan.at("process");
    namespaces::die_with_creator(invocation.start, plan);
    // Among them our own copy of the other end of the channel, with which the end of a creator that
    // is gone would never be seen.
    plan.push(match needed {
        Some(fd) => Step::CloseOthers { first: invocation.first_closed(), keep: Some(fd) },
        None => close_others(invocation),
    });
    // What is ignored stays so over exec: SIGPIPE by Rust, SIGHUP by nohup(1).
    let signals = (1..=Signal::MAX).filter_map(|number| Signal::new(number.into()));
    for signal in signals.filter(|signal| host.ignored.contains(*signal)) {
        plan.push(Step::DefaultAction { signal });
    }
    if let Start::On(_) = invocation.start {
        // As with runc these end a container that waits for `start`. A filter may be loaded by then, so how they are
        // taken is settled before.
        Signal::ENDING.into_iter().for_each(|signal| plan.push(Step::ExitOnSignal { signal }));
    }
}

pub(crate) fn close_others<'b>(invocation: &Invocation<'_>) -> Step<'b> {
    let keep = match invocation.start {
        Start::AtOnce => None,
        Start::On(listener) => Some(listener),
    };
    Step::CloseOthers { first: invocation.first_closed(), keep }
}

/// How soon the OOM killer takes it. If nothing is said, that is inherited. While memory is shared it is
/// our score too (fs/proc/base.c, `__set_oom_adj`): that of `run`, which ends with the container anyway.
pub(crate) fn oom_score(container: &Container, plan: &mut Builder<'_>) {
    if let Some(score) = container.process.as_ref().and_then(|process| process.oom_score_adj) {
        let bytes = plan.slice(score.to_string().as_bytes());
        let path = c"/proc/self/oom_score_adj";
        plan.at("process.oomScoreAdj").push(Step::WriteFile { path, bytes, tolerate: None });
    }
}

/// Makes the working directory where it is missing.
pub(crate) fn make_cwd(container: &Container, root: Reg, plan: &mut Builder<'_>) -> Result<(), Error> {
    let Some(process) = &container.process else { return Ok(()) };
    plan.at("process.cwd");
    let target = plan.target(&process.cwd)?;
    let out = plan.register()?;
    plan.push(Step::EnsureDirectory { root: root.into(), target, out });
    plan.release(out);
    Ok(())
}

/// Standard streams that are the null device become the container's own: CRIU saves no file of another's mounts.
pub(crate) fn null_streams(container: &Container, host: &Host, plan: &mut Builder<'_>) -> Result<(), Error> {
    if host.null_streams.is_empty() || has_terminal(container) || !devices::has_null(container) {
        return Ok(());
    }
    plan.at("process");
    let null = plan.register()?;
    plan.push(Step::Open { path: c"/dev/null", flags: OFlags::RDWR, mode: mode(0), out: null });
    for stream in &host.null_streams {
        plan.push(Step::Dup3 { from: null.into(), to: *stream });
    }
    plan.push(Step::Close { fd: null.into() });
    plan.release(null);
    Ok(())
}

/// Whether the program gets the caller's standard streams where they are the null device.
#[must_use]
pub fn keeps_null_streams(container: &Container) -> bool {
    !has_terminal(container) && !devices::has_null(container)
}

fn has_terminal(container: &Container) -> bool {
    container.process.as_ref().is_some_and(|process| process.terminal != Terminal::No)
}

/// Limits and scheduling, while there is still the privilege to raise them.
pub(crate) fn limits(container: &Container, plan: &mut Builder<'_>) {
    let Some(process) = &container.process else { return };
    for (index, resource, limit) in rlimits(process) {
        plan.at(format!("process.rlimits[{index}]")).push(Step::Setrlimit { resource, limit });
    }
    // The caller's is not inherited: what the container's cgroup allows is its own (runc does the same).
    plan.at("process").push(Step::SchedSetaffinity { mask: &ALL_CPUS });
    if let Some((class, level)) = process.io_priority {
        plan.at("process.ioPriority").push(Step::IoprioSet { class, level });
    }
    if let Some(persona) = container.personality {
        plan.at("linux.personality").push(Step::Personality { persona });
    }
    if let Some(MemoryPolicy { mode, nodes }) = &container.memory_policy {
        let words = nodes.iter().max().map_or(0, |highest| highest / 64 + 1);
        let mut mask = vec![0_u64; words];
        nodes.iter().for_each(|node| mask[node / 64] |= 1 << (node % 64));
        let nodes = plan.slice(&mask);
        plan.at("linux.memoryPolicy").push(Step::SetMempolicy { mode: *mode, nodes });
    }
}

/// `process.rlimits` as the kernel has them, each with its place in the list.
pub fn rlimits(process: &Process) -> impl Iterator<Item = (usize, Resource, Rlimit)> + '_ {
    let bound = |value: u64| (value != u64::MAX).then_some(value);
    process.rlimits.iter().enumerate().filter_map(move |(index, limit)| {
        let resource = *RESOURCES.get(limit.resource as usize)?;
        Some((index, resource, Rlimit { current: bound(limit.soft), maximum: bound(limit.hard) }))
    })
}

/// How it is scheduled, while there is still the privilege to say so.
pub(crate) fn scheduler(container: &Container, plan: &mut Builder<'_>) {
    let Some(scheduler) = container.process.as_ref().and_then(|process| process.scheduler) else { return };
    let Scheduler { policy, flags, nice, priority, runtime, deadline, period } = scheduler;
    let attr = SchedAttr { policy, flags, nice, priority, runtime, deadline, period };
    plan.at("process.scheduler").push(Step::SchedSetattr { attr });
}

/// The same for a list that goes on in another process, which would not have it from the one before
/// (sched(7), "The reset-on-fork flag for child processes"; who has a deadline may not even make one). By then
/// the privilege is gone, so the parent does it.
pub(crate) fn request_scheduler(container: &Container, plan: &mut Builder<'_>) {
    if container.process.as_ref().is_some_and(|process| process.scheduler.is_some()) {
        plan.at("process.scheduler").push(Step::Request { what: Request::Scheduler });
    }
}

/// More than any kernel has (`NR_CPUS`, at most 8192); it ignores those it has not.
const ALL_CPUS: [u64; 128] = [u64::MAX; 128];

/// Resources by their number (asm-generic/resource.h).
const RESOURCES: &[Resource] = &[
    Resource::Cpu,
    Resource::Fsize,
    Resource::Data,
    Resource::Stack,
    Resource::Core,
    Resource::Rss,
    Resource::Nproc,
    Resource::Nofile,
    Resource::Memlock,
    Resource::As,
    Resource::Locks,
    Resource::Sigpending,
    Resource::Msgqueue,
    Resource::Nice,
    Resource::Rtprio,
    Resource::Rttime,
];

/// The way into the working directory.
pub(crate) struct Cwd<'b> {
    root: Reg,
    path: &'b CStr,
    entered: Reg,
}

impl<'b> Cwd<'b> {
    /// Enters it while there is privilege: the program may have to start where it could not go itself. Where
    /// that is not enough, as on a file system that trusts no root, the program's user may still do.
    /// Without magic links: `/proc/self/fd/7` would be one of ours.
    pub(crate) fn enter(container: &Container, plan: &mut Builder<'b>) -> Result<Option<Self>, Error> {
        let Some(process) = &container.process else { return Ok(None) };
        plan.at("process.cwd");
        let path = plan.target(&process.cwd)?.path;
        let (root, entered) = (plan.register()?, plan.fresh_register()?);
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        plan.push(Step::Open { path: c"/", flags, mode: mode(0), out: root });
        plan.push(Step::Enter { root: root.into(), path, entered, tolerate: Some(Errno::ACCESS) });
        Ok(Some(Self { root, path, entered }))
    }

    /// Enters it with the program's identity, if it has not been entered yet.
    pub(crate) fn enter_as_user(self, plan: &mut Builder<'b>) {
        let Self { root, path, entered } = self;
        plan.at("process.cwd");
        plan.push(Step::Enter { root: root.into(), path, entered, tolerate: None });
        plan.release(root);
        plan.release(entered);
    }
}

/// Finds the program, so that one that is missing fails `create` and not `start`.
pub(crate) fn find(
    container: &Container,
    invocation: &Invocation<'_>,
    plan: &mut Builder<'_>,
) -> Result<(), Error> {
    let Some(process) = &container.process else { return Ok(()) };
    plan.at("process.args[0]");
    let candidates = candidates(process, plan)?;
    plan.program =
        process.args.first().map(|program| program.to_string_lossy().into_owned()).unwrap_or_default();
    plan.push(Step::CheckExecutable { candidates });
    plan.at("process");
    // Nothing of ours stays open, not even while it waits. What is left closes on exec.
    plan.push(close_others(invocation));
    Ok(())
}

/// Gives up all memory but what the remaining steps need. The child's memory is a copy of the runtime's, in which the
/// caller's environment and all of config.json are. A process in the container that has CAP_SYS_PTRACE and no user
/// namespace of its own may read it, whether it is dumpable or not.
pub(crate) fn forget_memory(container: &Container, host: &Host, start: Start, plan: &mut Builder<'_>) {
    if has_own_memory(container, host, start) {
        plan.at("process").push(Step::ForgetMemory);
    }
}

/// Whether the child begins in a copy of the runtime's memory and does not share it.
///
/// - A process that waits for `start` has no reason to keep ours, in which the caller's environment is.
/// - A memory limit is in force before the program runs, and the kernel kills everybody who shares the memory
///   of its victim (mm/oom_kill.c, `__oom_kill_process`).
/// - A `startContainer` hook is a program of the image beside a process that has not execed. With
///   CAP_SYS_PTRACE it may look into that one, whether its memory is dumpable or not.
///
/// A caller without privileges can fetch a seccomp listener only from memory that it can make dumpable itself.
fn has_own_memory(container: &Container, host: &Host, start: Start) -> bool {
    let is_fetched_from = container.seccomp_listener.is_some() && host.euid != 0;
    let wants = matches!(start, Start::On(_))
        || container.resources.limits_memory()
        || !container.hooks.start_container.is_empty();
    wants && !is_fetched_from
}

/// Closes the memory to everybody in the container until exec, which opens the program's own. It is the
/// runtime's, or was; CAP_SYS_PTRACE is then needed in the user namespace that the runtime was started in. Memory
/// that is undumpable already, as from the clone on if the runtime is root's, stays so.
pub(crate) fn hide_memory(plan: &mut Builder<'_>) {
    plan.at("process").push(Step::Undumpable);
}

/// Waits for `start` if there is to be one, with signals held back that are the program's.
pub(crate) fn wait(start: Start, plan: &mut Builder<'_>) {
    plan.at("process");
    match start {
        Start::AtOnce => {
            // Whoever hears of the program must find the container's state written down.
            plan.push(Step::Request { what: Request::Parked });
        }
        Start::On(listener) => {
            let blocked = Signal::ENDING.into_iter().fold(SignalSet::FULL, SignalSet::without);
            plan.push(Step::SignalMask { blocked });
            plan.push(Step::Park { listener });
        }
    }
    plan.push(Step::SignalMask { blocked: SignalSet::EMPTY });
}

/// Becomes the program.
pub(crate) fn exec<'b>(
    process: &Process,
    environment: CArray<'b>,
    plan: &mut Builder<'b>,
) -> Result<(), Error> {
    plan.at("process.args");
    let candidates = candidates(process, plan)?;
    let args = process.args.iter().map(|argument| plan.text(OsStr::from_bytes(argument.to_bytes())));
    let args = args.collect::<Result<Vec<_>, _>>()?;
    let argv = plan.array(args);
    plan.push(Step::ExecveFirst { candidates, argv, envp: environment });
    Ok(())
}

/// The program's environment.
pub(crate) fn environment<'b>(
    process: &Process,
    host: &Host,
    invocation: &Invocation<'_>,
    plan: &mut Builder<'b>,
) -> Result<CArray<'b>, Error> {
    plan.at("process.env");
    // Where the caller passes sockets it is not the configuration's to say how many and to whom.
    let is_ours = |variable: &[u8]| {
        invocation.listen_fds != 0
            && [&b"LISTEN_FDS="[..], b"LISTEN_PID="].iter().any(|name| variable.starts_with(name))
    };
    let said = process.env.iter().filter(|variable| {
        let variable = variable.as_bytes();
        // An empty HOME is none.
        variable != b"HOME=" && !is_ours(variable)
    });
    let variables = said.map(|variable| plan.text(OsStr::from_bytes(variable.to_bytes())));
    let mut variables = variables.collect::<Result<Vec<&CStr>, _>>()?;
    if invocation.listen_fds != 0 {
        variables.push(plan.text(format!("LISTEN_FDS={}", invocation.listen_fds))?);
        variables.push(c"LISTEN_PID=1");
    }
    if variable(process, b"HOME").is_none_or(<[u8]>::is_empty) {
        let mut home = b"HOME=".to_vec();
        home.extend_from_slice(host.home.as_os_str().as_bytes());
        variables.push(plan.text(OsStr::from_bytes(&home))?);
    }
    Ok(plan.array(variables))
}

fn variable<'a>(process: &'a Process, name: &[u8]) -> Option<&'a [u8]> {
    process.env.iter().find_map(|variable| variable.to_bytes().strip_prefix(name)?.strip_prefix(b"="))
}

/// The places where the program may be: itself if it is a path, else below each directory of the
/// container's PATH.
fn candidates<'b>(process: &Process, plan: &Builder<'b>) -> Result<&'b [&'b CStr], Error> {
    let program = process.args.first().map_or(&[][..], |program| program.to_bytes());
    if program.is_empty() {
        // In Go's words, by which engines tell that there is no program (127).
        return Err(plan.error("exec: \"\": executable file not found in $PATH"));
    }
    if program.contains(&b'/') {
        return Ok(plan.slice(&[plan.text(OsStr::from_bytes(program))?]));
    }
    let path = variable(process, b"PATH").unwrap_or(b"/bin:/usr/bin");
    let mut found = Vec::new();
    for directory in path.split(|byte| *byte == b':') {
        let directory = if directory.is_empty() { b"." } else { directory };
        found.push(plan.text(Path::new(OsStr::from_bytes(directory)).join(OsStr::from_bytes(program)))?);
    }
    Ok(plan.slice(&found))
}
