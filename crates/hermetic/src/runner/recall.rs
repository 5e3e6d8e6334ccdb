//! Uses results that are remembered instead of running tests, and remembers those of tests that pass.

use super::unit::{self, Run};
use super::{Runner, Setting, Waiting, written};
use crate::adapters::{Output, Role, Unit};
use crate::cache::{Key, Mode, Reader, Remembered, shows_more};
use crate::error::Error;
use crate::profile::Profile;
use crate::report::tested::Tested;
use crate::sandbox::Machine;
use crate::sandbox::ended::{Ended, Recalled};
use std::ffi::OsString;
use std::rc::Rc;

/// The key of a test, and whether its run is compared with a remembered one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keyed {
    key: Key,
    is_known: bool,
}

/// The machine for the tests with a setting.
pub(super) struct Prepared {
    setting: Rc<Setting>,
    /// The program, if its file is among those that a view shows.
    program: Option<OsString>,
    pub(super) machine: Machine,
}

impl Runner<'_> {
    /// Returns the index of the machine for a program with this setting.
    pub(super) fn machine(&mut self, setting: &Rc<Setting>, args: &[OsString]) -> Result<usize, Error> {
        let usual = &setting.profile;
        let program = args.first().filter(|_| !usual.inputs.is_empty()).cloned();
        let is_same = |known: &Prepared| Rc::ptr_eq(&known.setting, setting) && known.program == program;
        if let Some(place) = self.machines.iter().position(is_same) {
            return Ok(place);
        }
        let is_usual = program.is_none() || program.as_ref() == usual.args.first();
        let machine = match self.profile.as_ref() == Some(usual) {
            // It has been probed for the list of tests.
            true if is_usual => self.first.again(),
            _ if is_usual => self.first.like(usual)?,
            // The view of another program has another file.
            _ => self.first.like(&of_program(usual, args))?,
        };
        self.machines.push(Prepared { setting: setting.clone(), program, machine });
        Ok(self.machines.len() - 1)
    }

    /// Reports the tests of a unit that has passed before. Returns the unit if it must be run. `profile` is its own.
    pub(super) fn recall(
        &mut self,
        mut test: Waiting,
        (setting, profile): (&Setting, &Profile),
        place: Option<usize>,
    ) -> Result<Option<Waiting>, Error> {
        if !test.runs.is_empty() {
            return Ok(Some(test));
        }
        let Some(cache) = self.cache.as_deref_mut() else { return Ok(Some(test)) };
        if self.is_uncaptured {
            cache.note("not cached: with --nocapture, tests have the caller's standard input".to_owned());
            return Ok(Some(test));
        }
        let Some(Prepared { machine, .. }) = place.and_then(|place| self.machines.get(place)) else {
            cache.note("not cached: 'go test' builds its binaries anew in each run".to_owned());
            return Ok(Some(test));
        };
        let (name, token) = (self.adapter.format(), self.adapter.token());
        let reader = Reader { name, env: &test.unit.env, files: &test.unit.files, token };
        // The variables and files of the unit are in the reader.
        let services = profile.services.clone();
        let common = Profile { services, ..of_program(&setting.profile, &test.unit.args) };
        let Some(key) = cache.key(&common, &machine.host, &reader) else {
            return Ok(Some(test));
        };
        let known = cache.find(key);
        test.keyed = Some(Keyed { key, is_known: known.is_some() });
        let Some(known) = known.filter(|_| cache.mode == Mode::Use) else { return Ok(Some(test)) };
        let (ended, output) = (Ended::recalled(known.wall), known.output(token));
        let reading = self.adapter.read(&test.unit, &ended, &output);
        if !reading.is_clear_pass(test.unit.role, &ended) {
            return Ok(Some(test));
        }
        let Waiting { unit, mut runs, .. } = test;
        runs.push(Run { start: self.began.elapsed(), ended, parts: reading.parts });
        if unit.role == Role::List {
            self.list_is_complete(reading.found)?;
        }
        let (tested, _) = results(&unit, &runs);
        self.results.count(unit.count(), tested.len());
        for tested in tested {
            self.results.tell(&tested, false).map_err(written)?;
            self.over.push(tested);
        }
        Ok(None)
    }

    /// Remembers a unit that has passed, and marks one that has failed although it is remembered. `whole` is the test that
    /// stands for the unit.
    pub(super) fn compare(
        &mut self,
        keyed: Option<Keyed>,
        (ended, output): (&Ended, &Output),
        is_clear_pass: bool,
        whole: Option<&mut Tested>,
    ) {
        let (Some(Keyed { key, is_known }), Some(cache)) = (keyed, self.cache.as_deref_mut()) else { return };
        let losses = self.machines.iter().flat_map(|prepared| &prepared.machine.losses);
        let losses: Vec<_> = losses.chain(&self.first.losses).cloned().collect();
        if is_clear_pass {
            if ended.remaining.is_empty() && !ended.was_signalled && !shows_more(&losses) {
                let token = self.adapter.token();
                cache.remember(key, Remembered::new(ended.wall, &output.out, output.errors.clone(), token));
            }
        } else if is_known && !ended.was_signalled {
            cache.forget(key);
            if let Some(last) = whole.and_then(|tested| tested.attempts.last_mut()) {
                last.ended.recalled = Some(Recalled::Contradicted);
            }
        }
    }
}

impl Remembered {
    fn output(self, token: Option<&str>) -> Output {
        Output { out: self.out(token), errors: self.errors }
    }
}

/// Returns a profile with other arguments.
fn of_program(profile: &Profile, args: &[OsString]) -> Profile {
    Profile { args: args.to_vec(), ..profile.clone() }
}

/// Returns the results of the tests of a unit, and the index of the one that stands for the whole unit.
pub(super) fn results(unit: &Unit, runs: &[Run]) -> (Vec<Tested>, usize) {
    let (mut tested, whole) = unit::results(runs);
    for one in tested.iter_mut().filter(|one| one.name != unit.name) {
        one.unit = Some(unit.name.clone());
    }
    (tested, whole)
}
