//! Runs a program in a sandbox, from the profile to its end.

pub(crate) mod cgroup;
pub(crate) mod ended;
pub(crate) mod inside;
pub(crate) mod kept;
mod loader;
pub(crate) mod probe;
pub(crate) mod terminal;
pub(crate) mod watch;

use crate::error::{self, Error, Hint, MissingIsolation};
use crate::explain::observe::Observed;
use crate::host::{Host, JoinedNetwork, Procfs, Sysfs};
use crate::outputs;
use crate::plan::layers::Streams;
use crate::plan::{PROC, SYS, SandboxPlan, TOOLS, plan};
use crate::profile::Profile;
use crate::services::Services;
use crate::services::listing::{planned_network, services_listing};
use crate::services::served::{Served, watch_served};
use crate::tools::{self, Caller};
use bumpalo::Bump;
use cgroup::SandboxCgroup;
use ended::Ended;
use husk_plan::Plan;
use husk_script::Step;
use husk_script::sys::Errno;
use husk_script::sys::mount::Extent;
use husk_script::sys::signal::{Signal, rt_sigaction_default};
use husk_script::sys::tolerate;
use husk_spawn::Reason;
use probe::probe;
use rustix::process::{getpid, kill_current_process_group, kill_process};
use std::cell::RefCell;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use terminal::CallerTerminal;
use watch::{Failed, Fault, Held};

/// How much isolation is required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// The sandbox is as strict as this machine permits.
    Possible,
    /// All of it; otherwise the program is not run.
    Strict,
}

/// Runs a program to its end. Signals that we receive meanwhile are passed on to it.
///
/// # Errors
///
/// If the sandbox cannot be made, or the program cannot be run.
pub fn run(profile: &Profile, how: Isolation) -> Result<Ended, Error> {
    let mut machine = Machine::of(profile, how)?;
    let (ended, _) = machine.run_with(profile, || match CallerTerminal::of_caller() {
        Some(terminal) => (terminal.streams(), Some(terminal)),
        None => (Streams::Callers, None),
    })?;
    machine.remember(&ended.losses);
    Ok(Ended { losses: machine.losses, ..ended })
}

/// A machine, and the isolation that was found to be unavailable.
pub(crate) struct Machine {
    pub(crate) host: Host,
    how: Isolation,
    pub(crate) losses: Vec<MissingIsolation>,
    /// The running services that all tests share.
    shared: Rc<RefCell<Vec<Rc<RefCell<Services>>>>>,
}

impl Machine {
    pub(crate) fn of(profile: &Profile, how: Isolation) -> Result<Self, Error> {
        Ok(Self { host: probe(profile)?, how, losses: Vec::new(), shared: Rc::default() })
    }

    /// Returns the same machine, which was probed for the same profile.
    pub(crate) fn again(&self) -> Self {
        let (host, losses) = (self.host.clone(), self.losses.clone());
        Self { host, how: self.how, losses, shared: self.shared.clone() }
    }

    /// Returns the same machine probed for another profile.
    pub(crate) fn like(&self, profile: &Profile) -> Result<Self, Error> {
        let Host { user_namespace, procfs, sysfs, overlays_tools, .. } = self.host;
        let host = Host { user_namespace, procfs, sysfs, overlays_tools, ..probe(profile)? };
        Ok(Self { host, how: self.how, losses: self.losses.clone(), shared: self.shared.clone() })
    }

    /// Returns a cgroup for the next program, if it needs one and one is available.
    ///
    /// Root may write to the files of every cgroup, and with `--nested` it can mount those below its own cgroup.
    pub(crate) fn home(&mut self, profile: &Profile) -> Result<Option<Rc<SandboxCgroup>>, Error> {
        let limits = &profile.limits;
        let is_nested_root = self.host.uid == 0 && profile.nested;
        let is_asked = limits.memory.is_some() || limits.processes.is_some();
        self.host.cgroup = false;
        let is_unlimited = self.host.uid == 0 && !self.host.limits_pids();
        let home = match SandboxCgroup::of(limits, is_unlimited, is_nested_root).transpose() {
            Ok(home) => home.map(Rc::new),
            Err(error) if is_asked => {
                self.lose(MissingIsolation::Cgroup(error.to_string()))?;
                None
            }
            // In a sandbox, that cgroup is the outer sandbox's.
            Err(_) if is_nested_root && !cgroup::is_in_first_namespace() => None,
            Err(error) if is_nested_root => {
                self.lose(MissingIsolation::NestedCgroups(error.to_string()))?;
                None
            }
            Err(error) => {
                // The caller did not ask for this limit, and it does not isolate the program, so this is not an error.
                self.tell(MissingIsolation::Processes(error.to_string()));
                None
            }
        };
        self.host.cgroup = home.is_some();
        Ok(home)
    }

