//! The plans of a binary's tests.

use super::output::CapturedOutput;
use super::{Choice, Setting, chosen, list};
use crate::error::Error;
use crate::libtest::arguments::TestArguments;
use crate::profile::Profile;
use crate::sandbox::{Isolation, Machine};
use crate::services::listing::{planned_network, services_listing};
use bumpalo::Bump;
use std::rc::Rc;

/// Tests with the same options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestPlan {
    pub tests: Vec<String>,
    /// The steps of each test's sandbox, one a line.
    pub steps: String,
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
        let network = planned_network(&profile);
        let steps = machine.plan(&profile, output.streams(), network).plan(&Bump::new())?.to_string();
        let steps = services_listing(&profile)? + &steps;
        plans.push((setting, TestPlan { tests: vec![name], steps }));
    }
    Ok(Some(plans.into_iter().map(|(_, plan)| plan).collect()))
}
