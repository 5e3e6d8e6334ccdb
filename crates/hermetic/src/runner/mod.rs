//! Runs each test of a binary in its own sandbox, by default as many at a time as there are processors.

mod again;
mod list;
pub(crate) mod output;
mod plans;
mod recall;
pub(crate) mod shards;
mod suite;
mod unit;

use crate::adapters::{Adapter, Part, Role, Unit};
use crate::cache::Cache;
use crate::error::{Error, MissingIsolation};
use crate::explain::Explain;
use crate::libtest::arguments::TestArguments;
use crate::libtest::output::said;
use crate::profile::Profile;
use crate::report::results::Results;
use crate::report::tested::{Screen, Tested};
use crate::sandbox::ended::Ended;
use crate::sandbox::watch::{Fault, Held};
use crate::sandbox::{Isolation, Machine, explain};
use crate::services::served::{Served, watch_served};
use again::Explaining;
use output::CapturedOutput;
pub use plans::{TestPlan, suite_plans, test_plans};
use recall::{Keyed, Prepared, results};
pub use shards::{Division, Durations, Listed, digest};
use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::rc::Rc;
use std::time::{Duration, Instant};
pub use suite::run_suite;
use unit::Run;

/// Which tests of a binary to run, how, and where to report each result.
pub struct Choice<'a> {
    /// Which tests belong to this machine.
    pub division: Division<'a>,
    /// Whether no further test starts after the first failure.
    pub fails_fast: bool,
    /// Returns how to run the test of this name.
    pub setting: &'a dyn Fn(&str) -> Result<Rc<Setting>, Error>,
    /// The terminal, if results are written to one.
    pub screen: Option<Screen>,
    /// The results that are remembered.
    pub cache: Option<&'a mut Cache>,
    /// Receives the list of the tests, and then the result of each.
    pub record: &'a mut dyn FnMut(Event<'_>),
}

/// The news that a run of tests reports.
#[derive(Clone, Copy, Debug)]
pub enum Event<'e> {
    Listed(&'e Listed),
    Tested(&'e Tested),
}

/// How to run a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The sandbox. Its program is the test binary.
    pub profile: Profile,
    /// How often a failed test is run again.
    pub retries: usize,
    /// When its denials are explained.
    pub explain: Explain,
}

/// The result of a whole binary.
#[derive(Debug)]
pub struct Tests {
    /// Whether all tests were run and none failed.
    pub success: bool,
    /// Isolation that the sandboxes lacked.
    pub losses: Vec<MissingIsolation>,
    /// The services that ended before their tests did, a line for each.
    pub notes: Vec<String>,
    /// The number of tests that were not begun.
    pub not_run: usize,
    /// The units whose tests were not begun.
    pub not_begun: Vec<String>,
    /// The first unit that failed, for a shell in its sandbox.
    pub failed: Option<FailedUnit>,
}

/// A unit that has failed.
#[derive(Debug)]
pub struct FailedUnit {
    pub name: String,
    /// The profile of its sandbox. Its program prints what people read.
    pub profile: Profile,
}

