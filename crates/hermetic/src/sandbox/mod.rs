//! Running a program: from the profile to how it ended.

mod cgroup;
pub(crate) mod ended;
pub(crate) mod probe;
mod terminal;
pub(crate) mod watch;

use crate::error::{self, Error, Hint, Loss};
use crate::host::{Host, Procfs};
use crate::plan::environment;
use crate::plan::layers::Streams;
use crate::plan::{PROC, SandboxPlan, candidates, plan};
use crate::profile::{Limits, Profile};
use bumpalo::Bump;
use cgroup::Home;
use ended::Ended;
use husk_plan::Plan;
use husk_script::Step;
use husk_script::sys::Errno;
use husk_script::sys::signal::{Signal, rt_sigaction_default};
use husk_script::sys::tolerate;
use husk_spawn::Reason;
use probe::probe;
use rustix::process::{getpid, kill_current_process_group, kill_process};
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::rc::Rc;
use terminal::Terminal;
use watch::{Failed, Fault, Held, Sandbox, watch};

/// How a program is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// As well as this machine can.
    Possible,
    /// With everything that is promised, or not at all.
    Strict,
}

/// Runs a program to its end. Signals that we get meanwhile are passed on to it.
///
/// # Errors
///
/// If the sandbox cannot be made, or the program not be run.
pub fn run(profile: &Profile, how: Run) -> Result<Ended, Error> {
    let mut machine = Machine::of(profile, how)?;
    let ended = machine.run_with(profile, || match Terminal::of_caller() {
        Some(terminal) => (terminal.streams(), Some(terminal)),
        None => (Streams::Callers, None),
    })?;
    Ok(Ended { losses: machine.losses, ..ended })
}

/// A machine, and what was found to be missing there.
pub(crate) struct Machine {
    pub(crate) host: Host,
    how: Run,
    pub(crate) losses: Vec<Loss>,
}

impl Machine {
    pub(crate) fn of(profile: &Profile, how: Run) -> Result<Self, Error> {
        Ok(Self { host: probe(profile)?, how, losses: Vec::new() })
    }

    /// The same machine for what is asked otherwise.
    pub(crate) fn like(&self, profile: &Profile) -> Result<Self, Error> {
        let Host { user_namespace, procfs, .. } = self.host;
        let host = Host { user_namespace, procfs, ..probe(profile)? };
        Ok(Self { host, how: self.how, losses: self.losses.clone() })
    }

    /// A cgroup for the next program, if its limits need one and one can be had.
    pub(crate) fn home(&mut self, limits: &Limits) -> Result<Option<Rc<Home>>, Error> {
        let is_asked = limits.memory.is_some() || limits.processes.is_some();
        self.host.cgroup = false;
        let is_unlimited = self.host.uid == 0 && !self.host.limits_pids();
        let home = match Home::of(limits, is_unlimited).transpose() {
            Ok(home) => home.map(Rc::new),
            Err(error) if is_asked => {
                self.lose(Loss::Cgroup(error.to_string()))?;
                None
            }
            Err(error) => {
                // Which nobody has asked for, and which is no isolation: not a reason to refuse.
                self.tell(Loss::Processes(error.to_string()));
                None
            }
        };
        self.host.cgroup = home.is_some();
        Ok(home)
    }

    fn lose(&mut self, loss: Loss) -> Result<(), Error> {
        if self.how == Run::Strict {
            return Err(Error::Strict(loss));
        }
        self.tell(loss);
        Ok(())
    }

    fn tell(&mut self, loss: Loss) {
        if !self.losses.contains(&loss) {
            self.losses.push(loss);
        }
    }

    /// Runs one program to its end, and finds out meanwhile what can be had here.
    pub(crate) fn run(&mut self, profile: &Profile, streams: Streams) -> Result<Ended, Error> {
        self.run_with(profile, || (streams, None))
    }

    /// The same, with a look at the caller's terminal before each attempt.
    fn run_with(
        &mut self,
        profile: &Profile,
        look: impl Fn() -> (Streams, Option<Terminal>),
    ) -> Result<Ended, Error> {
        let held = Held::all().map_err(|error| Error::Step { origin: "signals".to_owned(), error })?;
        loop {
            let home = self.home(&profile.limits)?;
            let (streams, terminal) = look();
            let plan = self.plan(profile, streams)?;
            let failed = match Sandbox::start(plan, &profile.limits, home) {
                Err(failed) => failed,
                Ok(mut sandbox) => {
                    sandbox.lend(terminal);
                    match to_end(&mut sandbox, &held) {
                        Ok(ended) => return Ok(ended),
                        Err(error) => Box::new(Failed { plan: sandbox.into_plan(), error }),
                    }
                }
            };
            match loss(&failed.error, &failed.plan, &mut self.host) {
                Some(loss) => self.lose(loss)?,
                None => return Err(explain(failed.error, &failed.plan, profile, &self.host)),
            }
        }
    }

