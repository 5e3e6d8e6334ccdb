//! `--durations`: how long tests took, read from an earlier report.

use super::options::Tests;
use crate::output::log::{Log, with_causes};
use crate::session::Session;
use anyhow::{Result, bail};
use husk_hermetic::Durations;
use husk_hermetic::record::{self, Damage, Line};
use std::fs;
use std::path::Path;

/// Reads the durations of a report. If it is missing or damaged, says so and returns `None`: the tests are then
/// divided evenly. Half of a report would divide them differently than the whole one does on another machine.
fn read(path: &Path, json: Option<&Path>, log: &Log) -> Result<Option<Durations>> {
    let shown = path.display();
    let file = |path: &Path| fs::canonicalize(path).ok();
    if json.is_some_and(|json| json == path || file(path).is_some_and(|path| file(json) == Some(path))) {
        bail!("--durations {shown} is also --json, which changes it between binaries; use a copy");
    }
    let mut durations = Durations::default();
    let mut damage = None;
    let read = record::read(path, |line| match line {
        Ok(Line::Test(test)) => {
            let micros = test.row.attempts.last().map_or(0, |attempt| attempt.wall);
            durations.add(test.suite, test.unit, test.row.name, micros);
        }
        Ok(_) => {}
        Err(found) => damage = damage.or(Some(found)),
    });
    let why = match (read, damage) {
        (Ok(()), None) => return Ok(Some(durations)),
        (Err(error), _) => with_causes(&error.into()),
        (Ok(()), Some(Damage::Line(number))) => format!("line {number} is not one of a report"),
        (Ok(()), Some(Damage::CutOff(number))) => format!("it is cut off in line {number}"),
    };
    log.warning(&format!("no durations from {shown}: {why}; tests are divided evenly"));
    Ok(None)
}

impl Tests {
    /// Reads the durations, if there are any.
    pub(super) fn durations(&self, session: &Session<'_>) -> Result<Option<Durations>> {
        let path = self.durations.as_deref();
        Ok(path.map(|path| read(path, self.json.as_deref(), session.log)).transpose()?.flatten())
    }
}