/// Runs each test of a binary in its own sandbox and writes libtest's output. Returns `None` if the binary does not use
/// libtest or its arguments do not allow running tests alone.
///
/// # Errors
///
/// If a sandbox cannot be made, or the output cannot be written.
pub fn run_tests(
    profile: &Profile,
    how: Isolation,
    choice: &mut Choice<'_>,
    out: &mut dyn Write,
) -> Result<Option<Tests>, Error> {
    let Some(request) = TestArguments::read(profile.args.get(1..).unwrap_or_default()) else {
        return Ok(None);
    };
    let mut machine = Machine::of(profile, how)?;
    let mut cache = choice.cache.take();
    let Some(Chosen { names, all, ignored, listed }) =
        chosen(profile, &request, choice.division, &mut machine, cache.as_deref_mut())?
    else {
        return Ok(None);
    };
    let ignored = ignored.iter().filter(|name| names.contains(name));
    let ignored = list::reasons(profile, ignored.collect(), &mut machine, cache.as_deref_mut())?;
    let results = Results::begin((names.len(), all - names.len()), &request, choice.screen, out);
    let results = results.map_err(written)?;
    let args = |name: &str| profile.args.iter().take(1).cloned().chain(request.to_run(name)).collect();
    let unit = |name: String| Unit { args: args(&name), name, ..Unit::default() };
    let runner = Runner {
        adapter: &request,
        is_uncaptured: request.is_uncaptured,
        threads: request.threads(),
        noun: "test",
        division: Division { shard: None, durations: None, ..choice.division },
        listed: Some(listed),
        lists: 0,
        found: Vec::new(),
        not_run: 0,
        setting: choice.setting,
        profile: Some(profile.clone()),
        cache,
        machines: Vec::new(),
        first: machine,
        notes: Vec::new(),
        ignored,
        waiting: names.into_iter().map(|name| Waiting { unit: unit(name), ..Waiting::default() }).collect(),
        running: Vec::new(),
        began: Instant::now(),
        over: Vec::new(),
        has_failed: false,
        failed: None,
        results,
    };
    runner.run(choice.fails_fast, choice.record).map(Some)
}

/// The tests of a binary that were asked for.
struct Chosen {
    names: Vec<String>,
    /// The number of all tests.
    all: usize,
    /// The tests that are not to be run, among all of them.
    ignored: Vec<String>,
    listed: Listed,
}

/// Lists the tests of a binary; `None` if its output is not a list of tests.
fn chosen(
    profile: &Profile,
    request: &TestArguments,
    division: Division<'_>,
    machine: &mut Machine,
    mut cache: Option<&mut Cache>,
) -> Result<Option<Chosen>, Error> {
    let mut list = |arguments| list::list(profile, arguments, machine, cache.as_deref_mut());
    let Some(names) = list(request.to_list())? else { return Ok(None) };
    let mut listed = |arguments: Option<_>| arguments.map(&mut list).transpose();
    let all = listed(request.to_list_all())?.flatten().map_or(names.len(), |all| all.len());
    let ignored = listed(request.to_list_ignored())?.flatten().unwrap_or_default();
    let texts: Vec<_> = names.iter().map(String::as_str).collect();
    let listed = Listed::new(&texts, &division.chosen(&texts));
    Ok(Some(Chosen { names: listed.names.clone(), all, ignored, listed }))
}

/// Starts a program whose output is captured.
fn spawn(
    profile: Profile,
    machine: &mut Machine,
    output: CapturedOutput,
) -> Result<(Served, CapturedOutput), Error> {
    let home = machine.home(&profile)?;
    let services = machine.services(&profile)?;
    let network = services.as_ref().map(|services| services.borrow().joined());
    let plan = machine.plan(profile, output.streams(), network);
    let sandbox =
        Served::start(plan, home, services, None).map_err(|failed| explain(failed.error, &failed.plan))?;
    Ok((sandbox, output))
}

fn written(error: std::io::Error) -> Error {
    Error::Look { act: "write results".to_owned(), reason: error.into() }
}

/// A unit that waits to run, and its earlier runs.
#[derive(Default)]
struct Waiting {
    unit: Unit,
    runs: Vec<Run>,
    /// Its key, if its result can be remembered.
    keyed: Option<Keyed>,
    /// Its results, if it has ended and the next run only explains them.
    explaining: Option<Box<Explaining>>,
}

/// A running test.
struct Running {
    test: Waiting,
    setting: Rc<Setting>,
    since: Instant,
    /// Whether it has been reported as slow.
    is_slow: bool,
    sandbox: Served,
    output: CapturedOutput,
}

/// How many sandboxes may be in teardown for each test that may run.
const MOST_ENDING: usize = 4;

/// libtest reports a test as slow after this time.
const SLOW: Duration = Duration::from_secs(60);

