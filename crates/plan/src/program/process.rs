//! Plans the program's session, limits, directory, environment and start.

use crate::builder::{Builder, Error, mode};
use crate::host::Host;
use crate::invocation::{Invocation, ProgramStart};
use crate::mounts::devices;
use crate::namespaces;
use husk_bundle::Container;
use husk_bundle::container::{MemoryPolicy, Process, Scheduler, Terminal};
use husk_script::sys::file::OFlags;
use husk_script::sys::limits::{Resource, Rlimit, SchedAttr};
use husk_script::sys::signal::{Signal, SignalSet};
use husk_script::sys::{CArray, Errno, Fd};
use husk_script::{Reg, Request, Step};
use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Resets inherited signal dispositions and closes all descriptors that the program does not need.
pub(crate) fn detach(invocation: &Invocation<'_>, host: &Host, needed: Option<Fd>, plan: &mut Builder<'_>) {
    plan.at("process");
    namespaces::die_with_creator(invocation.start, plan);
    // Also closes this process's copy of the other end of the channel. Otherwise the channel would never report
    // that the creator is gone.
    plan.push(match needed {
        Some(fd) => Step::CloseOthers { first: invocation.first_closed(), keep: Some(fd) },
        None => close_others(invocation),
    });
    // Ignored signals stay ignored over exec. Rust ignores SIGPIPE, and nohup(1) ignores SIGHUP.
    let signals = (1..=Signal::MAX).filter_map(|number| Signal::new(number.into()));
    for signal in signals.filter(|signal| host.ignored.contains(*signal)) {
        plan.push(Step::DefaultAction { signal });
    }
    if let ProgramStart::On(_) = invocation.start {
        // As in runc, these signals end a container that waits for `start`. A filter may be loaded before the
        // wait, so their handlers are set here.
        Signal::ENDING.into_iter().for_each(|signal| plan.push(Step::ExitOnSignal { signal }));
    }
}

pub(crate) fn close_others<'b>(invocation: &Invocation<'_>) -> Step<'b> {
    let keep = match invocation.start {
        ProgramStart::AtOnce => None,
        ProgramStart::On(listener) => Some(listener),
    };
    Step::CloseOthers { first: invocation.first_closed(), keep }
}

/// Sets the OOM score, which is inherited if it is unset. While the child shares memory with its parent, the
/// parent's score changes too (fs/proc/base.c, `__set_oom_adj`). Only `run` is affected, and it ends with the
/// container anyway.
pub(crate) fn oom_score(container: &Container, plan: &mut Builder<'_>) {
    if let Some(score) = container.process.as_ref().and_then(|process| process.oom_score_adj) {
        let bytes = plan.slice(score.to_string().as_bytes());
        let path = c"/proc/self/oom_score_adj";
        plan.at("process.oomScoreAdj").push(Step::WriteFile { path, bytes, tolerate: None });
    }
}

/// Makes the working directory if it is missing.
pub(crate) fn make_cwd(container: &Container, root: Reg, plan: &mut Builder<'_>) -> Result<(), Error> {
    let Some(process) = &container.process else { return Ok(()) };
    plan.at("process.cwd");
    let target = plan.target(&process.cwd)?;
    let out = plan.register()?;
    plan.push(Step::EnsureDirectory { root: root.into(), target, out });
    plan.release(out);
    Ok(())
}

/// Replaces standard streams that are the null device by the container's own null device. CRIU cannot save a file
/// on a mount outside the container.
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

/// Whether the program keeps the caller's standard streams that are the null device.
#[must_use]
pub fn keeps_null_streams(container: &Container) -> bool {
    !has_terminal(container) && !devices::has_null(container)
}

fn has_terminal(container: &Container) -> bool {
    container.process.as_ref().is_some_and(|process| process.terminal != Terminal::No)
}

