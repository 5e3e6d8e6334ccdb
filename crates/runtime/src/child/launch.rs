//! Starts a child that performs a plan.

use crate::cgroups::ChildCgroup;
use crate::child::hooks;
use crate::child::inherited;
use crate::child::timings::Timings;
use crate::child::trees::id_maps;
use crate::error::Error;
use crate::host::null;
use crate::host::probe::{probe, revealing};
use crate::interrupt::Interrupt;
use bumpalo::Bump;
use husk_bundle::Container;
use husk_bundle::container::NamespaceKind;
use husk_listing::{Cause, Kinds, Line};
use husk_plan::{CgroupMount, FailureMeaning, Host, Invocation, NewRoot, Plan, keeps_null_streams};
use husk_script::Step;
use husk_script::sys::Errno;
use husk_spawn::{Child, Command, Reason, Request, Signal};
use log::{Level, debug, log_enabled};
use rustix::event::PollFlags;
use std::os::fd::BorrowedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::task::Poll;

pub(crate) struct Launched<'c> {
    pub(crate) child: Child,
    pub(crate) plan: Plan<'static>,
    /// The cgroup that was made for it.
    pub(crate) home: Option<ChildCgroup<'c>>,
}

impl Launched<'_> {
    /// Returns the child's next request, for whose answer the child waits. A signal ends the wait.
    pub(crate) fn next_request(&mut self, interrupt: &Interrupt) -> Result<Option<Request>, Error> {
        loop {
            if let Some(channel) = self.child.release_fd() {
                interrupt.wait(channel, PollFlags::IN, None)?;
            }
            if let Poll::Ready(request) = self.child.try_next_request()? {
                return Ok(request);
            }
        }
    }

    /// Waits until the child has executed its program. A signal ends the wait.
    pub(crate) fn wait_for_exec(&mut self, interrupt: &Interrupt) -> Result<(), Error> {
        if let Some(channel) = self.child.release_fd() {
            // Polls for the hang-up only, which comes with exec or with the child's death.
            interrupt.wait(channel, PollFlags::empty(), None)?;
        }
        self.child.wait_for_exec().map_err(|error| self.explain(error))?;
        debug!("init: closing the pipe to signal completion: {} has begun", self.child.id());
        Ok(())
    }

    /// Tells the child that its request is done. If the child is gone, the error says why.
    pub(crate) fn go_on(&mut self) -> Result<(), Error> {
        match self.child.go_on() {
            Err(error) if error.reason() == Reason::Errno(Errno::PIPE) => {
                self.child.wait_for_exec().map_err(|error| self.explain(error))?;
                Err(Error::Spawn(error))
            }
            // The child still waits for the answer, and is killed when it is dropped.
            told => Ok(told?),
        }
    }

    /// Explains an error of the child: the limit or filter that killed it, or the output of a hook.
    pub(crate) fn explain(&mut self, error: husk_spawn::Error) -> Error {
        if let Reason::Died(status) = error.reason()
            && status.signal() == Some(Signal::KILL.number())
            && let Some(home) = &self.home
            && let Some(failure) = home.memory_ran_out()
        {
            return Error::step("linux.resources.memory.limit", failure);
        }
        if let Reason::Died(status) = error.reason()
            && status.signal() == Some(Signal::SYS.number())
        {
            return died_before_program(Some(status));
        }
        explain(error, &self.plan, self.child.failure_output())
    }
}

/// Plans the container and starts its process.
pub(crate) fn launch<'c>(
    container: &Container,
    invocation: &Invocation<'_>,
    home: Option<ChildCgroup<'c>>,
    timings: &Timings,
) -> Result<Launched<'c>, Error> {
    timings.begin("look at the machine");
    let mut host = probe(container);
    if invocation.new_root == NewRoot::Move {
        host.revealing = revealing(&container.rootfs);
    }
    if keeps_null_streams(container) {
        null::shield(&host)?;
    }
    if let Some(home) = &home {
        let user = container.namespaces.iter().any(|namespace| namespace.kind == NamespaceKind::User);
        host.entry = home.entry(user);
        show_own(&mut host, home);
    }
    timings.begin("plan");
    let plan = husk_plan::create(container, &host, invocation, memory())?;
    let mut command = command(&plan);
    let asks = |step: &Step<'_>| matches!(step, Step::Request { what: Request::IdMaps });
    if plan.steps.iter().any(asks) {
        command.uid_map(&id_maps(&container.uid_mappings)).gid_map(&id_maps(&container.gid_mappings));
    }
    if timings.are_wanted() {
        command.timed();
    }
    inherited::make_room(container);
    if plan.needs_own_memory() {
        command.own_memory();
    }
    timings.begin("clone, map ids");
    if let Some(directory) = home.as_ref().and_then(ChildCgroup::directory) {
        enter(&mut command, directory)?;
    }
    Ok(Launched { home, ..perform(&command, plan)? })
}