    pub(crate) fn plan(&self, profile: &Profile, streams: Streams) -> Result<SandboxPlan, Error> {
        Ok(SandboxPlan { profile: profile.clone(), host: self.host.clone(), streams })
    }
}

fn to_end(sandbox: &mut Sandbox, held: &Held) -> Result<Ended, Fault> {
    loop {
        if let Some((_, ended)) = watch([&mut *sandbox], held, &[], None)?.pop() {
            return ended;
        }
    }
}

/// Ends this process by the signal that ended a program, so that whoever waits for us sees what became of it. What
/// was typed at a terminal is for the whole job, which gets it now if the program got it alone. Returns if it was
/// none, or one that ends nobody.
pub fn end_alike(ended: &Ended) {
    use rustix::process::Signal as Named;
    let signal = ended.status.signal();
    let Some((ours, theirs)) = signal.and_then(|raw| Signal::new(raw).zip(Named::from_named_raw(raw))) else {
        return;
    };
    // Rust's handler for faults would also catch a signal that another process sent.
    tolerate(rt_sigaction_default(ours), "SIGKILL has no handler");
    let is_typed = ended.had_terminal && [Named::INT, Named::QUIT].contains(&theirs);
    let sent = match is_typed {
        true => kill_current_process_group(theirs),
        false => kill_process(getpid(), theirs),
    };
    tolerate(sent, "the caller's exit code says the same");
}

/// What [`run`] would do, a line a step.
///
/// # Errors
///
/// As `run`, but for what only the kernel knows.
pub fn listing(profile: &Profile) -> Result<String, Error> {
    Ok(plan(profile, &probe(profile)?, Streams::Callers, &Bump::new())?.to_string())
}

/// The step at which a plan failed, and why.
fn failed_at<'p>(error: &husk_spawn::Error, plan: &'p Plan<'_>) -> Option<(&'p Step<'p>, Errno)> {
    match error.reason() {
        Reason::Errno(errno) => Some((plan.steps.get(error.step()?)?, errno)),
        _ => None,
    }
}

/// What can be gone without, so that another attempt may succeed. The host is then taken for one that has
/// not got it.
fn loss(fault: &Fault, plan: &SandboxPlan, host: &mut Host) -> Option<Loss> {
    let Fault::Child(error) = fault else { return None };
    let memory = Bump::new();
    let plan = plan.plan(&memory).ok()?;
    let origin = error.step().map_or("", |step| plan.origin(step));
    match failed_at(error, &plan) {
        Some((Step::Fsmount { .. }, Errno::PERM)) if origin == PROC => {
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
pub(crate) fn explain(fault: Fault, plan: &SandboxPlan, profile: &Profile, host: &Host) -> Error {
    let error = match fault {
        Fault::Child(error) => error,
        Fault::Plan(error) => return Error::Plan(error),
        Fault::Cgroup(error) => return Error::Cgroup(error),
    };
    let memory = Bump::new();
    let plan = match plan.plan(&memory) {
        Ok(plan) => plan,
        Err(error) => return Error::Plan(error),
    };
    let reason = |errno: Errno| io::Error::from_raw_os_error(errno.raw_os_error());
    let refused =
        |errno, hint| Error::Namespaces { act: error.act().to_owned(), reason: reason(errno), hint };
    match (failed_at(&error, &plan), error.reason()) {
        (Some((Step::ExecveFirst { .. }, errno)), _) => Error::Program {
            program: match profile.args.first().map(|program| program.to_string_lossy()) {
                Some(program) if !program.is_empty() => program.into(),
                _ => "\"\"".to_owned(),
            },
            reason: reason(errno),
            hint: hidden(profile, host),
        },
        // A user namespace may be made here, and not be used.
        (Some((Step::WriteFile { .. }, errno @ (Errno::PERM | Errno::ACCESS))), _) => {
            refused(errno, error::unmapped(host.uid, errno))
        }
        (Some((Step::Mount { .. } | Step::MoveMount { .. }, errno)), _) => {
            refused(errno, error::no_mounts(errno))
        }
        (None, Reason::Errno(errno)) if error.step().is_none() => refused(errno, error::switched_off(errno)),
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
    if profile.image.is_some() {
        return Hint(None);
    }
    let variables = environment::variables(profile, host);
    let path = variables.get(OsStr::new("PATH")).cloned().unwrap_or_default();
    let places = profile.args.first().map(|program| candidates(program, &path)).unwrap_or_default();
    let place = places.iter().map(Path::new).find(|place| place.is_file());
    let directory = place.and_then(Path::parent);
    Hint(directory.map(|directory| {
        format!("it is there, but hidden or needs what is hidden: '--read {}' shows it", directory.display())
    }))
}