/// Sets limits and scheduling while the process has the privilege to raise them.
pub(crate) fn limits(container: &Container, plan: &mut Builder<'_>) {
    let Some(process) = &container.process else { return };
    for (index, resource, limit) in rlimits(process) {
        plan.at(format!("process.rlimits[{index}]")).push(Step::Setrlimit { resource, limit });
    }
    // Do not inherit the caller's mask: the container may use every processor that its cgroup allows, as in runc.
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

/// Returns `process.rlimits` in the kernel's form, each with its index in the list.
pub fn rlimits(process: &Process) -> impl Iterator<Item = (usize, Resource, Rlimit)> + '_ {
    let bound = |value: u64| (value != u64::MAX).then_some(value);
    process.rlimits.iter().enumerate().filter_map(move |(index, limit)| {
        let resource = *RESOURCES.get(limit.resource as usize)?;
        Some((index, resource, Rlimit { current: bound(limit.soft), maximum: bound(limit.hard) }))
    })
}

/// Sets the scheduling policy while the process still has the privilege for it.
pub(crate) fn scheduler(container: &Container, plan: &mut Builder<'_>) {
    let Some(scheduler) = container.process.as_ref().and_then(|process| process.scheduler) else { return };
    let Scheduler { policy, flags, nice, priority, runtime, deadline, period } = scheduler;
    let attr = SchedAttr { policy, flags, nice, priority, runtime, deadline, period };
    plan.at("process.scheduler").push(Step::SchedSetattr { attr });
}

/// Has the parent set the scheduling policy if the list continues in another process. This process does not
/// inherit it (sched(7), "The reset-on-fork flag for child processes") and has no privilege to set it. A deadline
/// process may not even create a child.
pub(crate) fn request_scheduler(container: &Container, plan: &mut Builder<'_>) {
    if container.process.as_ref().is_some_and(|process| process.scheduler.is_some()) {
        plan.at("process.scheduler").push(Step::Request { what: Request::Scheduler });
    }
}

/// As many bits as `NR_CPUS` can have (8192). The kernel ignores bits of processors that do not exist.
const ALL_CPUS: [u64; 128] = [u64::MAX; 128];

/// Resources by number (asm-generic/resource.h).
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

/// The directory that the program starts in, before and after the change of identity.
pub(crate) struct Cwd<'b> {
    root: Reg,
    path: &'b CStr,
    entered: Reg,
}

impl<'b> Cwd<'b> {
    /// Enters the directory while the process has privileges, because the program may start in a directory that it
    /// cannot enter itself. If root is denied, as on a file system that does not trust root, the program's user
    /// enters it later. Magic links are refused: `/proc/self/fd/7` would name one of the runtime's descriptors.
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

    /// Enters the directory with the program's identity, unless it is entered already.
    pub(crate) fn enter_as_user(self, plan: &mut Builder<'b>) {
        let Self { root, path, entered } = self;
        plan.at("process.cwd");
        plan.push(Step::Enter { root: root.into(), path, entered, tolerate: None });
        plan.release(root);
        plan.release(entered);
    }
}

/// Checks that the program exists, so that a missing one fails `create` and not `start`.
pub(crate) fn find(
    container: &Container,
    invocation: &Invocation<'_>,
    plan: &mut Builder<'_>,
) -> Result<(), Error> {
    let Some(process) = &container.process else { return Ok(()) };
    plan.at("process.args[0]");
    let candidates = places(process, plan)?;
    plan.program =
        process.args.first().map(|program| program.to_string_lossy().into_owned()).unwrap_or_default();
    plan.push(Step::CheckExecutable { candidates });
    plan.at("process");
    // Closes every descriptor of the runtime before the wait; the remaining ones close on exec.
    plan.push(close_others(invocation));
    Ok(())
}

/// Gives up all memory except what the remaining steps need. The child's memory is a copy of the runtime's, which
/// contains the caller's environment and all of config.json. A process of the container with CAP_SYS_PTRACE and
/// without a user namespace of its own may read it, dumpable or not.
pub(crate) fn forget_memory(container: &Container, host: &Host, start: ProgramStart, plan: &mut Builder<'_>) {
    if has_own_memory(container, host, start) {
        plan.at("process").push(Step::ForgetMemory);
    }
}

