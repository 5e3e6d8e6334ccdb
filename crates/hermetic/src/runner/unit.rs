//! From the runs of a unit to the results of its tests.

use crate::adapters::{Outcome, Part};
use crate::report::tested::{Attempt, Tested};
use crate::sandbox::ended::{Ended, Recalled};
use husk_script::sys::process::Usage;
use std::collections::BTreeMap;
use std::time::Duration;

/// A run of a unit that has ended.
pub(super) struct Run {
    /// The time from the start of the first test until its start.
    pub(super) start: Duration,
    pub(super) ended: Ended,
    pub(super) parts: Vec<Part>,
}

impl Run {
    pub(super) fn is_failed(&self) -> bool {
        self.parts.iter().any(|part| part.is_failed(&self.ended))
    }

    /// Returns the test that stands for the whole process: the one that it ended with, or else the first
    /// failed one, or the last one.
    fn whole(&self) -> Option<usize> {
        let is_failed = |part: &Part| part.is_failed(&self.ended);
        let ended = self.parts.iter().position(|part| part.outcome == Outcome::Status && is_failed(part));
        ended.or_else(|| self.parts.iter().position(is_failed)).or_else(|| self.parts.len().checked_sub(1))
    }

    /// Returns what a test has of the process. Time, processor time and processes that were left running count once.
    fn ended(&self, place: usize, part: &Part) -> Ended {
        let mut ended = self.ended.clone();
        if self.whole() != Some(place) {
            ended.usage = Usage { cpu_micros: 0, ..ended.usage };
            ended.remaining.clear();
            ended.reached = None;
            ended.full = None;
            ended.wall = Duration::ZERO;
        }
        match &mut ended.recalled {
            // The test took no time now.
            Some(Recalled::Cached(wall)) if self.whole() != Some(place) || part.wall.is_some() => {
                *wall = part.wall.unwrap_or_default();
            }
            Some(Recalled::Cached(_)) => {}
            _ => ended.wall = part.wall.unwrap_or(ended.wall),
        }
        ended
    }
}

/// Returns the results of the tests of a unit, in the order of its last run, and the index of the one that stands for
/// the whole unit.
pub(super) fn results(runs: &[Run]) -> (Vec<Tested>, usize) {
    let by_name = |run: &'_ Run| {
        let parts = run.parts.iter().enumerate();
        parts.map(|(place, part)| (part.name.clone(), place)).collect::<BTreeMap<_, _>>()
    };
    let places: Vec<_> = runs.iter().map(by_name).collect();
    let mut names: Vec<&String> = Vec::new();
    for (index, run) in runs.iter().enumerate().rev() {
        let later = places.get(index + 1..).unwrap_or_default();
        let is_new = |name: &&String| !later.iter().any(|places| places.contains_key(*name));
        names.extend(run.parts.iter().map(|part| &part.name).filter(is_new));
    }
    let tested = names.into_iter().map(|name| {
        let mut tested = Tested {
            name: name.clone(),
            mode: None,
            attempts: Vec::new(),
            ignored: None,
            explained: None,
            unit: None,
        };
        for (run, places) in runs.iter().zip(&places) {
            let place = places.get(name);
            let Some((place, part)) = place.and_then(|place| Some((*place, run.parts.get(*place)?))) else {
                // A process that failed for itself, and not because of one of its tests, has now passed.
                if !run.is_failed() && !tested.attempts.is_empty() {
                    let (ended, said) = (run.ended.clone(), String::new());
                    tested.attempts.push(Attempt { start: run.start, ended, reported: Some(true), said });
                }
                continue;
            };
            tested.mode.clone_from(&part.mode);
            let reported = match &part.outcome {
                Outcome::Skipped(why) => {
                    // A test that has failed stays failed.
                    tested.ignored.clone_from(why);
                    break;
                }
                Outcome::Status => None,
                Outcome::Passed => Some(true),
                Outcome::Failed => Some(false),
            };
            let (ended, said) = (run.ended(place, part), part.said.clone());
            tested.attempts.push(Attempt { start: run.start, ended, reported, said });
            if !part.is_failed(&run.ended) {
                // The process may run again because of another test.
                break;
            }
        }
        tested
    });
    let tested: Vec<_> = tested.collect();
    let last = runs.last().and_then(|run| run.parts.get(run.whole()?));
    let whole = last.and_then(|part| tested.iter().position(|tested| tested.name == part.name));
    (tested, whole.unwrap_or_default())
}
