//! Running a program: from the profile to how it ended.

use crate::cgroup::Home;
use crate::environment;
use crate::error::{self, Error, Hint};
use crate::host::{Host, Procfs};
use crate::leftovers::{self, Process};
use crate::plan::{candidates, plan};
use crate::probe::probe;
use crate::profile::{Limits, Profile};
use bumpalo::Bump;
use husk_plan::Plan;
use husk_script::sys::Errno;
use husk_script::sys::process::Usage;
use husk_script::sys::signal::{Signal, SignalSet, read_signalfd, rt_sigaction_default, rt_sigprocmask};
use husk_script::{Request, Step};
use husk_spawn::{Child, Command, Reason, signalfd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use std::ffi::OsStr;
use std::fmt::{self, Display, Formatter};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// How a program is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// As well as this machine can.
    Possible,
    /// With everything that is promised, or not at all.
    Strict,
}

/// How a program ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its status.
    pub status: ExitStatus,
    /// How long it took.
    pub wall: Duration,
    /// What it used.
    pub usage: Usage,
    /// What it left behind, which has been ended.
    pub leftovers: Vec<Process>,
    /// The limit that ended it.
    pub reached: Option<Reached>,
    /// Where it was less isolated than is promised.
    pub losses: Vec<Loss>,
}

/// A limit that ended a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// Of time.
    Wall(Duration),
    /// Seconds of a processor.
    Cpu(u64),
    /// Bytes of memory.
    Memory(u64),
    /// Bytes of a file.
    FileSize(u64),
}

impl Display for Reached {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wall(limit) => write!(f, "time limit of {} s reached", limit.as_secs_f64()),
            Self::Cpu(limit) => write!(f, "processor limit of {limit} s reached"),
            Self::Memory(limit) => write!(f, "memory limit of {limit} bytes reached"),
            Self::FileSize(limit) => write!(f, "file size limit of {limit} bytes reached"),
        }
    }
}

/// Isolation that is not to be had on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Limits of memory and processes are each process's and each user's, not all of the program's together.
    Cgroup(String),
    /// The program sees the caller's procfs.
    Procfs,
    /// The program is in the caller's user namespace, with no privileges of it.
    UserNamespace,
}

impl Display for Loss {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cgroup(why) => {
                return write!(
                    f,
                    "limits of memory and processes are kept by rlimits, for each process and user, and not for all \
                     together: no cgroup can be had: {why}"
                );
            }
            Self::Procfs => {
                "/proc is the caller's, whose processes are seen there: parts of it are covered, as in a \
                 container, so the kernel lets nobody mount another"
            }
            Self::UserNamespace => "there is no user namespace of its own: none can be made here",
        })
    }
}

/// Runs a program to its end. Signals that we get meanwhile are passed on to it.
///
/// # Errors
///
/// If the sandbox cannot be made, or the program not be run.
pub fn run(profile: &Profile, how: Run) -> Result<Ended, Error> {
    let mut host = probe(profile)?;
    let mut losses = Vec::new();
    let home = match Home::of(&profile.limits).transpose() {
        Ok(home) => home,
        Err(error) => {
            losses.push(Loss::Cgroup(error.to_string()));
            None
        }
    };
    if let Some(loss) = losses.pop_if(|_| how == Run::Strict) {
        return Err(Error::Strict(loss));
    }
    host.cgroup = home.is_some();
    loop {
        // Never freed: the child may read it for longer than we live.
        let plan = plan(profile, &host, Box::leak(Box::new(Bump::new())))?;
        match perform(&plan, &profile.limits, home.as_ref()) {
            Ok(ended) => return Ok(Ended { losses, ..ended }),
            Err(error) => match loss(&error, &plan, &mut host) {
                Some(loss) if how == Run::Strict => return Err(Error::Strict(loss)),
                Some(loss) => losses.push(loss),
                None => return Err(explain(error, &plan, profile, &host)),
            },
        }
    }
}