/// Whether the child starts in a copy of the runtime's memory instead of sharing it. It does in three cases:
///
/// - A process that waits for `start` does not need the runtime's memory, which contains the caller's environment.
/// - A memory limit applies before the program runs, and the kernel kills every process that shares the victim's
///   memory (mm/oom_kill.c, `__oom_kill_process`).
/// - A `startContainer` hook is a program of the image that runs beside a process before exec. With CAP_SYS_PTRACE
///   the hook may read that process's memory, dumpable or not.
///
/// A caller without privileges can fetch a seccomp listener only from memory that it can make dumpable itself.
fn has_own_memory(container: &Container, host: &Host, start: ProgramStart) -> bool {
    let is_fetched_from = container.seccomp_listener.is_some() && host.euid != 0;
    let wants = matches!(start, ProgramStart::On(_))
        || container.resources.limits_memory()
        || !container.hooks.start_container.is_empty();
    wants && !is_fetched_from
}

/// Makes the process undumpable until exec, so that processes in the container cannot read the runtime's memory,
/// or its copy. Reading it then requires CAP_SYS_PTRACE in the user namespace in which the runtime started. Memory
/// that is already undumpable stays so; if the runtime is root's it is so from the clone on.
pub(crate) fn hide_memory(plan: &mut Builder<'_>) {
    plan.at("process").push(Step::Undumpable);
}

/// Waits for `start` if the plan has one, and holds back signals that are meant for the program.
pub(crate) fn wait(start: ProgramStart, plan: &mut Builder<'_>) {
    plan.at("process");
    match start {
        ProgramStart::AtOnce => {
            // The container's state must be recorded before the program becomes visible to others.
            plan.push(Step::Request { what: Request::Parked });
        }
        ProgramStart::On(listener) => {
            let blocked = Signal::ENDING.into_iter().fold(SignalSet::FULL, SignalSet::without);
            plan.push(Step::SignalMask { blocked });
            plan.push(Step::Park { listener });
        }
    }
    plan.push(Step::SignalMask { blocked: SignalSet::EMPTY });
}

/// Executes the program.
pub(crate) fn exec<'b>(
    process: &Process,
    environment: CArray<'b>,
    plan: &mut Builder<'b>,
) -> Result<(), Error> {
    plan.at("process.args");
    let candidates = places(process, plan)?;
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
    // If the caller passes sockets, the runtime sets these variables; the configuration must not override them.
    let is_ours = |variable: &[u8]| {
        invocation.listen_fds != 0
            && [&b"LISTEN_FDS="[..], b"LISTEN_PID="].iter().any(|name| variable.starts_with(name))
    };
    let said = process.env.iter().filter(|variable| {
        let variable = variable.as_bytes();
        // An empty HOME counts as unset.
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

/// Returns the paths at which the program may be.
fn places<'b>(process: &Process, plan: &mut Builder<'b>) -> Result<&'b [&'b CStr], Error> {
    let program = process.args.first().map_or(&[][..], |program| program.to_bytes());
    if program.is_empty() {
        // Engines recognise a missing program (127) by Go's wording.
        return Err(plan.error("exec: \"\": executable file not found in $PATH"));
    }
    let found = program_candidates(process, program);
    let found = found.iter().map(|place| plan.text(place)).collect::<Result<Vec<_>, _>>()?;
    Ok(plan.slice(&found))
}

/// Returns the paths at which a program of the container may be, relative to its working directory.
#[must_use]
pub fn program_candidates(process: &Process, program: &[u8]) -> Vec<OsString> {
    let path = variable(process, b"PATH").unwrap_or(b"/bin:/usr/bin");
    candidates(OsStr::from_bytes(program), OsStr::from_bytes(path))
}

/// Returns the paths at which a program may be: its own if it has a slash, otherwise one in each directory of PATH. An
/// empty name is kept, and execve(2) does not find it.
#[must_use]
pub fn candidates(program: &OsStr, path: &OsStr) -> Vec<OsString> {
    if program.is_empty() || program.as_bytes().contains(&b'/') {
        return vec![program.to_owned()];
    }
    let directories = path.as_bytes().split(|byte| *byte == b':');
    let directories = directories.map(|directory| if directory.is_empty() { b"." } else { directory });
    directories.map(|directory| Path::new(OsStr::from_bytes(directory)).join(program).into()).collect()
}