    /// Returns the services of a profile, which may not be ready. All tests get the same ones if they share them.
    pub(crate) fn services(&mut self, profile: &Profile) -> Result<Option<Rc<RefCell<Services>>>, Error> {
        if profile.services.is_empty() {
            return Ok(None);
        }
        let known = self.shared.borrow().iter().find(|known| known.borrow().are_for(profile)).cloned();
        if let Some(known) = known {
            return Ok(Some(known));
        }
        let started = Rc::new(RefCell::new(Services::of(profile, self)?));
        if !started.borrow().are_of_one_test() {
            self.shared.borrow_mut().push(started.clone());
        }
        Ok(Some(started))
    }

    /// Returns whether a user namespace that was refused can be done without, and records the loss.
    pub(crate) fn does_without_users(&mut self, error: &husk_spawn::Error) -> Result<bool, Error> {
        let is_possible = is_refusal(error) && self.host.uid == 0 && self.host.user_namespace;
        if is_possible {
            self.host.user_namespace = false;
            self.lose(MissingIsolation::UserNamespace)?;
        }
        Ok(is_possible)
    }

    fn lose(&mut self, loss: MissingIsolation) -> Result<(), Error> {
        if self.how == Isolation::Strict {
            return Err(Error::Strict(loss));
        }
        self.tell(loss);
        Ok(())
    }

    fn tell(&mut self, loss: MissingIsolation) {
        if !self.losses.contains(&loss) {
            self.losses.push(loss);
        }
    }

    /// Notes isolation that another machine was found to lack.
    pub(crate) fn remember(&mut self, losses: &[MissingIsolation]) {
        losses.iter().cloned().for_each(|loss| self.tell(loss));
    }

    /// Returns whether a plan that failed can be tried again without isolation that is unavailable, and records the loss.
    pub(crate) fn does_without(&mut self, fault: &Fault, plan: &SandboxPlan) -> Result<bool, Error> {
        let mut host = plan.host.clone();
        let Some(loss) = loss(fault, plan, &mut host) else { return Ok(false) };
        let Host { user_namespace, procfs, sysfs, overlays_tools, .. } = host;
        self.host.user_namespace &= user_namespace;
        self.host.overlays_tools &= overlays_tools;
        if procfs == Procfs::Callers {
            self.host.procfs = procfs;
        }
        if sysfs == Sysfs::Callers {
            self.host.sysfs = sysfs;
        }
        self.lose(loss)?;
        Ok(true)
    }

    /// Runs one program to its end. Retries without unavailable isolation and records the loss.
    pub(crate) fn run(&mut self, profile: &Profile, streams: Streams) -> Result<Ended, Error> {
        Ok(self.run_observed(profile, streams)?.0)
    }

    /// Like `run`. Also returns what was observed, if the profile asks for that.
    pub(crate) fn run_observed(
        &mut self,
        profile: &Profile,
        streams: Streams,
    ) -> Result<(Ended, Vec<Observed>), Error> {
        self.run_with(profile, || (streams, None))
    }

    /// Like `run`, but examines the caller's terminal before each attempt.
    fn run_with(
        &mut self,
        profile: &Profile,
        look: impl Fn() -> (Streams, Option<CallerTerminal>),
    ) -> Result<(Ended, Vec<Observed>), Error> {
        let held = Held::all().map_err(|error| Error::Step { origin: "signals".to_owned(), error })?;
        loop {
            let home = self.home(profile)?;
            let services = self.services(profile)?;
            let (streams, terminal) = look();
            let network = services.as_ref().map(|services| services.borrow().joined());
            let plan = self.plan(profile.clone(), streams, network);
            let failed = match Served::start(plan, home, services, terminal) {
                Err(failed) => failed,
                Ok(mut served) => match to_end(&mut served, &held)? {
                    Ok(ended) => return Ok((ended, served.observed())),
                    Err(error) => Box::new(Failed { plan: served.into_plan(), error }),
                },
            };
            match loss(&failed.error, &failed.plan, &mut self.host) {
                Some(loss) => self.lose(loss)?,
                None => return Err(explain(failed.error, &failed.plan)),
            }
        }
    }

    pub(crate) fn plan(
        &self,
        mut profile: Profile,
        streams: Streams,
        network: Option<JoinedNetwork>,
    ) -> Arc<SandboxPlan> {
        let mut host = Host { network, ..self.host.clone() };
        outputs::make_unique(&mut profile, &mut host.environment);
        Arc::new(SandboxPlan { profile, host, streams })
    }
}

fn to_end(served: &mut Served, held: &Held) -> Result<Result<Ended, Fault>, Error> {
    loop {
        if let Some((_, ended)) = watch_served([&mut *served], held, &[], None)?.pop() {
            return Ok(ended);
        }
    }
}

/// Ends this process by the signal that ended a program, so that our caller sees the same status. A signal typed at the
/// terminal goes to our whole job, if only the program received it. Returns if the program was not killed, or by a
/// signal whose default action is harmless.
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

/// Lists the steps that [`run`] would perform, one a line.
///
/// # Errors
///
/// Like `run`, except for errors that only the kernel reports.
pub fn listing(profile: &Profile) -> Result<String, Error> {
    let host = Host { network: planned_network(profile), ..probe(profile)? };
    let steps = plan(profile, &host, Streams::Callers, &Bump::new())?.to_string();
    Ok(services_listing(profile)? + &steps)
}

