//! Prints the results of a binary in libtest's format, with a progress line on a terminal.

use super::progress::Progress;
use super::tested::{Counts, Screen, Tested, Verdict};
use crate::explain::Explanation;
use crate::libtest::arguments::TestArguments;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// libtest begins a new line after this many letters.
const MOST_LETTERS: usize = 87;

#[derive(Clone, Copy)]
enum Color {
    Red = 31,
    Green = 32,
    Yellow = 33,
}

pub(crate) struct Results<'o> {
    out: &'o mut dyn Write,
    is_quiet: bool,
    is_colored: bool,
    shows_output: bool,
    progress: Option<Progress>,
    counts: Counts,
    filtered: usize,
    /// The number of letters on the current line.
    letters: usize,
    flaky: Vec<String>,
    /// Names and output of failed tests.
    failed: Vec<(String, String)>,
    succeeded: Vec<(String, String)>,
}

impl<'o> Results<'o> {
    /// Prints the header for `all` tests, beside which `filtered` were not selected.
    pub(crate) fn begin(
        (all, filtered): (usize, usize),
        request: &TestArguments,
        screen: Option<Screen>,
        out: &'o mut dyn Write,
    ) -> io::Result<Self> {
        let mut results = Self::new(request, screen, out);
        results.filtered = filtered;
        results.found(all, "test", all)?;
        Ok(results)
    }

    /// Returns results without a header, for tests that must be listed first.
    pub(crate) fn new(request: &TestArguments, screen: Option<Screen>, out: &'o mut dyn Write) -> Self {
        // Output of tests would be mixed with the progress line, and letters show enough progress.
        let screen_is_ours = !request.is_uncaptured && !request.is_quiet;
        Self {
            out,
            is_quiet: request.is_quiet,
            is_colored: request.color.unwrap_or(screen.is_some()),
            shows_output: request.shows_output,
            progress: screen.filter(|_| screen_is_ours).map(Progress::begin),
            counts: Counts::default(),
            filtered: 0,
            letters: 0,
            flaky: Vec::new(),
            failed: Vec::new(),
            succeeded: Vec::new(),
        }
    }

    /// Prints the header: how many programs or tests will run, in which `all` tests are expected.
    pub(crate) fn found(&mut self, count: usize, noun: &str, all: usize) -> io::Result<()> {
        self.counts.all += all;
        self.clear()?;
        let plural = if count == 1 { "" } else { "s" };
        writeln!(self.out, "\nrunning {count} {noun}{plural}")
    }

    /// Corrects the number of tests after a program has run others than `expected`.
    pub(crate) fn count(&mut self, expected: usize, found: usize) {
        self.counts.all = (self.counts.all + found).saturating_sub(expected);
    }

    /// Writes output of a test that is still running.
    pub(crate) fn hear(&mut self, said: &[u8]) -> io::Result<()> {
        if said.is_empty() {
            return Ok(());
        }
        self.out.write_all(said)?;
        self.out.flush()
    }

    /// Reports that a test takes long.
    pub(crate) fn is_slow(&mut self, name: &str, seconds: u64) -> io::Result<()> {
        self.clear()?;
        writeln!(self.out, "test {name} has been running for over {seconds} seconds")?;
        self.out.flush()
    }

    /// Reports how a test ended. The beginning of its line may have been written.
    pub(crate) fn tell(&mut self, tested: &Tested, is_begun: bool) -> io::Result<()> {
        let (word, letter, color) = match tested.verdict() {
            Verdict::Passed | Verdict::Flaky => ("ok", ".", Color::Green),
            Verdict::Failed => ("FAILED", "F", Color::Red),
            Verdict::Ignored => ("ignored", "i", Color::Yellow),
        };
        let mut remarks = tested.attempts.last().map(crate::Attempt::remarks).unwrap_or_default();
        let mut said = tested.attempts.last().map(|last| last.said.clone()).unwrap_or_default();
        let explanation = tested.explained.iter().flat_map(Explanation::lines);
        said.extend(remarks.iter().cloned().chain(explanation).map(|line| format!("husk: {line}\n")));
        if tested.is_flaky_when_observed() {
            remarks.push("flaky: passed when it was run again to explain its failure".to_owned());
            self.flaky.push(tested.name.clone());
        }
        let name = || tested.name.clone();
        match tested.verdict() {
            Verdict::Ignored => self.counts.ignored += 1,
            Verdict::Failed => {
                self.counts.failed += 1;
                self.failed.push((name(), said));
            }
            verdict @ (Verdict::Passed | Verdict::Flaky) => {
                self.counts.passed += 1;
                let is_cached = tested.attempts.last().is_some_and(|last| last.ended.is_cached());
                self.counts.cached += usize::from(is_cached);
                if self.shows_output {
                    self.succeeded.push((name(), said));
                }
                if verdict == Verdict::Flaky {
                    let attempts = tested.attempts.len();
                    remarks.push(format!("flaky: passed at attempt {attempts}"));
                    self.flaky.push(name());
                }
            }
        }
        if self.is_quiet {
            return self.tell_quietly(&tested.name, letter, color);
        }
        self.clear()?;
        if !is_begun {
            write!(self.out, "{}", line(&tested.name, tested.mode.as_deref()))?;
        }
        self.paint(
            &[word, &tested.ignored.as_ref().map(|why| format!(", {why}")).unwrap_or_default()].concat(),
            color,
        )?;
        let remarks = if remarks.is_empty() { String::new() } else { format!(" ({})", remarks.join("; ")) };
        writeln!(self.out, "{remarks}")?;
        self.out.flush()
    }

