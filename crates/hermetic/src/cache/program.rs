//! Runs a program that is one test, unless it has passed before.

use super::{Cache, Mode, Reader, Remembered, shows_more};
use crate::error::Error;
use crate::profile::Profile;
use crate::runner::output::CapturedOutput;
use crate::sandbox::ended::{Ended, Recalled};
use crate::sandbox::{Isolation, Machine, run};
use std::io::{Write as _, stderr, stdout};

impl Cache {
    /// Runs a program to its end, or returns how it ended when it passed before. Its standard input is empty. Its output is
    /// written when it has ended, as it is if it was remembered.
    ///
    /// # Errors
    ///
    /// Like [`run`](crate::run).
    pub fn run(&mut self, profile: &Profile, how: Isolation) -> Result<Ended, Error> {
        let mut machine = Machine::of(profile, how)?;
        let Some(key) = self.key(profile, &machine.host, &Reader::of_program()) else {
            return run(profile, how);
        };
        let known = self.find(key);
        if self.mode == Mode::Use
            && let Some(known) = known
        {
            tell(&known);
            return Ok(Ended::recalled(known.wall));
        }
        let output = CapturedOutput::split()?;
        let ended = machine.run(profile, output.streams())?;
        let output = output.finish()?;
        let entry = Remembered::new(ended.wall, &output.out, output.errors, None);
        tell(&entry);
        let mut ended = Ended { losses: machine.losses, ..ended };
        let has_passed = ended.status.success();
        if known.is_some() && !has_passed && !ended.was_signalled {
            self.forget(key);
            ended.recalled = Some(Recalled::Contradicted);
        }
        if has_passed && ended.remaining.is_empty() && !ended.was_signalled && !shows_more(&ended.losses) {
            self.remember(key, entry);
        }
        Ok(ended)
    }
}

/// Writes a program's output. As for the program itself, it is not an error if nobody reads it.
fn tell(entry: &Remembered) {
    let why = "the program would not notice either";
    let mut out = stdout().lock();
    husk_script::sys::tolerate(out.write_all(&entry.out(None)).and_then(|()| out.flush()), why);
    husk_script::sys::tolerate(stderr().write_all(&entry.errors), why);
}
