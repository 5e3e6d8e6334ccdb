//! Results of the tests of a binary, and the terminal on which they are reported.

use crate::explain::Explanation;
use crate::sandbox::ended::Ended;
use std::time::Duration;

/// A test and all attempts to run it.
#[derive(Clone, Debug)]
pub struct Tested {
    pub name: String,
    /// libtest's note on the kind of test, such as "should panic".
    pub mode: Option<String>,
    /// The attempts, of which the last one counts. Empty if the test was ignored.
    pub attempts: Vec<Attempt>,
    /// The reason that the test gives for being ignored.
    pub ignored: Option<String>,
    /// The reasons for its failure that lie in the sandbox, if it was explained.
    pub explained: Option<Explanation>,
    /// The file, package or program that it ran in, if that has another name.
    pub unit: Option<String>,
}

/// One run of a test.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The time from the start of the first test until the start of this attempt.
    pub start: Duration,
    pub ended: Ended,
    /// Whether the test succeeded, if its program said so. Otherwise its exit status does.
    pub reported: Option<bool>,
    /// The test's output.
    pub said: String,
}

/// The result of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The only attempt succeeded.
    Passed,
    /// The last attempt succeeded after earlier ones had failed.
    Flaky,
    /// The last attempt failed.
    Failed,
    /// The test was not to be run.
    Ignored,
}

impl Tested {
    /// Returns the result of the last attempt.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match self.attempts.last() {
            None => Verdict::Ignored,
            Some(last) if !last.passed() => Verdict::Failed,
            Some(_) if self.attempts.len() > 1 => Verdict::Flaky,
            Some(_) => Verdict::Passed,
        }
    }

    /// Returns whether it failed, and succeeded when it was observed. The verdict stays that of the first run.
    #[must_use]
    pub fn is_flaky_when_observed(&self) -> bool {
        let has_failed = self.attempts.last().is_some_and(|last| !last.passed());
        has_failed && self.explained.as_ref().is_some_and(|explained| explained.passed == Some(true))
    }

    /// Returns the total time of all attempts.
    #[must_use]
    pub fn wall(&self) -> Duration {
        self.attempts.iter().map(|attempt| attempt.ended.wall).sum()
    }
}

impl Attempt {
    /// Returns whether the attempt succeeded.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.reported.unwrap_or(self.ended.status.success())
    }

    /// Returns remarks beyond success or failure: a remembered run, the limit or signal that ended the test, that of the disk, and the
    /// processes that it left running.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let Ended { reached, full, remaining, recalled, .. } = &self.ended;
        let mut remarks: Vec<_> = recalled.iter().map(ToString::to_string).collect();
        remarks.extend(reached.iter().map(|reached| format!("killed: {reached}")));
        remarks.extend(full.iter().map(ToString::to_string));
        let left = remaining.iter();
        remarks.extend(
            left.map(|process| format!("killed a process that was left running: {}", process.command)),
        );
        remarks.extend(self.unusual_end());
        remarks
    }

    /// Returns how the attempt ended, if neither libtest's exit code nor a limit explains it.
    pub(crate) fn unusual_end(&self) -> Option<String> {
        let Ended { status, reached, .. } = &self.ended;
        // libtest reports exit codes 0 and 101 itself, and other tools each have their own.
        let is_usual = match self.reported {
            Some(_) => true,
            None => matches!(status.code(), Some(0 | 101)),
        };
        let is_unusual = reached.is_none() && !is_usual;
        is_unusual.then(|| status.to_string())
    }
}

impl Verdict {
    pub const ALL: [Self; 4] = [Self::Passed, Self::Flaky, Self::Failed, Self::Ignored];

    /// Returns the verdict as one word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Flaky => "flaky",
            Self::Failed => "failed",
            Self::Ignored => "ignored",
        }
    }
}

/// The terminal on which results are reported.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// The terminal's width.
    pub columns: usize,
}

/// The number of tests of a binary, and how many of them ended in each way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) all: usize,
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) ignored: usize,
    /// How many of those that passed were not run.
    pub(crate) cached: usize,
}

impl Counts {
    pub(crate) fn ended(&self) -> usize {
        self.passed + self.failed + self.ignored
    }
}
