//! Uses results that are remembered instead of running tests, and remembers those of tests that pass.

use super::unit::Run;
use super::{Runner, Setting, Waiting, written};
use crate::adapters::Unit;
use crate::cache::{Key, Mode, Remembered, shows_more};
use crate::error::Error;
use crate::profile::Profile;
use crate::report::tested::{Attempt, Tested, Verdict};
use crate::sandbox::ended::{Ended, Recalled};
use std::rc::Rc;

/// The key of a test, and whether its run is compared with a remembered one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keyed {
    key: Key,
    is_known: bool,
}

impl Runner<'_> {
    /// Returns the index of the machine for a setting.
    pub(super) fn machine(&mut self, setting: &Rc<Setting>) -> Result<usize, Error> {
        if let Some(place) = self.machines.iter().position(|(known, _)| Rc::ptr_eq(known, setting)) {
            return Ok(place);
        }
        let machine = match self.profile.as_ref() == Some(&setting.profile) {
            // It has been probed for the list of tests.
            true => self.first.again(),
            false => self.first.like(&setting.profile)?,
        };
        self.machines.push((setting.clone(), machine));
        Ok(self.machines.len() - 1)
    }

    /// Reports a test that has passed before. Returns whether it has; otherwise it must be run.
    pub(super) fn recall(
        &mut self,
        test: &mut Waiting,
        profile: &Profile,
        place: usize,
    ) -> Result<bool, Error> {
        if !test.runs.is_empty() {
            return Ok(false);
        }
        let Some(cache) = self.cache.as_deref_mut() else { return Ok(false) };
        if self.is_uncaptured {
            cache.note("not cached: with --nocapture, tests have the caller's standard input".to_owned());
            return Ok(false);
        }
        let Some((_, machine)) = self.machines.get(place) else { return Ok(false) };
        let Some(key) = cache.key(profile, &machine.host) else { return Ok(false) };
        let known = cache.find(key);
        test.keyed = Some(Keyed { key, is_known: known.is_some() });
        let Some(known) = known.filter(|_| cache.mode == Mode::Use) else { return Ok(false) };
        let tested = recalled(&test.unit, known, self.began.elapsed());
        self.results.tell(&tested, false).map_err(written)?;
        self.over.push(tested);
        Ok(true)
    }

    /// Remembers a test that has passed, and marks one that has failed although it is remembered.
    pub(super) fn compare(&mut self, keyed: Option<Keyed>, runs: &[Run], tested: &mut [Tested]) {
        let (Some(Keyed { key, is_known }), Some(cache)) = (keyed, self.cache.as_deref_mut()) else { return };
        let ([only], [run]) = (&mut *tested, runs) else {
            if is_known && let Some(last) = tested.last_mut().and_then(|tested| tested.attempts.last_mut()) {
                last.ended.recalled = Some(Recalled::Contradicted);
                cache.forget(key);
            }
            return;
        };
        let losses = self.machines.iter().flat_map(|(_, machine)| &machine.losses).chain(&self.first.losses);
        let losses: Vec<_> = losses.cloned().collect();
        match (only.verdict(), only.attempts.last_mut()) {
            (Verdict::Passed, Some(last)) if run.ended.remaining.is_empty() && !shows_more(&losses) => {
                let (wall, mode, out) = (last.ended.wall, only.mode.clone(), last.said.clone().into_bytes());
                cache.remember(key, Remembered { wall, mode, out, errors: Vec::new() });
            }
            (Verdict::Failed, Some(last)) if is_known && !last.ended.was_signalled => {
                last.ended.recalled = Some(Recalled::Contradicted);
                cache.forget(key);
            }
            _ => {}
        }
    }
}

fn recalled(unit: &Unit, known: Remembered, start: std::time::Duration) -> Tested {
    let said = String::from_utf8_lossy(&known.out).into_owned();
    let attempt = Attempt { start, ended: Ended::recalled(known.wall), reported: None, said };
    let (name, mode) = (unit.name.clone(), known.mode);
    Tested { name, mode, attempts: vec![attempt], ignored: None, explained: None, unit: None }
}
