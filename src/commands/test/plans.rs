//! `husk test --plan --runner`: the plan of each test of a binary.

use super::options::Tests;
use super::{Options, found, setting};
use crate::exit::Exit;
use crate::output::{self, escape};
use anyhow::Result;
use husk_hermetic::{BinaryKind, Choice, Division, Explain, Isolation, Profile, Setting, Tools};
use std::fmt::Write as _;

/// Prints the names of the tests that have the same options, then their steps. The binary only lists its tests.
pub(super) fn print(
    mut profile: Profile,
    kind: BinaryKind,
    tests: &Tests,
    division: Division<'_>,
    how: Isolation,
    (named, tools): (Options<'_>, &Tools),
) -> Result<Exit> {
    let mut text = found(tools);
    if kind == BinaryKind::Other {
        text = "runs without a sandbox, because it is not a test binary\n".to_owned();
    } else {
        husk_hermetic::show(&mut profile);
        let usual = Setting { profile: profile.clone(), retries: tests.retries, explain: Explain::Off };
        let setting = setting(usual, tests, true, (named, tools));
        let choice = Choice {
            division,
            fails_fast: tests.fail_fast,
            setting: &setting,
            screen: None,
            cache: None,
            record: &mut |_| {},
        };
        let plans = match kind {
            BinaryKind::Tests => husk_hermetic::test_plans(&profile, how, &choice)?,
            _ => None,
        };
        match plans {
            Some(plans) => {
                for plan in plans {
                    plan.tests.iter().try_for_each(|test| writeln!(text, "test {test}"))?;
                    writeln!(text, "{}", plan.steps)?;
                }
            }
            None => text += &husk_hermetic::listing(&profile)?,
        }
    }
    output::print(&*escape::text(&text))?;
    Ok(Exit::Success)
}