/// Ends this process by the signal that ended a program, so that whoever waits for us sees what became of it.
/// Returns if it was none, or one that ends nobody.
pub fn end_alike(status: ExitStatus) {
    let signal = status.signal();
    let Some((ours, theirs)) =
        signal.and_then(|raw| Signal::new(raw).zip(rustix::process::Signal::from_named_raw(raw)))
    else {
        return;
    };
    // What Rust has installed for faults takes one that was sent for none. Tolerated: SIGKILL has no handler.
    rt_sigaction_default(ours).unwrap_or(());
    // Tolerated: then the caller says it by a code.
    rustix::process::kill_process(rustix::process::getpid(), theirs).unwrap_or(());
}

/// What [`run`] would do, a line a step.
///
/// # Errors
///
/// As `run`, but for what only the kernel knows.
pub fn listing(profile: &Profile) -> Result<String, Error> {
    Ok(plan(profile, &probe(profile)?, &Bump::new())?.to_string())
}

/// The step at which a plan failed, and why.
fn failed_at<'p>(error: &husk_spawn::Error, plan: &'p Plan<'static>) -> Option<(&'p Step<'static>, Errno)> {
    match error.reason() {
        Reason::Errno(errno) => Some((plan.steps.get(error.step()?)?, errno)),
        _ => None,
    }
}

/// What can be gone without, so that another attempt may succeed. The host is then taken for one that has
/// not got it.
fn loss(error: &husk_spawn::Error, plan: &Plan<'static>, host: &mut Host) -> Option<Loss> {
    match failed_at(error, plan) {
        Some((Step::Mount { fstype, .. }, Errno::PERM)) if *fstype == c"proc" => {
            host.procfs = Procfs::Callers;
            Some(Loss::Procfs)
        }
        None if is_refusal(error) && host.uid == 0 && host.user_namespace => {
            host.user_namespace = false;
            Some(Loss::UserNamespace)
        }
        _ => None,
    }
}

/// The error in words that help.
fn explain(error: husk_spawn::Error, plan: &Plan<'static>, profile: &Profile, host: &Host) -> Error {
    let reason = |errno: Errno| io::Error::from_raw_os_error(errno.raw_os_error());
    let refused = |errno: Errno| Error::Namespaces {
        act: error.act().to_owned(),
        reason: reason(errno),
        hint: error::switched_off(errno),
    };
    match (failed_at(&error, plan), error.reason()) {
        (Some((Step::ExecveFirst { .. }, errno)), _) => Error::Program {
            program: profile.args.first().map(|program| program.to_string_lossy().into()).unwrap_or_default(),
            reason: reason(errno),
            hint: hidden(profile, host),
        },
        // A user namespace may be made here, and not be used.
        (Some((Step::WriteFile { .. }, errno @ (Errno::PERM | Errno::ACCESS))), _) => refused(errno),
        (None, Reason::Errno(errno)) if error.step().is_none() => refused(errno),
        _ => {
            let origin = error.step().map_or("sandbox", |step| plan.origin(step)).to_owned();
            Error::Step { origin, error }
        }
    }
}

/// Whether the kernel refuses a namespace.
fn is_refusal(error: &husk_spawn::Error) -> bool {
    let Reason::Errno(errno) = error.reason() else { return false };
    matches!(errno, Errno::PERM | Errno::NOSPC | Errno::USERS | Errno::NOSYS | Errno::INVAL)
}

/// Where the program is, if the sandbox hides it.
fn hidden(profile: &Profile, host: &Host) -> Hint {
    let variables = environment::variables(profile, host);
    let path = variables.get(OsStr::new("PATH")).cloned().unwrap_or_default();
    let places = profile.args.first().map(|program| candidates(program, &path)).unwrap_or_default();
    let place = places.iter().map(Path::new).find(|place| place.is_file());
    let directory = place.and_then(Path::parent);
    Hint(directory.map(|directory| {
        format!("it is there, but hidden or needs what is hidden: '--read {}' shows it", directory.display())
    }))
}

/// Starts the plan's child and watches it to its end.
fn perform(plan: &Plan<'static>, limits: &Limits, home: Option<&Home>) -> Result<Ended, husk_spawn::Error> {
    let steps = plan.steps;
    let mut command = Command::of_steps(move |writer| {
        steps.iter().for_each(|step| writer.push(*step));
        Ok(())
    });
    command.kill_on_drop().new_namespaces(plan.namespaces);
    let held = Held::all()?;
    let started = Instant::now();
    watch(&mut command.spawn()?, &held, limits, home, started)
}