struct Runner<'a> {
    adapter: &'a dyn Adapter,
    /// Whether output of tests is shown at once.
    is_uncaptured: bool,
    threads: usize,
    /// The noun for the units that the heading counts.
    noun: &'static str,
    /// The division of the tests that lists will find.
    division: Division<'a>,
    /// The list of the tests, until it has been reported.
    listed: Option<Listed>,
    /// The number of lists that are not complete.
    lists: usize,
    /// The tests that complete lists have found.
    found: Vec<Unit>,
    /// The number of tests that a unit did not begin.
    not_run: usize,
    setting: &'a dyn Fn(&str) -> Result<Rc<Setting>, Error>,
    /// The profile that `first` was probed for, unless tests run in other directories.
    profile: Option<Profile>,
    cache: Option<&'a mut Cache>,
    /// One machine for each setting, as the probed facts depend on the profile.
    machines: Vec<Prepared>,
    first: Machine,
    /// The services that ended before their tests did.
    notes: Vec<String>,
    ignored: BTreeMap<String, Tested>,
    waiting: VecDeque<Waiting>,
    running: Vec<Running>,
    began: Instant,
    /// The tests that have been reported since the last turn.
    over: Vec<Tested>,
    has_failed: bool,
    /// The first unit that failed.
    failed: Option<FailedUnit>,
    results: Results<'a>,
}

