//! Runs the tests that another tool lists.

use super::{Choice, Event, Runner, Tests, Waiting};
use crate::adapters::{Role, Suite};
use crate::error::Error;
use crate::libtest::arguments::TestArguments;
use crate::profile::Profile;
use crate::report::results::Results;
use crate::sandbox::{Isolation, Machine};
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Instant;

/// Runs the tests that an adapter lists, each in its own sandbox, and writes the results in libtest's format.
///
/// # Errors
///
/// If a sandbox cannot be made, or the output cannot be written.
pub fn run_suite(
    profile: &Profile,
    how: Isolation,
    suite: &Suite,
    choice: &mut Choice<'_>,
    out: &mut dyn Write,
) -> Result<Tests, Error> {
    let mut ignore = |_: Event<'_>| {};
    let Choice { division, setting, screen, fails_fast, .. } = *choice;
    let cache = choice.cache.take();
    let how_to = Choice { division, setting, screen, fails_fast, cache, record: &mut ignore };
    Runner::of_suite(profile, how, suite, how_to, out)?.run(fails_fast, choice.record)
}

impl<'a> Runner<'a> {
    /// Returns a runner that begins with an adapter's first units.
    pub(super) fn of_suite(
        profile: &Profile,
        how: Isolation,
        suite: &'a Suite,
        choice: Choice<'a>,
        out: &'a mut dyn Write,
    ) -> Result<Self, Error> {
        let request = TestArguments::default();
        let adapter = suite.adapter();
        let (lists, tests): (Vec<_>, Vec<_>) =
            adapter.begin().into_iter().partition(|unit| unit.role == Role::List);
        let mut runner = Self {
            adapter,
            is_uncaptured: false,
            threads: request.threads(),
            noun: suite.noun,
            division: choice.division,
            listed: None,
            lists: lists.len(),
            found: tests,
            not_run: 0,
            setting: choice.setting,
            profile: None,
            cache: choice.cache,
            machines: Vec::new(),
            first: Machine::of(profile, how)?,
            notes: Vec::new(),
            ignored: BTreeMap::new(),
            waiting: lists.into_iter().map(|unit| Waiting { unit, ..Waiting::default() }).collect(),
            running: Vec::new(),
            began: Instant::now(),
            over: Vec::new(),
            has_failed: false,
            failed: None,
            results: Results::new(&request, choice.screen, out),
        };
        runner.release()?;
        Ok(runner)
    }
}
