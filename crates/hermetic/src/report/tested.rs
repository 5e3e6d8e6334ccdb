//! How the tests of a binary ended, and the terminal that hears of it.

use crate::sandbox::ended::Ended;
use std::time::Duration;

/// A test, and all attempts at it.
#[derive(Clone, Debug)]
pub struct Tested {
    /// Its name.
    pub name: String,
    /// What libtest says of its kind: that it should panic.
    pub mode: Option<String>,
    /// Each attempt, the last of which counts. None if it was not to be run.
    pub attempts: Vec<Attempt>,
    /// Why it was not to be run, if it says so.
    pub ignored: Option<String>,
}

/// One attempt at a test.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// How it ended.
    pub ended: Ended,
    /// What it said.
    pub said: String,
}

/// What became of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It succeeded.
    Passed,
    /// It succeeded when it had failed before.
    Flaky,
    /// It did not succeed.
    Failed,
    /// It was not to be run.
    Ignored,
}

impl Tested {
    /// What became of it.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match self.attempts.last() {
            None => Verdict::Ignored,
            Some(last) if !last.passed() => Verdict::Failed,
            Some(_) if self.attempts.len() > 1 => Verdict::Flaky,
            Some(_) => Verdict::Passed,
        }
    }

    /// How long all attempts took.
    #[must_use]
    pub fn wall(&self) -> Duration {
        self.attempts.iter().map(|attempt| attempt.ended.wall).sum()
    }
}

impl Attempt {
    /// Whether it succeeded.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.ended.status.success()
    }

    /// What is to be said of it beside whether it succeeded: the limit or the signal that ended it, and what it left
    /// running.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let Ended { status, reached, remaining, .. } = &self.ended;
        let mut remarks: Vec<_> = reached.iter().map(|reached| format!("killed: {reached}")).collect();
        let left = remaining.iter();
        remarks.extend(left.map(|process| format!("left running, and ended: {}", process.command)));
        // That a test failed is libtest's to say; how a process ended else is ours.
        if reached.is_none() && !matches!(status.code(), Some(0 | 101)) {
            remarks.push(status.to_string());
        }
        remarks
    }
}

impl Verdict {
    /// In one word.
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

/// The terminal that results are written to.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// How wide it is.
    pub columns: usize,
}

/// How many tests of a binary there are, and how many of them ended in which way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) all: usize,
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) ignored: usize,
}

impl Counts {
    pub(crate) fn ended(&self) -> usize {
        self.passed + self.failed + self.ignored
    }
}