impl Runner<'_> {
    fn run(mut self, fails_fast: bool, record: &mut dyn FnMut(Event<'_>)) -> Result<Tests, Error> {
        let held = Held::all().map_err(|error| Error::Step { origin: "signals".to_owned(), error })?;
        loop {
            if let Some(listed) = self.listed.take() {
                record(Event::Listed(&listed));
            }
            while self.has_room(fails_fast)
                && !held.is_interrupted()
                && let Some(test) = self.next(fails_fast)
            {
                match self.ignored.remove(&test.unit.name) {
                    Some(ignored) => {
                        record(Event::Tested(&ignored));
                        self.results.tell(&ignored, false).map_err(written)?;
                    }
                    None => self.start(test)?,
                }
            }
            let is_done = self.running.is_empty();
            match is_done {
                true => self.give_up_explaining()?,
                false => self.turn(&held)?,
            }
            // A list that is remembered completes at once, as do its tests.
            if let Some(listed) = self.listed.take() {
                record(Event::Listed(&listed));
            }
            self.over.drain(..).for_each(|tested| record(Event::Tested(&tested)));
            if is_done {
                break;
            }
        }
        let losses = self.machines.into_iter().map(|prepared| prepared.machine).chain([self.first]);
        let losses = losses.flat_map(|machine| machine.losses).fold(Vec::new(), |mut all, loss| {
            if !all.contains(&loss) {
                all.push(loss);
            }
            all
        });
        let not_run = self.not_run + self.waiting.iter().map(|test| test.unit.count()).sum::<usize>();
        let not_begun = self.waiting.into_iter().map(|test| test.unit.name).collect();
        let success = self.results.finish(self.began.elapsed(), not_run).map_err(written)?;
        Ok(Tests { success, losses, notes: self.notes, not_run, not_begun, failed: self.failed })
    }

    /// Once all lists are complete, queues the tests of the shard that they have found.
    fn release(&mut self) -> Result<(), Error> {
        if self.lists > 0 {
            return Ok(());
        }
        let mut found = std::mem::take(&mut self.found);
        if self.division.shard.is_some() {
            // Lists end in any order, and machines must agree on one.
            found.sort_by(|one, other| one.name.cmp(&other.name));
        }
        let names: Vec<_> = found.iter().map(|unit| unit.name.as_str()).collect();
        let chosen = self.division.chosen(&names);
        self.listed = Some(Listed::new(&names, &chosen));
        let mut found: Vec<_> = found.into_iter().map(Some).collect();
        let found: Vec<_> = chosen.into_iter().filter_map(|place| found.get_mut(place)?.take()).collect();
        let all = found.iter().map(Unit::count).sum();
        let count = if self.noun == "test" { all } else { found.len() };
        self.waiting.extend(found.into_iter().map(|unit| Waiting { unit, ..Waiting::default() }));
        self.results.found(count, self.noun, all).map_err(written)
    }

    /// Returns the test to run next. After a failure that ends the run, only explanations go on.
    fn next(&mut self, fails_fast: bool) -> Option<Waiting> {
        let is_explaining = self.waiting.front().is_some_and(|test| test.explaining.is_some());
        if fails_fast && self.has_failed && !is_explaining {
            return None;
        }
        self.waiting.pop_front()
    }

    /// Returns whether another test may start. If several may run at a time, a test whose sandbox is being torn down no
    /// longer counts as running.
    fn has_room(&self, fails_fast: bool) -> bool {
        let running = self.running.len();
        if self.threads == 1 || fails_fast {
            return running < self.threads;
        }
        let ending = self.running.iter().filter(|running| running.sandbox.is_ending()).count();
        running - ending < self.threads && ending < MOST_ENDING * self.threads
    }

    fn start(&mut self, mut test: Waiting) -> Result<(), Error> {
        if let Some(explaining) = test.explaining.take() {
            return self.start_again(test.unit, explaining);
        }
        let setting = (self.setting)(&test.unit.name)?;
        let mut profile = test.unit.profile(&setting.profile);
        if test.unit.role == Role::List {
            profile.services.clear();
        }
        let is_usual = profile.directory.is_none() && test.unit.shown.is_empty();
        let place = if is_usual { Some(self.machine(&setting, &profile.args)?) } else { None };
        let Some(test) = self.recall(test, (&setting, &profile), place)? else { return Ok(()) };
        let output = self.output(&test.unit)?;
        let (sandbox, output) = if let Some(place) = place {
            let Some(Prepared { machine, .. }) = self.machines.get_mut(place) else { return Ok(()) };
            spawn(profile, machine, output)
        } else {
            // Facts that were probed for other paths do not hold for these.
            let mut machine = self.first.like(&profile)?;
            let started = spawn(profile, &mut machine, output);
            self.first.remember(&machine.losses);
            started
        }?;
        let since = sandbox.started();
        self.running.push(Running { test, setting, since, is_slow: false, sandbox, output });
        Ok(())
    }

    /// Returns where a unit's output goes.
    fn output(&self, unit: &Unit) -> Result<CapturedOutput, Error> {
        match (self.is_uncaptured, unit.splits) {
            (true, _) => CapturedOutput::live(),
            (false, true) => CapturedOutput::split(),
            (false, false) => CapturedOutput::captured(),
        }
    }

    /// Waits for an event, and reports the tests that have ended and are not run again.
    fn turn(&mut self, held: &Held) -> Result<(), Error> {
        self.running.iter_mut().filter(|running| running.sandbox.has_begun()).for_each(|running| {
            running.output.begun();
        });
        let running = self.running.iter().map(|running| (running.test.unit.name.as_str(), running.since));
        let redraw = self.results.progress(running).map_err(written)?;
        let slow = self.running.iter().filter(|running| !running.is_slow);
        let slow = slow.map(|running| SLOW.saturating_sub(running.since.elapsed())).min();
        let wake = redraw.into_iter().chain(slow).min();
        let (sandboxes, outputs): (Vec<_>, Vec<_>) =
            self.running.iter_mut().map(|running| (&mut running.sandbox, &running.output)).unzip();
        let outputs: Vec<_> = outputs.into_iter().filter_map(CapturedOutput::arriving).collect();
        let mut ended = watch_served(sandboxes, held, &outputs, wake)?;
        self.hear()?;
        // From the last one, so that the remaining indices stay valid.
        while let Some((place, ended)) = ended.pop() {
            let mut running = self.running.remove(place);
            if let Some(explaining) = running.test.explaining.take() {
                self.has_explained(explaining, running, ended, held.is_interrupted())?;
                continue;
            }
            match ended {
                Ok(ended) => self.has_run(running, ended, held.is_interrupted())?,
                Err(fault) => self.has_not_run(running, fault)?,
            }
        }
        Ok(())
    }

    /// Takes the end of a unit.
    fn has_run(&mut self, running: Running, ended: Ended, is_over: bool) -> Result<(), Error> {
        let Running { mut test, setting, output, since, .. } = running;
        let is_begun = self.threads == 1 && output.is_known();
        let heard = output.heard();
        let output = output.finish()?;
        let mut reading = self.adapter.read(&test.unit, &ended, &output);
        if self.is_uncaptured {
            let said = said(&test.unit.name, &output.out);
            // Output that was held back as a possible end mark. The rest has been shown.
            let rest = output.out.get(heard..said.end).unwrap_or_default();
            self.results.hear(rest).map_err(written)?;
            reading.parts.iter_mut().for_each(|part| part.said.clone_from(&said.captured));
        }
        self.add_services(&mut reading.parts, &ended);
        let start = since.saturating_duration_since(self.began);
        let is_clear_pass = test.runs.is_empty() && reading.is_clear_pass(test.unit.role, &ended);
        let run = Run { start, ended, parts: reading.parts };
        let is_failed = run.is_failed();
        test.runs.push(run);
        if test.unit.role == Role::List {
            self.list_is_complete(reading.found)?;
        } else if is_failed && test.runs.len() <= setting.retries && !is_over {
            self.waiting.push_front(test);
            return Ok(());
        }
        self.not_run += reading.not_run;
        let Waiting { unit, runs, keyed, .. } = test;
        if is_failed && self.failed.is_none() {
            let mut profile = unit.profile(&setting.profile);
            self.adapter.show_to_people(&mut profile);
            self.failed = Some(FailedUnit { name: unit.name.clone(), profile });
        }
        let (mut tested, whole) = results(&unit, &runs);
        let Some(ended) = runs.into_iter().next_back().map(|run| run.ended) else { return Ok(()) };
        self.compare(keyed, (&ended, &output), is_clear_pass, tested.get_mut(whole));
        self.results.count(unit.count(), tested.len() + reading.not_run);
        let said = output.text();
        let explaining = Explaining { tested, whole, ended, said, is_failed, is_begun, trial: None };
        self.end(unit, explaining, &setting, is_over)
    }

    /// Takes the units that a list has found.
    fn list_is_complete(&mut self, found: Vec<Unit>) -> Result<(), Error> {
        let (lists, tests): (Vec<_>, Vec<_>) = found.into_iter().partition(|unit| unit.role == Role::List);
        self.lists = (self.lists + lists.len()).saturating_sub(1);
        self.waiting.extend(lists.into_iter().map(|unit| Waiting { unit, ..Waiting::default() }));
        self.found.extend(tests);
        self.release()
    }

    /// Adds what the services wrote to the output of failed tests, and remembers the services that have ended.
    fn add_services(&mut self, parts: &mut [Part], ended: &Ended) {
        self.first.remember(&ended.losses);
        let text = ended.service_output();
        for part in parts {
            for note in ended.service_notes() {
                self.notes.push(format!("{}: {note}", part.name));
            }
            if part.is_failed(ended) {
                if !text.is_empty() && !part.said.is_empty() && !part.said.ends_with('\n') {
                    part.said.push('\n');
                }
                part.said += &text;
            }
        }
    }

    /// Runs a unit again without isolation that this machine cannot provide.
    fn has_not_run(&mut self, running: Running, fault: Fault) -> Result<(), Error> {
        let Running { test, sandbox, .. } = running;
        let plan = sandbox.into_plan();
        if !self.first.does_without(&fault, &plan)? {
            return Err(explain(fault, &plan));
        }
        for prepared in self.machines.drain(..) {
            self.first.remember(&prepared.machine.losses);
        }
        self.waiting.push_front(test);
        Ok(())
    }

    /// Writes new output of tests that are shown live, and reports slow tests.
    fn hear(&mut self) -> Result<(), Error> {
        for running in &mut self.running {
            let name = &running.test.unit.name;
            let (line, said) = running.output.hear(name)?;
            // With one test at a time, libtest begins a test's line when the test starts.
            if self.threads == 1 {
                self.results.hear(line).map_err(written)?;
            }
            self.results.hear(said).map_err(written)?;
            if !running.is_slow && running.since.elapsed() >= SLOW {
                running.is_slow = true;
                self.results.is_slow(name, SLOW.as_secs()).map_err(written)?;
            }
        }
        Ok(())
    }
}
