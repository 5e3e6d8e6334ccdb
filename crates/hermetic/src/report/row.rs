//! A test of a report, as data: what reports show of it, without what only a running sandbox knows. Reports of other
//! machines are read into it too.

use super::tested::{Attempt, Tested, Verdict};
use std::time::Duration;

/// A test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub name: String,
    pub verdict: Verdict,
    /// The reason for being ignored.
    pub why: Option<String>,
    pub attempts: Vec<Try>,
}

/// One run of a test. Times are in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Try {
    /// The time since the run of the binary began.
    pub start: u64,
    pub wall: u64,
    pub cpu: u64,
    pub peak_kib: u64,
    /// The output.
    pub said: String,
    pub remarks: Vec<(Topic, String)>,
}

/// The topic of a remark on an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// A signal or an unusual exit code.
    End,
    /// A limit that ended the test.
    Limit,
    /// The limit of the private directories, which the test filled.
    Full,
    /// A process that was left running.
    Left,
    /// A denial by the sandbox, with the option that lifts it.
    Denied,
    /// An earlier run that was remembered.
    Cached,
}

impl Topic {
    pub const ALL: [Self; 6] = [Self::End, Self::Limit, Self::Full, Self::Left, Self::Denied, Self::Cached];

    /// Returns the topic as one word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::End => "end",
            Self::Limit => "limit",
            Self::Full => "full",
            Self::Left => "left",
            Self::Denied => "denied",
            Self::Cached => "cached",
        }
    }

    /// Returns a remark for a reader who does not see its topic.
    #[must_use]
    pub fn sentence(self, text: &str) -> String {
        match self {
            Self::End | Self::Full | Self::Denied | Self::Cached => text.to_owned(),
            Self::Limit => format!("killed: {text}"),
            Self::Left => format!("killed a process that was left running: {text}"),
        }
    }
}

impl Row {
    /// Returns the row of a test.
    #[must_use]
    pub fn of(tested: &Tested) -> Self {
        let mut attempts: Vec<_> = tested.attempts.iter().map(Try::of).collect();
        // Only the last attempt is explained.
        if let Some((last, explained)) = attempts.last_mut().zip(tested.explained.as_ref()) {
            last.remarks.extend(explained.all_lines().into_iter().map(|line| (Topic::Denied, line)));
        }
        Self { name: tested.name.clone(), verdict: tested.verdict(), why: tested.ignored.clone(), attempts }
    }

    /// Returns the index of the attempt that succeeded.
    pub(crate) fn passed_attempt(&self) -> Option<usize> {
        match self.verdict {
            Verdict::Passed | Verdict::Flaky => self.attempts.len().checked_sub(1),
            Verdict::Failed | Verdict::Ignored => None,
        }
    }

    /// Adds the attempts of another run. The one that began last decides.
    pub(super) fn try_again(&mut self, other: Self) {
        let last = |row: &Self| row.attempts.iter().map(|attempt| attempt.start).max();
        let (before, verdict) = match last(&other) >= last(self) {
            true => (self.verdict, other.verdict),
            false => (other.verdict, self.verdict),
        };
        let is_flaky = before == Verdict::Failed && verdict == Verdict::Passed;
        self.verdict = if is_flaky { Verdict::Flaky } else { verdict };
        self.attempts.extend(other.attempts);
        self.attempts.sort_by_key(|attempt| attempt.start);
    }

    /// Returns the total time of all attempts.
    #[must_use]
    pub fn wall(&self) -> u64 {
        self.attempts.iter().fold(0, |sum, attempt| sum.saturating_add(attempt.wall))
    }

    pub(crate) fn cpu(&self) -> u64 {
        self.attempts.iter().fold(0, |sum, attempt| sum.saturating_add(attempt.cpu))
    }

    pub(crate) fn peak_kib(&self) -> u64 {
        self.attempts.iter().map(|attempt| attempt.peak_kib).max().unwrap_or_default()
    }
}

impl Try {
    fn of(attempt: &Attempt) -> Self {
        let ended = &attempt.ended;
        let mut remarks: Vec<_> =
            ended.reached.iter().map(|reached| (Topic::Limit, reached.to_string())).collect();
        remarks.extend(ended.recalled.iter().map(|recalled| (Topic::Cached, recalled.to_string())));
        remarks.extend(ended.full.iter().map(|full| (Topic::Full, full.to_string())));
        remarks.extend(ended.remaining.iter().map(|process| (Topic::Left, process.command.clone())));
        remarks.extend(attempt.unusual_end().map(|status| (Topic::End, status)));
        Self {
            start: micros(attempt.start),
            wall: micros(ended.wall),
            cpu: ended.usage.cpu_micros,
            peak_kib: ended.usage.peak_kib,
            said: attempt.said.clone(),
            remarks,
        }
    }

    /// Whether the result of an earlier run was used.
    pub(crate) fn is_cached(&self) -> bool {
        self.remarks.iter().any(|(topic, _)| *topic == Topic::Cached)
    }

    pub(crate) fn end(&self) -> u64 {
        self.start.saturating_add(self.wall)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
