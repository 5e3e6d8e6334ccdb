//! Supervises the container's process in the foreground, with its signals and its terminal.
//!
//! `run` and `exec` share this. [`Signals::hold`] blocks the signals before the process exists, so that none is lost.
//! They stay pending until [`supervise`] passes them on.

use crate::child::terminal::{Relay, RelayEvent};
use crate::error::Error;
use crate::interrupt::is_ending;
use husk_script::sys::Errno;
use husk_script::sys::signal::{read_signalfd, rt_sigaction_default, rt_sigprocmask, rt_sigwait};
use husk_spawn::{Adopted, Child, Signal, SignalSet, signalfd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, WaitId, WaitIdOptions, set_child_subreaper, waitid};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

/// Signals that are not held: URG, and faults, which this process causes itself.
const OURS: &[Signal] =
    &[Signal::URG, Signal::SEGV, Signal::BUS, Signal::FPE, Signal::ILL, Signal::TRAP, Signal::SYS];

/// The children that are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orphans {
    /// The container's process only.
    Others,
    /// The container's process and the orphans of its processes. For containers without a pid namespace, which
    /// would kill and reap orphans.
    Ours,
}

/// A process that is supervised.
pub(crate) trait Watched: AsFd {
    fn id(&self) -> u32;
    fn signal(&mut self, signal: Signal) -> Result<(), husk_spawn::Error>;
    /// Returns whether its program has begun, or never will. Does not wait.
    fn has_begun(&mut self) -> Result<bool, husk_spawn::Error>;
    /// Returns a descriptor that is hung up when the program begins or the process ends before.
    fn beginning(&self) -> Option<BorrowedFd<'_>>;
    /// Kills the process and waits for its end.
    fn end(&mut self) -> Result<(), husk_spawn::Error>;
    fn try_wait(&mut self) -> Result<Option<ExitStatus>, husk_spawn::Error>;
}

impl Watched for Child {
    fn id(&self) -> u32 {
        self.id()
    }

    fn signal(&mut self, signal: Signal) -> Result<(), husk_spawn::Error> {
        Self::signal(self, signal)
    }

    fn has_begun(&mut self) -> Result<bool, husk_spawn::Error> {
        Self::has_begun(self)
    }