    /// Prints a letter for a test, or a line if it failed.
    fn tell_quietly(&mut self, name: &str, letter: &str, color: Color) -> io::Result<()> {
        let ended = self.counts.ended();
        if letter == "F" {
            if self.letters != 0 {
                writeln!(self.out, " {}/{}", ended - 1, self.counts.all)?;
                self.letters = 0;
            }
            write!(self.out, "{name} --- ")?;
            self.paint("FAILED", color)?;
            writeln!(self.out)?;
        } else {
            self.paint(letter, color)?;
            self.letters += 1;
            if self.letters == MOST_LETTERS {
                writeln!(self.out, " {ended}/{}", self.counts.all)?;
                self.letters = 0;
            }
        }
        self.out.flush()
    }

    /// Updates the progress line if it is due. Takes names and start times of running tests. Returns the time until the
    /// next update.
    pub(crate) fn progress<'n>(
        &mut self,
        running: impl Iterator<Item = (&'n str, Instant)>,
    ) -> io::Result<Option<Duration>> {
        let Some(progress) = &mut self.progress else { return Ok(None) };
        let next = progress.draw(self.counts, running, self.out)?;
        Ok(Some(next))
    }

    fn clear(&mut self) -> io::Result<()> {
        self.progress.as_mut().map_or(Ok(()), |progress| progress.clear(self.out))
    }

    /// Prints the summary, including how many tests were not begun. Returns whether all tests succeeded.
    pub(crate) fn finish(mut self, took: Duration, not_begun: usize) -> io::Result<bool> {
        self.clear()?;
        let (succeeded, failed) = (std::mem::take(&mut self.succeeded), std::mem::take(&mut self.failed));
        if self.shows_output {
            self.list("successes", succeeded)?;
        }
        if !failed.is_empty() {
            self.list("failures", failed)?;
        }
        if !self.flaky.is_empty() {
            let names = std::mem::take(&mut self.flaky);
            writeln!(self.out, "\nflaky:")?;
            names.iter().try_for_each(|name| writeln!(self.out, "    {name}"))?;
        }
        let success = self.counts.failed == 0 && not_begun == 0;
        write!(self.out, "\ntest result: ")?;
        match success {
            true => self.paint("ok", Color::Green)?,
            false => self.paint("FAILED", Color::Red)?,
        }
        let Counts { passed, failed, ignored, cached, .. } = self.counts;
        let (filtered, seconds) = (self.filtered, took.as_secs_f64());
        writeln!(
            self.out,
            ". {passed} passed; {failed} failed; {ignored} ignored; 0 measured; {filtered} filtered out; \
             finished in {seconds:.2}s\n"
        )?;
        if cached > 0 {
            writeln!(self.out, "husk: {cached} of {passed} passed tests were cached, and not run\n")?;
        }
        if not_begun > 0 {
            writeln!(self.out, "husk: {not_begun} tests were not run\n")?;
        }
        self.out.flush()?;
        Ok(success)
    }

    fn list(&mut self, what: &str, mut tests: Vec<(String, String)>) -> io::Result<()> {
        writeln!(self.out, "\n{what}:")?;
        if tests.iter().any(|(_, said)| !said.is_empty()) {
            writeln!(self.out)?;
        }
        for (name, said) in tests.iter().filter(|(_, said)| !said.is_empty()) {
            writeln!(self.out, "---- {name} stdout ----\n{said}")?;
        }
        writeln!(self.out, "\n{what}:")?;
        tests.sort();
        tests.iter().try_for_each(|(name, _)| writeln!(self.out, "    {name}"))
    }

    fn paint(&mut self, word: &str, color: Color) -> io::Result<()> {
        match self.is_colored {
            true => write!(self.out, "\x1b[{}m{word}\x1b[0m", color as u8),
            false => write!(self.out, "{word}"),
        }
    }
}

/// Returns the beginning of a test's line.
fn line(name: &str, mode: Option<&str>) -> String {
    let mode = mode.map(|mode| format!(" - {mode}")).unwrap_or_default();
    format!("test {name}{mode} ... ")
}

#[cfg(test)]
mod tests {
    use super::Results;
    use crate::libtest::arguments::TestArguments;
    use crate::sandbox::ended::exited;
    use crate::{Attempt, Ended, Reached, Tested};
    use std::time::Duration;

    fn attempt(code: i32, reached: Option<Reached>) -> Attempt {
        let ended = Ended { wall: Duration::ZERO, reached, ..exited(code) };
        Attempt { start: Duration::ZERO, ended, reported: None, said: "said\n".to_owned() }
    }

    fn tested(name: &str, attempts: Vec<Attempt>) -> Tested {
        Tested { name: name.to_owned(), mode: None, attempts, ignored: None, explained: None, unit: None }
    }

    #[test]
    fn results_are_formatted_as_by_libtest() {
        let mut out = Vec::new();
        let mut results = Results::begin((4, 7), &TestArguments::default(), None, &mut out).unwrap();
        let late = attempt(101, Some(Reached::Cpu(1)));
        for tested in [
            Tested { mode: Some("should panic".to_owned()), ..tested("a", vec![attempt(0, None)]) },
            Tested { ignored: Some("why".to_owned()), ..tested("b", Vec::new()) },
            tested("c", vec![late]),
            tested("d", vec![attempt(101, None), attempt(0, None)]),
        ] {
            results.tell(&tested, false).unwrap();
        }
        assert!(!results.finish(Duration::from_millis(1230), 0).unwrap());
        let wanted = "\nrunning 4 tests\ntest a - should panic ... ok\ntest b ... ignored, why
test c ... FAILED (killed: processor limit of 1 s reached)
test d ... ok (flaky: passed at attempt 2)\n\nfailures:\n
---- c stdout ----\nsaid\nhusk: killed: processor limit of 1 s reached\n\n\nfailures:\n    c\n\nflaky:\n    d
\ntest result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 7 filtered out; finished in 1.23s\n\n";
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }
}
