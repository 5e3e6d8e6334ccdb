//! Runs failed tests again to explain them: once observed, and once with the suggested options.

use super::output::CapturedOutput;
use super::{Runner, Running, Setting, Waiting, list, written};
use crate::error::Error;
use crate::explain::judge::{Grant, judge};
use crate::explain::{self, Explanation, confirm};
use crate::profile::Profile;
use crate::report::tested::{Tested, Verdict};
use crate::sandbox::ended::Ended;
use crate::sandbox::watch::{Fault, Sandbox};
use std::rc::Rc;
use std::time::Instant;

/// A test that has ended and is being explained.
pub(super) struct Explaining {
    pub(super) tested: Tested,
    /// Whether the beginning of its line has been written.
    pub(super) is_begun: bool,
    /// The options to try. Without them, the next run is observed.
    pub(super) trial: Option<(Profile, Vec<Grant>)>,
}

impl Runner<'_> {
    /// Reports a test, or queues the run that explains it.
    pub(super) fn end(
        &mut self,
        tested: Tested,
        setting: &Setting,
        is_begun: bool,
        is_over: bool,
    ) -> Result<(), Error> {
        self.has_failed |= tested.verdict() == Verdict::Failed;
        let last = tested.attempts.last();
        if !is_over && last.is_some_and(|last| setting.explain.is_due(&last.ended)) {
            let explaining = Some(Box::new(Explaining { tested, is_begun, trial: None }));
            self.waiting.push_front(Waiting { explaining, ..Waiting::default() });
            return Ok(());
        }
        self.tell(tested, is_begun)
    }

    fn tell(&mut self, tested: Tested, is_begun: bool) -> Result<(), Error> {
        self.results.tell(&tested, is_begun).map_err(written)?;
        self.over.push(tested);
        Ok(())
    }

    /// Starts a run that explains a test. If that is impossible, the test is reported with the reason.
    pub(super) fn start_again(&mut self, mut explaining: Box<Explaining>) -> Result<(), Error> {
        match self.spawn_again(&explaining) {
            Ok((setting, sandbox, output)) => {
                let test = Waiting { explaining: Some(explaining), ..Waiting::default() };
                let since = Instant::now();
                // Only the first run is reported as slow.
                self.running.push(Running { test, setting, since, is_slow: true, sandbox, output });
                Ok(())
            }
            Err(error) => {
                explaining.tested.explained.get_or_insert_with(|| Explanation::unavailable(&error));
                self.tell(explaining.tested, explaining.is_begun)
            }
        }
    }

    fn spawn_again(
        &mut self,
        explaining: &Explaining,
    ) -> Result<(Rc<Setting>, Sandbox, CapturedOutput), Error> {
        let Explaining { tested, trial, .. } = explaining;
        let setting = (self.setting)(&tested.name)?;
        let first = tested.attempts.last().map(|last| &last.ended);
        let profile = match (trial, first) {
            (Some((profile, _)), _) => profile.clone(),
            (None, Some(first)) => {
                let profile = list::with_arguments(&setting.profile, self.request.to_run(&tested.name));
                explain::observed(&profile, first.wall)
            }
            (None, None) => setting.profile.clone(),
        };
        let mut machine = self.first.like(&profile)?;
        let output = CapturedOutput::captured()?;
        let home = machine.home(&profile.limits)?;
        let plan = machine.plan(&profile, output.streams());
        let sandbox = Sandbox::start(plan, &profile.limits, home)
            .map_err(|failed| crate::sandbox::explain(failed.error, &failed.plan, &profile, &machine.host))?;
        Ok((setting, sandbox, output))
    }

    /// Takes the end of a run that explains a test.
    pub(super) fn has_explained(
        &mut self,
        mut explaining: Box<Explaining>,
        setting: &Setting,
        mut sandbox: Sandbox,
        ended: Result<Ended, Fault>,
        is_over: bool,
    ) -> Result<(), Error> {
        let observed = sandbox.observed();
        let plan = sandbox.into_plan();
        let explained = &mut explaining.tested.explained;
        match (ended, explaining.trial.take()) {
            (Ok(ended), Some((_, grants))) => {
                let explanation = explained.get_or_insert_default();
                explanation.passes_with = ended.status.success().then_some(grants);
            }
            // The suggestions stand, untried.
            (Err(_), Some(_)) => {}
            (Err(error), None) => {
                let error = crate::sandbox::explain(error, &plan, &plan.profile, &plan.host);
                *explained = Some(Explanation::unavailable(&error));
            }
            (Ok(ended), None) => {
                let Some(first) = explaining.tested.attempts.last() else { return Ok(()) };
                let facts = explain::facts(&setting.profile, &plan.host, &first.ended, &first.said);
                let denied = judge(&observed, &facts);
                let is_tried = !first.ended.status.success() && !ended.status.success() && !is_over;
                explaining.trial =
                    confirm::granted(&plan.profile, first.ended.wall, &denied).filter(|_| is_tried);
                let passed = explain::passed(&setting.profile, &ended);
                *explained = Some(Explanation { denied, passed, ..Explanation::default() });
            }
        }
        if explaining.trial.is_some() {
            self.waiting.push_front(Waiting { explaining: Some(explaining), ..Waiting::default() });
            return Ok(());
        }
        self.tell(explaining.tested, explaining.is_begun)
    }

    /// Reports the tests whose explanation an interrupt has prevented.
    pub(super) fn give_up_explaining(&mut self) -> Result<(), Error> {
        let (explaining, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<Vec<_>, _>(|test| test.explaining.is_some());
        self.waiting = waiting.into();
        for explaining in explaining.into_iter().filter_map(|test| test.explaining) {
            self.tell(explaining.tested, explaining.is_begun)?;
        }
        Ok(())
    }
}