/// Signals that wait until they are passed on.
struct Held {
    before: SignalSet,
    arriving: OwnedFd,
}

impl Held {
    /// All but faults, which are of our own making, and what stops and continues us.
    fn all() -> Result<Self, husk_spawn::Error> {
        const LEFT: [Signal; 10] = [
            Signal::SEGV,
            Signal::BUS,
            Signal::FPE,
            Signal::ILL,
            Signal::TRAP,
            Signal::SYS,
            Signal::TSTP,
            Signal::TTIN,
            Signal::TTOU,
            Signal::CONT,
        ];
        let failed = |errno| husk_spawn::Error::new("hold signals", errno);
        let set = LEFT.into_iter().fold(SignalSet::FULL, SignalSet::without);
        // If our caller ignores the ends of children, the kernel keeps no status of any.
        rt_sigaction_default(Signal::CHLD).map_err(failed)?;
        let before = rt_sigprocmask(set).map_err(failed)?;
        let arriving = signalfd(set)?;
        Ok(Self { before, arriving })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Tolerated: it was the mask before.
        rt_sigprocmask(self.before).map(drop).unwrap_or(());
    }
}

/// One loop over the program's end, what its first process asks, our signals and the time.
fn watch(
    child: &mut Child,
    held: &Held,
    limits: &Limits,
    home: Option<&Home>,
    started: Instant,
) -> Result<Ended, husk_spawn::Error> {
    let failed = |errno| husk_spawn::Error::new("watch the program", errno);
    let mut leftovers = Vec::new();
    let mut is_late = false;
    loop {
        let left = limits.wall.filter(|_| !is_late).map(|wall| wall.saturating_sub(started.elapsed()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let (ended, arrived, asks) = {
            let process = child.as_fd();
            let mut polled = vec![
                PollFd::from_borrowed_fd(process, PollFlags::IN),
                PollFd::new(&held.arriving, PollFlags::IN),
            ];
            polled.extend(child.release_fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            retry_on_intr(|| poll(&mut polled, left.as_ref())).map_err(failed)?;
            let ready = |index: usize| polled.get(index).is_some_and(|polled| !polled.revents().is_empty());
            (ready(0), ready(1), ready(2))
        };
        if arrived {
            pass_on(child, held)?;
        }
        if ended && let Some(status) = child.try_wait()? {
            let reached = match limits.wall.filter(|_| is_late) {
                Some(wall) => Some(Reached::Wall(wall)),
                None => reached(status, limits, home),
            };
            let usage = child.usage().unwrap_or_default();
            let wall = started.elapsed();
            return Ok(Ended { status, wall, usage, leftovers, reached, losses: Vec::new() });
        }
        if asks && !ended {
            match child.next_request()? {
                Some(Request::Leftovers) => leftovers = leftovers::below(child.id()),
                Some(Request::Cgroup) => join(child, home)?,
                // It is about to end.
                _ => continue,
            }
            child.go_on()?;
        }
        if !is_late && limits.wall.is_some_and(|wall| started.elapsed() >= wall) {
            is_late = true;
            child.kill()?;
        }
    }
}

/// Moves the program into its cgroup: the one child that the first process has.
fn join(child: &Child, home: Option<&Home>) -> Result<(), husk_spawn::Error> {
    for program in leftovers::below(child.id()) {
        let joined = home.map_or(Ok(()), |home| home.join(program.pid));
        joined.map_err(|error| husk_spawn::Error::new(error.to_string(), Errno::PERM))?;
    }
    Ok(())
}

/// The limit that ended the program, as far as the kernel tells.
fn reached(status: ExitStatus, limits: &Limits, home: Option<&Home>) -> Option<Reached> {
    if !status.success() && home.is_some_and(Home::has_run_out) {
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

/// Passes on all signals that have come.
fn pass_on(child: &Child, held: &Held) -> Result<(), husk_spawn::Error> {
    loop {
        match read_signalfd(&held.arriving) {
            Ok(arrived) if arrived.signal == Signal::CHLD => {}
            Ok(arrived) => child.signal(arrived.signal)?,
            Err(Errno::AGAIN) => return Ok(()),
            Err(errno) => return Err(husk_spawn::Error::new("take a signal", errno)),
        }
    }
}
