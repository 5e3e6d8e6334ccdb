//! A program with the services that it uses, from the start of the services to the end of the program.

use super::Services;
use crate::Error;
use crate::explain::observe::Observed;
use crate::plan::SandboxPlan;
use crate::sandbox::cgroup::SandboxCgroup;
use crate::sandbox::ended::{Ended, NotRun};
use crate::sandbox::terminal::CallerTerminal;
use crate::sandbox::watch::{Failed, Fault, Held, Over, Sandbox, watch};
use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A program that runs, or that waits for its services.
pub(crate) struct Served {
    plan: Arc<SandboxPlan>,
    home: Option<Rc<SandboxCgroup>>,
    services: Option<Rc<RefCell<Services>>>,
    /// The positions in the logs of the services when this program asked for them.
    positions: Vec<u64>,
    terminal: Option<CallerTerminal>,
    since: Instant,
    /// The running program.
    sandbox: Option<Sandbox>,
}

impl Served {
    /// Starts the program when its services are ready, and at once without services.
    pub(crate) fn start(
        plan: Arc<SandboxPlan>,
        home: Option<Rc<SandboxCgroup>>,
        services: Option<Rc<RefCell<Services>>>,
        terminal: Option<CallerTerminal>,
    ) -> Result<Self, Box<Failed>> {
        let positions =
            services.as_ref().map(|services| services.borrow_mut().positions()).unwrap_or_default();
        let since = Instant::now();
        let mut served = Self { plan, home, services, positions, terminal, since, sandbox: None };
        if served.services.as_ref().is_none_or(|services| services.borrow().are_ready()) {
            served.begin()?;
        }
        Ok(served)
    }

    fn begin(&mut self) -> Result<(), Box<Failed>> {
        let mut sandbox = Sandbox::start(Arc::clone(&self.plan), self.home.take())?;
        sandbox.lend(self.terminal.take());
        self.sandbox = Some(sandbox);
        Ok(())
    }

    /// Returns when the program was started, or else when its services were.
    pub(crate) fn started(&self) -> Instant {
        self.sandbox.as_ref().map_or(self.since, Sandbox::started)
    }

    /// Returns whether the program itself has been started.
    pub(crate) fn has_begun(&self) -> bool {
        self.sandbox.is_some()
    }

    /// Returns whether only the kernel is still busy with the program's sandbox.
    pub(crate) fn is_ending(&self) -> bool {
        self.sandbox.as_ref().is_some_and(Sandbox::is_ending)
    }

    /// Returns the plan of a program that has ended.
    pub(crate) fn into_plan(self) -> Arc<SandboxPlan> {
        self.plan
    }

    /// Returns what was observed, once it has ended.
    pub(crate) fn observed(&mut self) -> Vec<Observed> {
        self.sandbox.as_mut().map(Sandbox::observed).unwrap_or_default()
    }

    /// Starts a program whose services have become ready. Returns the end of one that cannot start.
    fn go_on(&mut self, held: &Held) -> Option<Result<Ended, Fault>> {
        if self.sandbox.is_some() {
            return None;
        }
        let services = self.services.clone()?;
        let failure = services.borrow().failure().map(str::to_owned);
        let why = match (failure, held.interrupted_by()) {
            (Some(why), _) => NotRun::Services(why),
            (None, Some(signal)) => NotRun::Signal(signal),
            (None, None) if services.borrow().are_ready() => {
                return self.begin().err().map(|failed| Err(failed.error));
            }
            (None, None) => return None,
        };
        if let Some(terminal) = self.terminal.take() {
            terminal.end();
        }
        Some(Ok(Ended::not_run(why, self.since.elapsed())))
    }

    /// Adds what the services wrote to the program's end.
    fn report(&self, ended: Ended) -> Ended {
        let Some(services) = &self.services else { return ended };
        let mut services = services.borrow_mut();
        let losses = ended.losses.iter().cloned().chain(services.losses()).collect();
        let reports = services.reports(&self.positions);
        if services.are_of_one_test() {
            services.kill();
        }
        Ended { services: reports, losses, ..ended }
    }
}

/// Like [`watch`], for programs with services.
pub(crate) fn watch_served<'s>(
    served: impl IntoIterator<Item = &'s mut Served>,
    held: &Held,
    outputs: &[BorrowedFd<'_>],
    wake: Option<Duration>,
) -> Result<Vec<Over>, Error> {
    let mut served: Vec<_> = served.into_iter().collect();
    let mut groups: Vec<Rc<RefCell<Services>>> = Vec::new();
    for services in served.iter().filter_map(|served| served.services.as_ref()) {
        if !groups.iter().any(|group| Rc::ptr_eq(group, services)) {
            groups.push(services.clone());
        }
    }
    let (programs, services) = watch_all(&mut served, &groups, held, outputs, wake)?;
    for (group, ended) in groups.iter().zip(services) {
        let mut group = group.borrow_mut();
        group.ended(ended)?;
        group.turn()?;
    }
    let mut over: Vec<Over> = Vec::new();
    let mut programs = programs.into_iter().peekable();
    for (place, served) in served.iter_mut().enumerate() {
        let ended = programs.next_if(|(ended, _)| *ended == place).map(|(_, ended)| ended);
        if let Some(ended) = ended.or_else(|| served.go_on(held)) {
            over.push((place, ended.map(|ended| served.report(ended))));
        }
    }
    Ok(over)
}

/// Waits for events of programs and services. Returns the programs that have ended, and the ended sandboxes of each
/// group of services.
fn watch_all(
    served: &mut [&mut Served],
    groups: &[Rc<RefCell<Services>>],
    held: &Held,
    outputs: &[BorrowedFd<'_>],
    wake: Option<Duration>,
) -> Result<(Vec<Over>, Vec<Vec<Over>>), Error> {
    let wakes = groups.iter().filter_map(|group| group.borrow().wake());
    let wake = wakes.chain(wake).min();
    let places: Vec<usize> =
        (0..).zip(&*served).filter(|(_, served)| served.has_begun()).map(|(place, _)| place).collect();
    let mut borrowed: Vec<_> = groups.iter().map(|group| group.borrow_mut()).collect();
    let (of_groups, logs): (Vec<_>, Vec<_>) = borrowed.iter_mut().map(|group| group.watched()).unzip();
    let counts: Vec<usize> = of_groups.iter().map(Vec::len).collect();
    let programs = served.iter_mut().filter_map(|served| served.sandbox.as_mut());
    let outputs: Vec<_> = outputs.iter().copied().chain(logs.into_iter().flatten()).collect();
    let over = watch(programs.chain(of_groups.into_iter().flatten()), held, &outputs, wake);
    let mut over =
        over.map_err(|error| Error::Step { origin: "tests".to_owned(), error })?.into_iter().peekable();
    let mut programs = Vec::new();
    while let Some((index, ended)) = over.next_if(|(index, _)| *index < places.len()) {
        programs.extend(places.get(index).map(|place| (*place, ended)));
    }
    let mut begin = places.len();
    let mut services = Vec::new();
    for count in counts {
        let mut ended = Vec::new();
        while let Some((index, one)) = over.next_if(|(index, _)| *index < begin + count) {
            ended.push((index - begin, one));
        }
        services.push(ended);
        begin += count;
    }
    Ok((programs, services))
}
