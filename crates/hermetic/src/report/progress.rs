//! The progress line at the bottom of a terminal. It is drawn a few times a second, whatever the number of tests.

use super::tested::{Counts, Screen};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Delay before the line first appears.
const FIRST: Duration = Duration::from_millis(500);
/// Delay before the line is redrawn, with and without other output meanwhile.
const SOON: Duration = Duration::from_millis(100);
const LATER: Duration = Duration::from_secs(1);

pub(crate) struct Progress {
    screen: Screen,
    is_drawn: bool,
    next: Instant,
}

impl Progress {
    pub(crate) fn begin(screen: Screen) -> Self {
        Self { screen, is_drawn: false, next: Instant::now() + FIRST }
    }

    /// Draws the line if it is due. Returns the time until it is due again.
    pub(crate) fn draw<'n>(
        &mut self,
        counts: Counts,
        running: impl Iterator<Item = (&'n str, Instant)>,
        out: &mut dyn Write,
    ) -> io::Result<Duration> {
        let now = Instant::now();
        if now >= self.next {
            let running = running.map(|(name, since)| (name, now.duration_since(since)));
            let line = line(counts, running, self.screen.columns);
            write!(out, "\r\x1b[K{line}")?;
            out.flush()?;
            self.is_drawn = true;
            self.next = now + LATER;
        }
        Ok(self.next.duration_since(now))
    }

    /// Erases the line, so that other output can be written.
    pub(crate) fn clear(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.is_drawn {
            self.is_drawn = false;
            self.next = Instant::now() + SOON;
            write!(out, "\r\x1b[K")?;
        }
        Ok(())
    }
}

/// Formats the counts and the test that has run longest. The line is shorter than the terminal, so that it never wraps.
fn line<'n>(counts: Counts, running: impl Iterator<Item = (&'n str, Duration)>, columns: usize) -> String {
    let running: Vec<_> = running.collect();
    let failed = if counts.failed == 0 { String::new() } else { format!(", {} failed", counts.failed) };
    let slowest = running.iter().max_by_key(|(_, since)| *since);
    let slowest =
        slowest.map(|(name, since)| format!(", {name} for {} s", since.as_secs())).unwrap_or_default();
    let line =
        format!("{} of {} tests{failed}; {} running{slowest}", counts.ended(), counts.all, running.len());
    line.chars().take(columns.saturating_sub(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::{Counts, line};
    use std::time::Duration;

    #[test]
    fn slowest_test_is_named_if_it_fits() {
        let counts = Counts { all: 9, passed: 3, failed: 1, ..Counts::default() };
        let running = || [("a", Duration::from_secs(2)), ("b", Duration::from_secs(7))].into_iter();
        assert_eq!(line(counts, running(), 80), "4 of 9 tests, 1 failed; 2 running, b for 7 s");
        assert_eq!(line(counts, running(), 11), "4 of 9 tes");
    }
}
