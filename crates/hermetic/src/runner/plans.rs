//! The plans of tests that are only listed.

use super::output::CapturedOutput;
use super::{Choice, Event, Runner, Setting, chosen, list};
use crate::adapters::{Role, Suite, Unit};
use crate::error::Error;
use crate::libtest::arguments::TestArguments;
use crate::profile::Profile;
use crate::sandbox::watch::Held;
use crate::sandbox::{Isolation, Machine};
use crate::services::listing::{planned_network, services_listing};
use bumpalo::Bump;
use std::ffi::OsString;
use std::io::sink;
use std::path::PathBuf;
use std::rc::Rc;

/// Tests with the same options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestPlan {
    pub tests: Vec<String>,
    /// The steps of each test's sandbox, one a line.
    pub steps: String,
}

/// A group of tests: those with one setting, program and directory have the same steps, except for arguments.
type Group = (Rc<Setting>, Option<OsString>, Option<PathBuf>);

/// Returns the plans of the tests that an adapter lists, without running them. The steps are those of the first test with
/// the same options.
///
/// # Errors
///
/// If the tests cannot be listed, or a request of a profile cannot be met.
pub fn suite_plans(
    profile: &Profile,
    how: Isolation,
    suite: &Suite,
    choice: &mut Choice<'_>,
) -> Result<Vec<TestPlan>, Error> {
    let mut out = sink();
    let (setting, division) = (choice.setting, choice.division);
    let mut ignore = |_: Event<'_>| {};
    let choice =
        Choice { division, setting, screen: None, cache: None, record: &mut ignore, fails_fast: false };
    let mut runner = Runner::of_suite(profile, how, suite, choice, &mut out)?;
    let units = runner.listed_units()?;
    let mut plans: Vec<(Group, TestPlan)> = Vec::new();
    for unit in units {
        let setting = setting(&unit.name)?;
        let (program, directory) = (unit.args.first().cloned(), unit.directory.clone());
        let names = if unit.tests.is_empty() { vec![unit.name.clone()] } else { unit.tests.clone() };
        let is_same =
            |(known, of, at): &Group| Rc::ptr_eq(known, &setting) && *of == program && *at == directory;
        if let Some((_, plan)) = plans.iter_mut().find(|(group, _)| is_same(group)) {
            plan.tests.extend(names);
            continue;
        }
        let profile = unit.profile(&setting.profile);
        let steps = runner.steps(&unit, profile)?;
        plans.push(((setting, program, directory), TestPlan { tests: names, steps }));
    }
    Ok(plans.into_iter().map(|(_, plan)| plan).collect())
}

impl Runner<'_> {
    /// Runs the lists alone. Returns the units that they have found.
    fn listed_units(&mut self) -> Result<Vec<Unit>, Error> {
        let held = Held::all().map_err(|error| Error::Step { origin: "signals".to_owned(), error })?;
        loop {
            let is_list = self.waiting.front().is_some_and(|test| test.unit.role == Role::List);
            let next = if is_list && !held.is_interrupted() { self.waiting.pop_front() } else { None };
            match next {
                Some(test) => self.start(test)?,
                None if self.running.is_empty() => break,
                None => self.turn(&held)?,
            }
        }
        if let Some(failed) = &self.failed {
            return Err(Error::Setting(format!(
                "{} cannot list its tests; run it without --plan",
                failed.name
            )));
        }
        let units = self.waiting.drain(..).map(|test| test.unit);
        Ok(units.filter(|unit| unit.role == Role::Test).collect())
    }

    fn steps(&self, unit: &Unit, profile: Profile) -> Result<String, Error> {
        let machine = self.first.like(&profile)?;
        let output = self.output(unit)?;
        let (services, network) = (services_listing(&profile)?, planned_network(&profile));
        let plan = machine.plan(profile, output.streams(), network);
        Ok(services + &plan.plan(&Bump::new())?.to_string())
    }
}

/// Returns the plans of a binary's tests without running the tests: the binary only lists them. Returns `None` if the
/// binary does not use libtest or its arguments do not allow running tests alone.
///
/// # Errors
///
/// If the binary cannot be run, or a request of a profile cannot be met.
pub fn test_plans(
    profile: &Profile,
    how: Isolation,
    choice: &Choice<'_>,
) -> Result<Option<Vec<TestPlan>>, Error> {
    let Some(request) = TestArguments::read(profile.args.get(1..).unwrap_or_default()) else {
        return Ok(None);
    };
    let mut machine = Machine::of(profile, how)?;
    let Some(chosen) = chosen(profile, &request, choice.division, &mut machine, None)? else {
        return Ok(None);
    };
    let mut plans: Vec<(Rc<Setting>, TestPlan)> = Vec::new();
    for name in chosen.names.into_iter().filter(|name| !chosen.ignored.contains(name)) {
        let setting = (choice.setting)(&name)?;
        if let Some((_, plan)) = plans.iter_mut().find(|(known, _)| Rc::ptr_eq(known, &setting)) {
            plan.tests.push(name);
            continue;
        }
        let machine = machine.like(&setting.profile)?;
        let output = if request.is_uncaptured { CapturedOutput::live() } else { CapturedOutput::captured() }?;
        let profile = list::with_arguments(&setting.profile, request.to_run(&name));
        let (services, network) = (services_listing(&profile)?, planned_network(&profile));
        let plan = machine.plan(profile, output.streams(), network);
        let steps = services + &plan.plan(&Bump::new())?.to_string();
        plans.push((setting, TestPlan { tests: vec![name], steps }));
    }
    Ok(Some(plans.into_iter().map(|(_, plan)| plan).collect()))
}
