//! One program in its sandbox from start to end, and the loop that watches any number of them.

use super::cgroup::SandboxCgroup;
use super::ended::{DiskLimit, Ended, Reached, RemainingProcess};
use super::kept::OwnFiles;
use super::terminal::CallerTerminal;
use crate::explain;
use crate::explain::observe::{Observed, Observer};
use crate::plan::SandboxPlan;
use crate::profile::Limits;
use husk_script::Request;
use husk_script::sys::Errno;
use husk_script::sys::signal::{Signal, SignalSet, read_signalfd, rt_sigaction_default, rt_sigprocmask};
use husk_script::sys::tolerate;
use husk_spawn::{Child, Command, Error, Reason, signalfd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::cell::Cell;
use std::fs;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A program that could not be started.
pub(crate) struct Failed {
    pub(crate) plan: Arc<SandboxPlan>,
    pub(crate) error: Fault,
}

/// An error of a sandbox.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The profile cannot be turned into a plan.
    #[error(transparent)]
    Plan(#[from] husk_plan::Error),
    /// The child cannot be created or watched.
    #[error(transparent)]
    Child(#[from] Error),
    /// The program cannot be observed.
    #[error(transparent)]
    Observer(Error),
    /// The program cannot be moved into its cgroup.
    #[error(transparent)]
    Cgroup(#[from] husk_cgroup::Error),
}

/// A running program.
pub(crate) struct Sandbox {
    child: Child,
    home: Option<Rc<SandboxCgroup>>,
    plan: Arc<SandboxPlan>,
    started: Instant,
    is_late: bool,
    /// Whether its first process sends no more requests. The kernel takes a while to end a namespace.
    is_ending: bool,
    remaining: Vec<RemainingProcess>,
    was_signalled: bool,
    terminal: Option<CallerTerminal>,
    /// The root of the program's own file system.
    files: Option<Arc<OwnedFd>>,
    observer: Option<Observer>,
    /// Whether signals that we receive are passed on to it.
    hears_signals: bool,
}

impl Sandbox {
    /// Starts the child that performs the plan.
    pub(crate) fn start(
        plan: Arc<SandboxPlan>,
        home: Option<Rc<SandboxCgroup>>,
    ) -> Result<Self, Box<Failed>> {
        let refused = Arc::new(OnceLock::new());
        let (sketch, refusal) = (Arc::clone(&plan), Arc::clone(&refused));
        let mut command = Command::of_steps(move |writer| match sketch.plan(writer.memory()) {
            Ok(plan) => {
                plan.steps.iter().for_each(|step| writer.push(*step));
                Ok(())
            }
            Err(error) => {
                refusal.get_or_init(|| error);
                Err(Error::new("plan", Errno::INVAL))
            }
        });
        command.kill_on_drop().new_namespaces(plan.namespaces());
        let started = Instant::now();
        match command.spawn() {
            Ok(child) => Ok(Self {
                child,
                home,
                plan,
                started,
                is_late: false,
                is_ending: false,
                remaining: Vec::new(),
                was_signalled: false,
                terminal: None,
                files: None,
                observer: None,
                hears_signals: true,
            }),
            Err(error) => {
                drop(command);
                let refused = Arc::into_inner(refused).and_then(OnceLock::into_inner);
                let error = refused.map_or_else(|| error.into(), Fault::Plan);
                Err(Box::new(Failed { plan, error }))
            }
        }
    }

    /// Returns the same sandbox, which does not get the signals that we receive.
    pub(crate) fn without_signals(mut self) -> Self {
        self.hears_signals = false;
        self
    }

    pub(crate) fn kill(&self) -> Result<(), Error> {
        self.child.kill()
    }

    /// Returns the program's process, which is the first process's first child.
    pub(crate) fn program(&self) -> Option<RemainingProcess> {
        below(self.child.id()).into_iter().next()
    }

    /// Waits for the end of a sandbox whose program has ended.
    pub(crate) fn end(&mut self) -> Result<Ended, Fault> {
        while !self.is_ending {
            if let Some(ended) = self.turn(true)? {
                return Ok(ended);
            }
        }
        self.child.wait()?;
        let failed = Error::new("wait", Errno::CHILD);
        self.turn(false)?.ok_or(Fault::Child(failed))
    }

    /// Returns when the child was started.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Records the terminal that the program has taken.
    pub(crate) fn lend(&mut self, terminal: Option<CallerTerminal>) {
        self.terminal = terminal;
    }

    /// Returns whether only the kernel is still busy: it waits until no other processor uses the mounts.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending && self.remaining.is_empty()
    }

    /// Returns the plan of a sandbox that has ended.
    pub(crate) fn into_plan(self) -> Arc<SandboxPlan> {
        self.plan
    }

    /// Returns what was observed, once it has ended.
    pub(crate) fn observed(&mut self) -> Vec<Observed> {
        self.observer.take().map(Observer::end).unwrap_or_default()
    }

    /// Fetches the listener that the program's process has just announced, and serves it. The program is the first
    /// process's only child, and has its own descriptors.
    fn observe(&mut self) -> Result<(), Error> {
        let failed = |errno| Error::new("fetch the seccomp listener", errno);
        let number = self.child.about().and_then(|number| i32::try_from(number).ok());
        let program = below(self.child.id()).first().and_then(|program| i32::try_from(program.pid).ok());
        let program = program.and_then(Pid::from_raw).ok_or(failed(Errno::SRCH))?;
        let program = pidfd_open(program, PidfdFlags::empty()).map_err(failed)?;
        let listener = pidfd_getfd(program, number.ok_or(failed(Errno::BADF))?, PidfdGetfdFlags::empty());
        let sandboxed = explain::sandboxed(&self.plan.profile, &self.plan.host);
        let observer = Observer::begin(listener.map_err(failed)?, sandboxed);
        let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        self.observer = Some(observer.map_err(|error| Error::new("observe the program", errno(error)))?);
        Ok(())
    }

    fn limits(&self) -> &Limits {
        &self.plan.profile.limits
    }

    /// Returns the time that is left of its limit.
    fn left(&self) -> Option<Duration> {
        let wall = self.limits().wall.filter(|_| !self.is_late)?;
        Some(wall.saturating_sub(self.started.elapsed()))
    }

    /// Checks whether the program has ended or exceeds its time, and answers a request of its first process.
    fn turn(&mut self, asks: bool) -> Result<Option<Ended>, Fault> {
        let ended = match self.child.try_wait() {
            Err(error) if self.is_late => Some(killed(error)?),
            ended => ended?,
        };
        if let Some(status) = ended {
            let reached = match self.limits().wall.filter(|_| self.is_late) {
                Some(wall) => Some(Reached::Wall(wall)),
                None => reached(status, self.limits(), self.home.as_deref()),
            };
            let usage = self.child.usage().unwrap_or_default();
            let full = self.limits().disk.filter(|_| self.child.has_full_space()).map(DiskLimit);
            let (wall, remaining) = (self.started.elapsed(), std::mem::take(&mut self.remaining));
            let had_terminal = self.terminal.take().is_some_and(CallerTerminal::end);
            let (was_signalled, losses) = (self.was_signalled, Vec::new());
            let files = self.files.take().map(|root| OwnFiles::new(root, &self.plan));
            return Ok(Some(Ended {
                status,
                wall,
                usage,
                remaining,
                reached,
                full,
                had_terminal,
                was_signalled,
                losses,
                services: Vec::new(),
                not_run: None,
                files,
                recalled: None,
            }));
        }
        if self.left() == Some(Duration::ZERO) {
            self.is_late = true;
            self.child.kill()?;
        }
        if asks {
            match self.child.next_request()? {
                Some(Request::RemainingProcesses) => self.remaining = below(self.child.id()),
                Some(Request::Cgroup) => self.join()?,
                Some(Request::Files) => self.files = Some(Arc::new(self.child.requested_fd()?)),
                Some(Request::Listener) => self.observe().map_err(Fault::Observer)?,
                Some(Request::Stopped) => {
                    // Lets the first process wait for signals again.
                    self.child.go_on()?;
                    return self.stop().map(|()| None);
                }
                _ => {
                    self.is_ending = true;
                    return Ok(None);
                }
            }
            self.child.go_on()?;
        }
        Ok(None)
    }

    /// Moves the program, which is the first process's only child, into its cgroup.
    fn join(&self) -> Result<(), husk_cgroup::Error> {
        let Some(home) = &self.home else { return Ok(()) };
        below(self.child.id()).iter().try_for_each(|program| home.join(program.pid))
    }

    /// Stops our job with a program that the terminal has stopped, and continues the program afterwards. Without a
    /// terminal, a stopped program stays stopped.
    fn stop(&self) -> Result<(), Fault> {
        let Some(terminal) = &self.terminal else { return Ok(()) };
        terminal.stop(below(self.child.id()).first().map(|program| program.pid));
        Ok(self.child.signal(Signal::CONT)?)
    }
}

/// Returns the status of a child that was killed while it made its sandbox. The time limit includes that.
fn killed(error: Error) -> Result<ExitStatus, Error> {
    match error.reason() {
        Reason::Died(status) if status.signal() == Some(Signal::KILL.number()) => Ok(status),
        _ => Err(error),
    }
}

/// Returns the limit that ended a program, if the kernel tells.
fn reached(status: ExitStatus, limits: &Limits, home: Option<&SandboxCgroup>) -> Option<Reached> {
    if !status.success() && home.is_some_and(SandboxCgroup::has_run_out) {
        return limits.memory.map(Reached::Memory);
    }
    let by = |signal: Signal| status.signal() == Some(signal.number());
    if by(Signal::XCPU) {
        limits.cpu_seconds.map(Reached::Cpu)
    } else if by(Signal::XFSZ) {
        limits.file_size.map(Reached::FileSize)
    } else {
        None
    }
}

/// The index of a sandbox that has ended, and its result.
pub(crate) type Over = (usize, Result<Ended, Fault>);

/// Waits until a sandbox has an event, an output is readable or the time is over. Returns the sandboxes that have
/// ended.
pub(crate) fn watch<'s>(
    sandboxes: impl IntoIterator<Item = &'s mut Sandbox>,
    held: &Held,
    outputs: &[BorrowedFd<'_>],
    wake: Option<Duration>,
) -> Result<Vec<Over>, Error> {
    let failed = |errno| Error::new("watch the program", errno);
    let mut sandboxes: Vec<_> = sandboxes.into_iter().collect();
    let left = sandboxes.iter().filter_map(|sandbox| sandbox.left()).chain(wake).min();
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    let (arrived, asks) = {
        let mut polled = vec![PollFd::new(&held.arriving, PollFlags::IN)];
        for sandbox in &sandboxes {
            let process = sandbox.child.as_fd();
            let channel = sandbox.child.release_fd().filter(|_| !sandbox.is_ending);
            for fd in [process, channel.unwrap_or(process)] {
                polled.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            }
        }
        polled.extend(outputs.iter().map(|output| PollFd::from_borrowed_fd(*output, PollFlags::IN)));
        retry_on_intr(|| poll(&mut polled, left.as_ref())).map_err(failed)?;
        let ready = |polled: &PollFd<'_>| !polled.revents().is_empty();
        let (signals, others) = polled.split_at(1);
        let asks: Vec<_> = others.chunks(2).map(|pair| pair.last().is_some_and(ready)).collect();
        (signals.iter().any(ready), asks)
    };
    if arrived {
        held.pass_on(&mut sandboxes)?;
    }
    let turns = sandboxes.iter_mut().zip(asks).enumerate();
    let turns = turns.filter_map(|(place, (sandbox, asks))| Some((place, sandbox.turn(asks).transpose()?)));
    Ok(turns.collect())
}

/// Signals that are blocked until they are passed on.
pub(crate) struct Held {
    before: SignalSet,
    arriving: OwnedFd,
    interrupted_by: Cell<Option<Signal>>,
}

impl Held {
    /// Blocks all signals except faults, which we cause ourselves, and those that stop or continue us. Blocking SIGTTOU
    /// lets us take a terminal back.
    pub(crate) fn all() -> Result<Self, Error> {
        const LEFT: &[Signal] = &[
            Signal::SEGV,
            Signal::BUS,
            Signal::FPE,
            Signal::ILL,
            Signal::TRAP,
            Signal::SYS,
            Signal::TSTP,
            Signal::TTIN,
            Signal::CONT,
        ];
        let failed = |errno| Error::new("block signals", errno);
        let set = LEFT.iter().copied().fold(SignalSet::FULL, SignalSet::without);
        // If our caller ignored SIGCHLD, the kernel would keep no exit status.
        rt_sigaction_default(Signal::CHLD).map_err(failed)?;
        let before = rt_sigprocmask(set).map_err(failed)?;
        let arriving = signalfd(set)?;
        Ok(Self { before, arriving, interrupted_by: Cell::new(None) })
    }

    /// Returns whether one of the signals was meant to end us.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted_by.get().is_some()
    }

    /// Returns the last signal that was meant to end us.
    pub(crate) fn interrupted_by(&self) -> Option<Signal> {
        self.interrupted_by.get()
    }

    /// Passes on all pending signals.
    fn pass_on(&self, sandboxes: &mut [&mut Sandbox]) -> Result<(), Error> {
        loop {
            match read_signalfd(&self.arriving) {
                Ok(arrived) if arrived.signal == Signal::CHLD => {}
                Ok(arrived) => {
                    if Signal::ENDING.contains(&arrived.signal) {
                        self.interrupted_by.set(Some(arrived.signal));
                    }
                    // Resizing a terminal does not make a program fail.
                    let is_reason = arrived.signal != Signal::WINCH;
                    for sandbox in sandboxes.iter_mut().filter(|sandbox| sandbox.hears_signals) {
                        sandbox.was_signalled |= is_reason;
                        sandbox.child.signal(arrived.signal)?;
                    }
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(Error::new("read a signal", errno)),
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        tolerate(rt_sigprocmask(self.before), "the mask was valid before");
    }
}

/// Returns all descendants of a process, without the process itself.
fn below(pid: u32) -> Vec<RemainingProcess> {
    let mut found = Vec::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        // A process that has ended meanwhile has no children.
        let children =
            fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        for pid in children.split_whitespace().filter_map(|pid| pid.parse().ok()) {
            parents.push(pid);
            found.push(RemainingProcess { pid, command: command(pid) });
        }
    }
    found
}

/// Returns a process's command line, or its name if that is empty.
fn command(pid: u32) -> String {
    const MOST_CHARACTERS: usize = 80;
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).trim_end_matches('\0').replace('\0', " ");
    let text = match line.is_empty() {
        true => fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned(),
        false => line,
    };
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).take(MOST_CHARACTERS).collect()
}
