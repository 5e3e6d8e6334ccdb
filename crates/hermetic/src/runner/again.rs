//! Runs failed tests again to explain them: once observed, and once with the suggested options.

use super::output::CapturedOutput;
use super::{Runner, Running, Setting, Waiting, spawn, written};
use crate::adapters::Unit;
use crate::error::Error;
use crate::explain::judge::{Grant, judge};
use crate::explain::{self, Explanation, confirm};
use crate::profile::Profile;
use crate::report::tested::Tested;
use crate::sandbox::ended::Ended;
use crate::sandbox::watch::Fault;
use crate::services::served::Served;
use std::rc::Rc;
use std::time::Instant;

/// The results of a unit that has ended, and is being explained.
pub(super) struct Explaining {
    pub(super) tested: Vec<Tested>,
    /// The index of the test that stands for the whole unit, and gets the explanation.
    pub(super) whole: usize,
    /// The end of its last run.
    pub(super) ended: Ended,
    /// The output of its last run.
    pub(super) said: String,
    pub(super) is_failed: bool,
    /// Whether the beginning of its line has been written.
    pub(super) is_begun: bool,
    /// The options to try. Without them, the next run is observed.
    pub(super) trial: Option<(Profile, Vec<Grant>)>,
}

impl Explaining {
    /// Returns the explanation to fill in.
    fn explained(&mut self) -> Option<&mut Option<Explanation>> {
        self.tested.get_mut(self.whole).map(|tested| &mut tested.explained)
    }
}

impl Runner<'_> {
    /// Reports results, or queues the run that explains them.
    pub(super) fn end(
        &mut self,
        unit: Unit,
        explaining: Explaining,
        setting: &Setting,
        is_over: bool,
    ) -> Result<(), Error> {
        self.has_failed |= explaining.is_failed;
        let is_due = setting.explain.is_due_after(explaining.is_failed, &explaining.ended);
        if !is_over && is_due && !explaining.tested.is_empty() {
            let explaining = Some(Box::new(explaining));
            self.waiting.push_front(Waiting { unit, explaining, ..Waiting::default() });
            return Ok(());
        }
        self.tell(explaining)
    }

    fn tell(&mut self, explaining: Explaining) -> Result<(), Error> {
        for tested in explaining.tested {
            self.results.tell(&tested, explaining.is_begun).map_err(written)?;
            self.over.push(tested);
        }
        Ok(())
    }

    /// Starts a run that explains a unit. If that is impossible, the unit is reported with the reason.
    pub(super) fn start_again(&mut self, unit: Unit, mut explaining: Box<Explaining>) -> Result<(), Error> {
        match self.spawn_again(&unit, &explaining) {
            Ok((setting, sandbox, output)) => {
                let test = Waiting { unit, explaining: Some(explaining), ..Waiting::default() };
                let since = Instant::now();
                // Only the first run is reported as slow.
                self.running.push(Running { test, setting, since, is_slow: true, sandbox, output });
                Ok(())
            }
            Err(error) => {
                if let Some(explained) = explaining.explained() {
                    explained.get_or_insert_with(|| Explanation::unavailable(&error));
                }
                self.tell(*explaining)
            }
        }
    }

    fn spawn_again(
        &mut self,
        unit: &Unit,
        explaining: &Explaining,
    ) -> Result<(Rc<Setting>, Served, CapturedOutput), Error> {
        let setting = (self.setting)(&unit.name)?;
        let profile = match &explaining.trial {
            Some((profile, _)) => profile.clone(),
            None => explain::observed(&unit.profile(&setting.profile), explaining.ended.wall),
        };
        let mut machine = self.first.like(&profile)?;
        let output = if unit.splits { CapturedOutput::split() } else { CapturedOutput::captured() }?;
        let (sandbox, output) = spawn(profile, &mut machine, output)?;
        Ok((setting, sandbox, output))
    }

    /// Takes the end of a run that explains a unit.
    pub(super) fn has_explained(
        &mut self,
        mut explaining: Box<Explaining>,
        running: Running,
        ended: Result<Ended, Fault>,
        is_over: bool,
    ) -> Result<(), Error> {
        let Running { test: Waiting { unit, .. }, setting, mut sandbox, output, .. } = running;
        let observed = sandbox.observed();
        let plan = sandbox.into_plan();
        let output = output.finish()?;
        let has_passed = |ended: &Ended| {
            let parts = self.adapter.read(&unit, ended, &output).parts;
            !parts.iter().any(|part| part.is_failed(ended))
        };
        match (ended, explaining.trial.take()) {
            (Ok(ended), Some((_, grants))) => {
                let has_passed = has_passed(&ended);
                if let Some(explained) = explaining.explained() {
                    explained.get_or_insert_default().passes_with = has_passed.then_some(grants);
                }
            }
            // The suggestions stand, untried.
            (Err(_), Some(_)) => {}
            (Err(error), None) => {
                let error = crate::sandbox::explain(error, &plan);
                if let Some(explained) = explaining.explained() {
                    *explained = Some(Explanation::unavailable(&error));
                }
            }
            (Ok(ended), None) => {
                let has_passed = has_passed(&ended);
                let profile = unit.profile(&setting.profile);
                let facts = explain::facts(&profile, &plan.host, &explaining.ended, &explaining.said);
                let denied = judge(&observed, &facts);
                let is_tried = explaining.is_failed && !has_passed && !is_over;
                explaining.trial =
                    confirm::granted(&plan.profile, explaining.ended.wall, &denied).filter(|_| is_tried);
                let passed = explain::is_comparable(&profile, &ended).then_some(has_passed);
                if let Some(explained) = explaining.explained() {
                    *explained = Some(Explanation { denied, passed, ..Explanation::default() });
                }
            }
        }
        if explaining.trial.is_some() {
            self.waiting.push_front(Waiting { unit, explaining: Some(explaining), ..Waiting::default() });
            return Ok(());
        }
        self.tell(*explaining)
    }

    /// Reports the tests whose explanation an interrupt has prevented.
    pub(super) fn give_up_explaining(&mut self) -> Result<(), Error> {
        let (explaining, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<Vec<_>, _>(|test| test.explaining.is_some());
        self.waiting = waiting.into();
        for explaining in explaining.into_iter().filter_map(|test| test.explaining) {
            self.tell(*explaining)?;
        }
        Ok(())
    }
}
