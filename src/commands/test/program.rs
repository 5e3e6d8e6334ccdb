//! A program that is one test, or a shell in its sandbox.

use super::report::{Named, Report};
use super::run::Run;
use super::{cache, fetch, keep};
use crate::exit::Exit;
use crate::session::Session;
use anyhow::{Context as _, Result, anyhow};
use husk_hermetic::{Attempt, BinaryKind, Ended, Error, Explanation, Net, Profile};
use rustix::io::Errno;
use std::os::unix::process::CommandExt as _;
use std::process;
use std::time::Instant;

impl Run<'_> {
    /// Runs the program, opens a shell in its sandbox or prints its plan.
    pub(super) fn program(mut self) -> Result<Exit> {
        if self.test.rare.shell {
            if husk_hermetic::binary_kind(&self.profile) != BinaryKind::Other {
                husk_hermetic::show(&mut self.profile);
            }
            let program = husk_hermetic::open_shell(&mut self.profile)?;
            self.session.log.note(&format!("shell in the sandbox; run: {program}"));
        }
        if self.test.rare.plan {
            return self.print_plan(&husk_hermetic::listing(&self.profile)?);
        }
        if self.test.rare.shell {
            return self.run_program(None);
        }
        let report = self.report(Named::command)?;
        self.run_listed(report)
    }

    /// Runs the program as one test, unless another shard does.
    pub(super) fn run_listed(self, mut report: Report) -> Result<Exit> {
        report.list_program();
        if let Some((part, parts)) = self.test.tests.shard.filter(|(part, _)| *part != 1) {
            self.session.log.note(&format!(
                "not run: the program is one test, and so in shard 1/{parts}, not {part}/{parts}"
            ));
            report.finish(0, Vec::new())?;
            return Ok(Exit::Success);
        }
        self.run_program(Some(report))
    }

    /// Runs the program and reports how it ended.
    pub(super) fn run_program(mut self, report: Option<Report>) -> Result<Exit> {
        let (profile, log) = (&self.profile, self.session.log);
        let keep = self.test.rare.keep.clone().map(|directory| keep::open(directory, profile)).transpose()?;
        // cargo and nextest repeat a test binary themselves.
        let retries = if self.test.runner || self.test.rare.shell { 0 } else { self.test.tests.retries };
        let found = self.attempts(retries);
        cache::finish(self.cache.as_mut(), self.session);
        let (attempts, ended) = match found {
            Ok(found) => found,
            Err(error @ Error::Program { .. }) => {
                let Error::Program { reason, .. } = &error else { return Err(error.into()) };
                let exit =
                    if reason.errno() == Some(Errno::NOENT) { Exit::NotFound } else { Exit::NoProgram };
                log.failed(&anyhow!(error));
                return Ok(exit);
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(keep) = &keep {
            log.note(&keep.keep(&ended)?);
        }
        let profile = &self.profile;
        let is_due = self.test.rare.explain().is_due(&ended);
        let explanation = is_due.then(|| husk_hermetic::explain(profile, &ended, self.how));
        if let Some(mut report) = report {
            report.add_program(attempts, explanation.clone());
            report.finish(0, Vec::new())?;
        }
        if let Some(command) = missing_dependencies(profile, &ended) {
            log.warning(&format!(
                "dependencies may be missing, and the sandbox has no network; run '{command}' first, or use --net host"
            ));
        }
        Ok(tell(&ended, explanation.as_ref(), self.session))
    }

    /// Runs the program until it succeeds, or until it has been run again this often. Returns all attempts, and the last
    /// one's end.
    fn attempts(&mut self, retries: usize) -> Result<(Vec<Attempt>, Ended), Error> {
        let (profile, how, log) = (&self.profile, self.how, self.session.log);
        let began = Instant::now();
        let mut attempts = Vec::new();
        loop {
            let start = began.elapsed();
            let ended = match self.cache.as_mut().filter(|_| attempts.is_empty()) {
                // One that passes at a later attempt is flaky, and is not remembered.
                Some(cache) => cache.run(profile, how)?,
                None => husk_hermetic::run(profile, how)?,
            };
            ended.recalled.iter().for_each(|recalled| log.note(recalled));
            let is_over = ended.status.success() || ended.was_signalled || attempts.len() == retries;
            // The caller has seen the program's output.
            let said = if ended.status.success() { String::new() } else { ended.service_output() };
            attempts.push(Attempt { start, ended: ended.clone(), reported: None, said });
            let count = attempts.len();
            if !is_over {
                let why = ended.reached.map_or(ended.status.to_string(), |reached| reached.to_string());
                log.note(&format!("attempt {count} failed ({why}); running it again"));
                continue;
            }
            if ended.status.success() && count > 1 {
                log.note(&format!("flaky: passed at attempt {count}"));
            }
            return Ok((attempts, ended));
        }
    }
}

/// Returns the command that downloads what a failed program may lack.
fn missing_dependencies(profile: &Profile, ended: &Ended) -> Option<&'static str> {
    let may_lack = !ended.status.success() && profile.net != Net::Host && profile.image.is_none();
    may_lack.then(|| fetch::missing(&profile.args)).flatten()
}

/// Replaces this process with the program, without a sandbox.
pub(super) fn as_it_is(profile: &Profile) -> Result<Exit> {
    let (program, arguments) = profile.args.split_first().context("no program given")?;
    let error = process::Command::new(program).args(arguments).exec();
    Err(error).with_context(|| program.display().to_string())
}

/// Prints warnings and the explanation, and returns the exit code.
fn tell(ended: &Ended, explanation: Option<&Explanation>, session: &Session<'_>) -> Exit {
    for loss in &ended.losses {
        session.log.warning(loss);
    }
    for note in ended.service_notes() {
        session.log.warning(&note);
    }
    if !ended.status.success() {
        ended.service_output().lines().for_each(|line| session.log.note(&line));
    }
    for process in &ended.remaining {
        session.log.warning(&format!(
            "killed a process that was left running: {} (pid {})",
            process.command, process.pid
        ));
    }
    if let Some(explanation) = explanation {
        if explanation.is_flaky(ended) {
            session.log.note(&"flaky: the program passed when it was run again to explain its failure");
        }
        explanation.lines().iter().for_each(|line| session.log.note(line));
    }
    if let Some(full) = ended.full.filter(|_| !explanation.is_some_and(Explanation::names_disk)) {
        session.log.note(&format!("the private directories are full: {full} (--disk)"));
    }
    if let Some(reached) = &ended.reached {
        session.log.failed(&anyhow!("killed: {reached}"));
        return Exit::Limit;
    }
    husk_hermetic::end_alike(ended);
    Exit::Program(ended.status)
}