/// Returns the step at which a plan failed, and the error.
fn failed_at<'p>(error: &husk_spawn::Error, plan: &'p Plan<'_>) -> Option<(&'p Step<'p>, Errno)> {
    match error.reason() {
        Reason::Errno(errno) => Some((plan.steps.get(error.step()?)?, errno)),
        _ => None,
    }
}

/// Returns the isolation that the next attempt can do without, and marks it as unavailable on the host.
fn loss(fault: &Fault, plan: &SandboxPlan, host: &mut Host) -> Option<MissingIsolation> {
    let Fault::Child(error) = fault else { return None };
    let memory = Bump::new();
    let plan = plan.plan(&memory).ok()?;
    let origin = error.step().map(|step| plan.origin(step).field());
    match failed_at(error, &plan) {
        Some((Step::Fsmount { .. }, Errno::PERM)) if origin == Some(PROC) => {
            host.procfs = Procfs::Callers;
            Some(MissingIsolation::Procfs)
        }
        Some((_, errno)) if origin == Some(TOOLS) && host.overlays_tools => {
            host.overlays_tools = false;
            Some(MissingIsolation::Overlays(errno.into()))
        }
        Some((Step::Mount { .. } | Step::Fsopen { .. } | Step::Fsmount { .. }, Errno::PERM))
            if origin == Some(SYS) =>
        {
            host.sysfs = Sysfs::Callers;
            Some(MissingIsolation::Sysfs)
        }
        None | Some((Step::JoinNewNet | Step::Unshare { .. }, _))
            if is_refusal(error) && host.uid == 0 && host.user_namespace =>
        {
            host.user_namespace = false;
            Some(MissingIsolation::UserNamespace)
        }
        _ => None,
    }
}

/// Turns a fault into an error with hints.
pub(crate) fn explain(fault: Fault, plan: &SandboxPlan) -> Error {
    let SandboxPlan { profile, host, .. } = plan;
    let error = match fault {
        Fault::Child(error) => error,
        Fault::Observer(error) => return Error::Step { origin: "explain".to_owned(), error },
        Fault::Plan(error) => return Error::Plan(error),
        Fault::Cgroup(error) => return Error::Cgroup(error),
    };
    let memory = Bump::new();
    let plan = match plan.plan(&memory) {
        Ok(plan) => plan,
        Err(error) => return Error::Plan(error),
    };
    let refused =
        |errno: Errno, hint| Error::Namespaces { act: error.act().to_owned(), reason: errno.into(), hint };
    let origin = || error.step().map_or("sandbox".to_owned(), |step| plan.origin(step).to_string());
    match (failed_at(&error, &plan), error.reason()) {
        (Some((Step::ExecveFirst { .. }, errno)), _) => Error::Program {
            program: match profile.args.first().map(|program| program.to_string_lossy()) {
                Some(program) if !program.is_empty() => program.into(),
                _ => "\"\"".to_owned(),
            },
            reason: errno.into(),
            hint: hidden(profile),
        },
        // The user namespace could be created, but not used.
        (Some((Step::WriteFile { .. }, errno @ (Errno::PERM | Errno::ACCESS))), _) => {
            refused(errno, error::unmapped(host.uid, errno))
        }
        (Some((Step::JoinNewNet, errno)), _) => refused(errno, error::no_net(errno)),
        (Some((Step::OpenTreeOf { extent: Extent::Top, .. }, Errno::INVAL)), _) => {
            Error::MountBelow { origin: origin() }
        }
        (Some((Step::Mount { .. } | Step::MoveMount { .. }, errno)), _) => {
            refused(errno, error::no_mounts(errno))
        }
        (None, Reason::Errno(errno)) if error.step().is_none() => refused(errno, error::switched_off(errno)),
        _ => Error::Step { origin: origin(), error },
    }
}

/// Returns whether the kernel refuses a namespace.
fn is_refusal(error: &husk_spawn::Error) -> bool {
    let Reason::Errno(errno) = error.reason() else { return false };
    matches!(errno, Errno::PERM | Errno::NOSPC | Errno::USERS | Errno::NOSYS | Errno::INVAL)
}

/// Returns a hint if the sandbox hides the program's file or one that the program needs.
fn hidden(profile: &Profile) -> Hint {
    if profile.image.is_some() {
        let lacks = |loader: PathBuf| {
            let loader = loader.display();
            format!(
                "it needs {loader}, which the image lacks; use an image with this loader, or link it statically"
            )
        };
        return Hint(loader::missing(profile).map(lacks));
    }
    let paths = tools::unseen(profile, &Caller::of(&profile.args));
    let options: Vec<_> = paths.iter().map(|path| format!("--read {}", path.display())).collect();
    Hint((!options.is_empty()).then(|| {
        format!("it exists, but is hidden or needs a hidden file; show it with '{}'", options.join(" "))
    }))
}