/// Makes mounts of type `cgroup` show the container's own cgroups instead of the caller's.
pub(crate) fn show_own(host: &mut Host, home: &ChildCgroup<'_>) {
    if let CgroupMount::V1(hierarchies) = &mut host.cgroup {
        for (hierarchy, directory) in hierarchies {
            if let Some(own) = home.directory_in(hierarchy) {
                own.clone_into(directory);
            }
        }
    }
}

/// Starts the child in this cgroup.
pub(crate) fn enter(command: &mut Command, directory: BorrowedFd<'_>) -> Result<(), Error> {
    let directory = directory.try_clone_to_owned();
    command.cgroup(directory.map_err(|reason| Error::kernel("keep the cgroup open", reason))?);
    Ok(())
}

/// Allocates memory for a plan. It is never freed, because the child may read it for longer than this process lives.
pub(crate) fn memory() -> &'static Bump {
    Box::leak(Box::new(Bump::new()))
}

/// Returns the command that starts a child which performs the plan.
pub(crate) fn command(plan: &Plan<'static>) -> Command {
    let steps = plan.steps;
    let mut command = Command::of_steps(move |writer| {
        steps.iter().for_each(|step| writer.push(*step));
        Ok(())
    });
    // If anything fails from here on, the process is killed.
    command.kill_on_drop().new_namespaces(plan.namespaces);
    command
}

/// Starts the command's child.
pub(crate) fn perform<'c>(command: &Command, plan: Plan<'static>) -> Result<Launched<'c>, Error> {
    let told = log_enabled!(Level::Debug).then(|| tell(&plan));
    match command.spawn() {
        Ok(child) => {
            debug!("nsexec container setup: process {}, {}", child.id(), told.unwrap_or_default());
            Ok(Launched { child, plan, home: None })
        }
        Err(error) => Err(explain(error, &plan, b"")),
    }
}

/// Summarizes the plan for the log.
fn tell(plan: &Plan<'_>) -> String {
    let mut text = format!("{} steps, born in new namespaces: {}", plan.steps.len(), Kinds(plan.namespaces));
    for step in plan.steps {
        match step {
            Step::Setns { .. } | Step::Unshare { .. } => text += &format!("; {}", Line(step)),
            Step::Seccomp { flags, program } | Step::SeccompListener { flags, program } => {
                debug!("seccomp filter instructions: {}", program.len());
                debug!("seccomp filter flags: {flags}");
            }
            _ => {}
        }
    }
    text
}

/// Returns the error of a process that ended before it executed the program, with the signal if that is known. husk
/// makes no system call that the kernel answers with SIGSYS, so that signal comes from a seccomp filter.
pub(crate) fn died_before_program(status: Option<ExitStatus>) -> Error {
    let signal = status.and_then(|status| status.signal());
    let (origin, how) = match signal {
        Some(31) => {
            ("linux.seccomp", ": killed by signal 31 (bad system call) by its seccomp filter".to_owned())
        }
        Some(signal) => ("process", format!(": killed by signal {signal}")),
        None => ("process", String::new()),
    };
    Error::step(origin, format!("container process died{how} before the program began"))
}

/// Adds to an error the field of config.json that its step comes from.
fn explain(error: husk_spawn::Error, plan: &Plan<'_>, words: &[u8]) -> Error {
    match error.step() {
        Some(step) => {
            let plain = || format!("{}: {}", error.act(), Cause::from(error.reason()));
            let meaning = match error.reason() {
                Reason::Errno(errno) => plan.meaning(step, errno),
                _ => None,
            };
            let failure = match meaning {
                Some(FailureMeaning::Whole(failure)) => failure,
                Some(FailureMeaning::Added(meaning)) => format!("{}: {meaning}", plain()),
                None => plain(),
            };
            Error::step(plan.origin(step).clone(), hooks::with_words(failure, words))
        }
        None => Error::Spawn(error),
    }
}