    fn beginning(&self) -> Option<BorrowedFd<'_>> {
        self.release_fd()
    }

    fn end(&mut self) -> Result<(), husk_spawn::Error> {
        self.kill()?;
        match self.wait() {
            // The process was killed before it completed its steps, as intended.
            Ok(_) => Ok(()),
            Err(error) if error.step().is_some() => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn try_wait(&mut self) -> Result<Option<ExitStatus>, husk_spawn::Error> {
        self.try_wait()
    }
}

impl Watched for Adopted {
    fn id(&self) -> u32 {
        self.id()
    }

    fn signal(&mut self, signal: Signal) -> Result<(), husk_spawn::Error> {
        Self::signal(self, signal)
    }

    /// A restored process continues in its program.
    fn has_begun(&mut self) -> Result<bool, husk_spawn::Error> {
        Ok(true)
    }

    fn beginning(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn end(&mut self) -> Result<(), husk_spawn::Error> {
        Self::signal(self, Signal::KILL)?;
        self.wait().map(drop)
    }

    fn try_wait(&mut self) -> Result<Option<ExitStatus>, husk_spawn::Error> {
        self.try_wait()
    }
}

/// The signals that are held.
pub(crate) struct Signals {
    set: SignalSet,
    orphans: Orphans,
}

impl Signals {
    /// Blocks all signals that are meant for the container, and SIGCHLD, before there is a container.
    pub(crate) fn hold(orphans: Orphans) -> Result<Self, Error> {
        let set = OURS.iter().copied().fold(SignalSet::FULL, SignalSet::without);
        let become_reaper = || match orphans {
            Orphans::Others => Ok(()),
            // Any pid enables it.
            Orphans::Ours => set_child_subreaper(Some(Pid::INIT)),
        };
        // If the caller ignores SIGCHLD, the kernel keeps no exit status of any child.
        rt_sigaction_default(Signal::CHLD)
            .and_then(|()| become_reaper())
            .and_then(|()| rt_sigprocmask(set))
            .map_err(|errno| Error::kernel("block signals", errno))?;
        Ok(Self { set, orphans })
    }
}

/// A source of events that [`wait`] reports as ready.
#[derive(Clone, Copy)]
enum Source {
    Process,
    Signals,
    Terminal(RelayEvent),
}

/// Passes signals on to the process and relays its terminal, until the process ends.
pub(crate) fn supervise(
    child: &mut dyn Watched,
    signals: &Signals,
    relay: Option<Relay>,
) -> Result<ExitStatus, husk_spawn::Error> {
    match relay {
        Some(relay) => with_terminal(child, signals, relay),
        None => with_signals(child, signals),
    }
}

/// Supervises a process without a terminal. It awaits only signals, because SIGCHLD reports the end, and so needs no
/// descriptor.
fn with_signals(child: &mut dyn Watched, signals: &Signals) -> Result<ExitStatus, husk_spawn::Error> {
    loop {
        match rt_sigwait(signals.set) {
            Ok(Signal::CHLD) => {
                if let Some(status) = child.try_wait()? {
                    return Ok(status);
                }
                reap(child, signals.orphans);
            }
            // The process has no terminal to resize.
            Ok(Signal::WINCH) | Err(Errno::INTR) => {}
            Ok(signal) => {
                if let Passed::Ended(status) = send(child, signals, signal)? {
                    return Ok(status);
                }
            }
            Err(errno) => return Err(husk_spawn::Error::new("wait for signals", errno)),
        }
    }
}

/// Supervises a process with a terminal: polls the process, the signals and both sides of the terminal.
fn with_terminal(
    child: &mut dyn Watched,
    signals: &Signals,
    mut relay: Relay,
) -> Result<ExitStatus, husk_spawn::Error> {
    let failed = |errno| husk_spawn::Error::new("watch the container", errno);
    let arriving = signalfd(signals.set)?;
    loop {
        let ready = wait(child, &arriving, &relay).map_err(failed)?;
        for (source, events) in ready {
            match source {
                Source::Process => {
                    let Some(status) = child.try_wait()? else { continue };
                    // Copies the rest of the output. Any other signal ends that.
                    let others = signals.set.without(Signal::CHLD).without(Signal::WINCH);
                    let interrupt = signalfd(others)?;
                    return relay.drain(interrupt.as_fd()).map_err(failed).map(|()| status);
                }
                Source::Signals => {
                    if let Passed::Ended(status) = pass_on(child, signals, &arriving, &mut relay)? {
                        return Ok(status);
                    }
                }
                Source::Terminal(end) => relay.turn(end, events),
            }
        }
    }
}

/// Waits until a source is ready.
fn wait(child: &dyn Watched, arriving: &OwnedFd, relay: &Relay) -> Result<Vec<(Source, PollFlags)>, Errno> {
    let mut sources = vec![Source::Process, Source::Signals];
    let mut polled =
        vec![PollFd::from_borrowed_fd(child.as_fd(), PollFlags::IN), PollFd::new(arriving, PollFlags::IN)];
    for (end, fd, flags) in relay.ends() {
        sources.push(Source::Terminal(end));
        polled.push(PollFd::from_borrowed_fd(fd, flags));
    }
    retry_on_intr(|| poll(&mut polled, None))?;
    let ready = sources.into_iter().zip(polled.iter().map(PollFd::revents));
    // Signals are handled before the process's end, so that those that arrived first are still passed on.
    let mut ready: Vec<_> = ready.filter(|(_, events)| !events.is_empty()).collect();
    ready.reverse();
    Ok(ready)
}

/// Passes on all pending signals.
fn pass_on(
    child: &mut dyn Watched,
    signals: &Signals,
    arriving: &OwnedFd,
    relay: &mut Relay,
) -> Result<Passed, husk_spawn::Error> {
    loop {
        let arrived = match read_signalfd(arriving) {
            Ok(arrived) => arrived,
            Err(Errno::AGAIN) => return Ok(Passed::On),
            Err(errno) => return Err(husk_spawn::Error::new("read a signal", errno)),
        };
        match arrived.signal {
            Signal::CHLD => reap(child, signals.orphans),
            Signal::WINCH => relay.resize(),
            // This process caused it by writing to a pipe without a reader.
            Signal::PIPE if arrived.sender == std::process::id() => {}
            signal => {
                if signal == Signal::CONT {
                    relay.come_forward();
                }
                if let ended @ Passed::Ended(_) = send(child, signals, signal)? {
                    return Ok(ended);
                }
            }
        }
    }
}

/// The outcome of passing on a signal.
enum Passed {
    /// The signal was sent, or the process has ended already.
    On,
    /// It ended the process before the program began, which counts as the program's end.
    Ended(ExitStatus),
}

/// Sends the process a signal. A process that has ended is not an error, because waiting for it reports the end. Until
/// the program has begun, the process runs husk's code and other processes may stop it. So an ending signal kills it
/// then, and other signals wait for the program.
fn send(child: &mut dyn Watched, signals: &Signals, signal: Signal) -> Result<Passed, husk_spawn::Error> {
    if !child.has_begun()? {
        let ending = if is_ending(signal) { Some(signal) } else { await_program(child, signals)? };
        if let Some(ending) = ending {
            child.end()?;
            return Ok(Passed::Ended(ExitStatus::from_raw(ending.number())));
        }
    }
    match child.signal(signal) {
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(Passed::On),
        sent => sent.map(|()| Passed::On),
    }
}

/// Waits until the program has begun or an ending signal arrives, and returns that signal.
fn await_program(child: &mut dyn Watched, signals: &Signals) -> Result<Option<Signal>, husk_spawn::Error> {
    let failed = |errno| husk_spawn::Error::new("wait for the program", errno);
    let ending = Signal::ENDING.into_iter().filter(|signal| signals.set.contains(*signal));
    let arriving = signalfd(ending.fold(SignalSet::EMPTY, SignalSet::with))?;
    while !child.has_begun()? {
        let Some(beginning) = child.beginning() else { return Ok(None) };
        let mut polled =
            [PollFd::from_borrowed_fd(beginning, PollFlags::empty()), PollFd::new(&arriving, PollFlags::IN)];
        retry_on_intr(|| poll(&mut polled, None)).map_err(failed)?;
        if !polled[1].revents().is_empty() {
            match read_signalfd(&arriving) {
                Ok(arrived) => return Ok(Some(arrived.signal)),
                Err(Errno::AGAIN) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
    }
    Ok(None)
}

/// Reaps the orphans that have become children of this process. Skips the container's process, whose status is still
/// needed.
fn reap(child: &dyn Watched, orphans: Orphans) {
    if orphans == Orphans::Others {
        return;
    }
    // Tolerated: on a kernel without this list zombies remain until this process ends.
    let ours = fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    let pids = ours.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?));
    for orphan in pids.filter(|pid| pid.as_raw_pid().unsigned_abs() != child.id()) {
        // Tolerated: the process still runs, or cannot be waited for.
        let _ended =
            waitid(WaitId::Pid(orphan), WaitIdOptions::EXITED | WaitIdOptions::NOHANG).unwrap_or(None);
    }
}
