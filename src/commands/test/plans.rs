//! `husk test --plan` with `--runner`, `--each` or `--tap`: the plan of each test.

use super::report::Named;
use super::run::{Run, print_text};
use crate::exit::Exit;
use anyhow::Result;
use husk_hermetic::{BinaryKind, Choice, Explain, Suite, TestPlan};
use std::fmt::Write as _;

/// Prints the names of the tests that have the same options, then their steps. The binary only lists its tests.
pub(super) fn print(mut run: Run<'_>, kind: BinaryKind) -> Result<Exit> {
    if kind == BinaryKind::Other {
        return print_text("runs without a sandbox, because it is not a test binary\n");
    }
    husk_hermetic::show(&mut run.profile);
    let suite = Named::binary(&run.profile, run.test.tests.shard).suite;
    let setting = run.setting(Explain::Off, true);
    let choice = Choice {
        division: run.division(&suite),
        fails_fast: run.test.tests.fail_fast,
        setting: &setting,
        screen: None,
        cache: None,
        record: &mut |_| {},
    };
    let plans = match kind {
        BinaryKind::Tests => husk_hermetic::test_plans(&run.profile, run.how, &choice)?,
        _ => None,
    };
    let Some(plans) = plans else { return run.print_plan(&husk_hermetic::listing(&run.profile)?) };
    run.print_plan(&text(plans)?)
}

/// Prints the same for the tests that another tool lists.
pub(super) fn print_suite(run: &Run<'_>, suite: &Suite, name: &str) -> Result<Exit> {
    let setting = run.setting(Explain::Off, false);
    let mut choice = Choice {
        division: run.division(name),
        fails_fast: false,
        setting: &setting,
        screen: None,
        cache: None,
        record: &mut |_| {},
    };
    run.print_plan(&text(husk_hermetic::suite_plans(&run.profile, run.how, suite, &mut choice)?)?)
}

fn text(plans: Vec<TestPlan>) -> Result<String> {
    let mut text = String::new();
    for plan in plans {
        plan.tests.iter().try_for_each(|test| writeln!(text, "test {test}"))?;
        writeln!(text, "{}", plan.steps)?;
    }
    Ok(text)
}
