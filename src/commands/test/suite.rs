//! Many tests, each in its own sandbox: those of a test binary, or those that another tool lists.

use super::keep::{self, KeepEach};
use super::options::{Tests, What};
use super::report::{Named, Report};
use super::run::Run;
use super::{cache, plans, program};
use crate::exit::Exit;
use crate::output::Lasting;
use crate::output::log::with_causes;
use crate::session::Session;
use anyhow::Result;
use husk_hermetic::{
    BinaryKind, Choice, Error, Event, Explain, FailedUnit, Isolation, Profile, Screen, Setting, Suite,
};
use rustix::termios::tcgetwinsize;
use std::cell::RefCell;
use std::io::{LineWriter, Write, stdout};
use std::rc::Rc;

impl Run<'_> {
    /// Runs the tests of a test binary, as a runner for cargo.
    pub(super) fn binary(mut self) -> Result<Exit> {
        let kind = husk_hermetic::binary_kind(&self.profile);
        if self.test.rare.plan {
            return plans::print(self, kind);
        }
        if kind == BinaryKind::Other {
            return program::as_it_is(&self.profile);
        }
        husk_hermetic::show(&mut self.profile);
        let mut report = self.report(Named::binary)?;
        if kind == BinaryKind::Tests {
            let (tests, written) = self.tests(true, &mut report, husk_hermetic::run_tests)?;
            if let Some(tests) = tests {
                return self.finish(tests, written, report);
            }
        }
        if husk_hermetic::is_in_first_shard(&self.profile) {
            return self.run_listed(report);
        }
        self.run_program(Some(report))
    }

    /// Runs the tests that another tool lists.
    pub(super) fn suite(mut self) -> Result<Exit> {
        let Tests { each, tap, .. } = *self.test.tests;
        let suite = Suite::of(&self.profile, each.map(What::each), tap).map_err(Error::Setting)?;
        if self.test.rare.plan {
            let name = if tap && each.is_some() { Named::programs } else { Named::command };
            let name = name(&self.profile, self.test.tests.shard).suite;
            return plans::print_suite(&self, &suite, &name);
        }
        let mut report = self.report(if tap && each.is_some() { Named::programs } else { Named::command })?;
        let (tests, written) = self.tests(false, &mut report, |profile, how, choice, results| {
            husk_hermetic::run_suite(profile, how, &suite, choice, results)
        })?;
        let (opens_shell, how, session) = (self.test.rare.shell, self.how, self.session);
        let mut tests = tests;
        let failed = tests.failed.take();
        let exit = self.finish(tests, written, report)?;
        if opens_shell {
            shell(failed, how, session)?;
        }
        Ok(exit)
    }

    /// Runs tests. Also returns whether the results could be written: tests run and are reported even if not.
    fn tests<T>(
        &mut self,
        is_binary: bool,
        report: &mut Report,
        run: impl FnOnce(&Profile, Isolation, &mut Choice<'_>, &mut dyn Write) -> Result<T, Error>,
    ) -> Result<(T, Result<()>)> {
        let mut cache = self.cache.take();
        let keep = self.test.rare.keep.clone().map(|directory| KeepEach::open(directory, &self.profile));
        let mut keep = keep.transpose()?;
        let name = report.suite().to_owned();
        let setting = self.setting(self.test.rare.explain(), is_binary);
        let mut choice = Choice {
            division: self.division(&name),
            // A shell is opened for the first test that fails.
            fails_fast: self.test.tests.fail_fast || self.test.rare.shell,
            setting: &setting,
            screen: tcgetwinsize(stdout()).ok().map(|size| screen(size.ws_col.into())),
            cache: cache.as_mut(),
            record: &mut |event| {
                if let (Event::Tested(tested), Some(keep)) = (event, &mut keep) {
                    keep.keep(tested);
                }
                report.record(event);
            },
        };
        let mut results = LineWriter::new(Lasting::default());
        let tests = run(&self.profile, self.how, &mut choice, &mut results)?;
        results.flush()?;
        drop(setting);
        self.cache = cache;
        if let Some(keep) = keep {
            self.session.log.note(&keep.finish()?);
        }
        Ok((tests, results.get_ref().finish()))
    }

    /// Writes the reports on tests that have ended.
    fn finish(mut self, tests: husk_hermetic::Tests, written: Result<()>, report: Report) -> Result<Exit> {
        cache::finish(self.cache.as_mut(), self.session);
        tests.losses.iter().for_each(|loss| self.session.log.warning(loss));
        tests.notes.iter().for_each(|note| self.session.log.warning(note));
        report.finish(tests.not_run, tests.not_begun)?;
        written?;
        Ok(if tests.success { Exit::Success } else { Exit::Tests })
    }

    /// Returns a function that returns how to run the named test. Few tests have options of their own; each distinct set
    /// of options gets its own plan.
    pub(super) fn setting(
        &self,
        explain: Explain,
        is_binary: bool,
    ) -> impl Fn(&str) -> Result<Rc<Setting>, Error> {
        let tests = &self.test.tests;
        let usual = Rc::new(Setting { profile: self.profile.clone(), retries: tests.retries, explain });
        let known = RefCell::new(vec![usual.clone()]);
        move |name: &str| {
            let wrong = |error: anyhow::Error| Error::Setting(with_causes(&error));
            let Some(configured) = self.configured else { return Ok(usual.clone()) };
            let (test, image) = configured.named(name).map_err(wrong)?;
            let (retries, explain) = (test.tests.retries, test.rare.explain());
            let mut profile = test.profile(image, &self.tools);
            // The warnings are the same for each test.
            drop(husk_hermetic::show_outputs(&mut profile));
            if is_binary {
                husk_hermetic::show(&mut profile);
            }
            tests.refuse_reports(&profile).map_err(wrong)?;
            self.test.rare.keep.iter().try_for_each(|path| keep::refuse(path, &profile)).map_err(wrong)?;
            let setting = Setting { profile, retries, explain };
            let mut known = known.borrow_mut();
            let is_known = known.iter().find(|known| ***known == setting);
            Ok(is_known.cloned().unwrap_or_else(|| {
                known.push(Rc::new(setting));
                known[known.len() - 1].clone()
            }))
        }
    }
}

/// Opens a shell in the sandbox of a test that has failed.
fn shell(failed: Option<FailedUnit>, how: Isolation, session: &Session<'_>) -> Result<()> {
    let Some(FailedUnit { name, mut profile }) = failed else {
        session.log.note(&"no test failed, so no shell is opened");
        return Ok(());
    };
    let program = husk_hermetic::open_shell(&mut profile)?;
    session.log.note(&format!("shell in the sandbox of {name}; run: {program}"));
    let ended = husk_hermetic::run(&profile, how)?;
    ended.losses.iter().for_each(|loss| session.log.warning(loss));
    Ok(())
}

/// Assumes 80 columns if the terminal does not report its width.
fn screen(columns: usize) -> Screen {
    Screen { columns: if columns == 0 { 80 } else { columns } }
}
