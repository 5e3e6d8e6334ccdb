//! The timeline of a page, in SVG: a bar for each attempt, in as many rows as attempts ran at a time. Binaries follow
//! each other, as cargo runs them. All distances across are percentages, so that the drawing fits any width.

use super::data::Run;
use super::{Text, Time};
use crate::report::row::{Row, Try};
use std::fmt::{self, Display, Formatter};

pub(super) struct Timeline<'r>(pub(super) &'r [Run]);

/// Microseconds in the width of the timeline.
#[derive(Clone, Copy)]
struct Scale(u64);

/// Bars are at least this wide, in percent.
const NARROWEST: f64 = 0.1;
/// The height of the labels above and below the rows, in pixels.
const LABEL: usize = 18;
/// The space between rows, in pixels.
const GAP: usize = 2;
/// The number of labels below the rows is at most this.
const MOST_TICKS: u64 = 8;

/// An attempt in the timeline.
struct Bar<'r> {
    test: &'r Row,
    attempt: &'r Try,
    /// The attempt's place among the test's attempts, from 1.
    number: usize,
    /// The start on the whole timeline.
    start: u64,
}

impl Display for Timeline<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let rows = rows(self.0);
        let bars: usize = rows.iter().map(Vec::len).sum();
        if bars == 0 {
            return Ok(());
        }
        let all = self.0.iter().map(Run::micros).sum();
        let scale = Scale(all);
        let thickness = match rows.len() {
            0..=16 => 16,
            17..=32 => 10,
            _ => 6,
        };
        let top = if self.0.len() > 1 { LABEL } else { 0 };
        let bottom = top + rows.len() * (thickness + GAP);
        let plural = if bars == 1 { "" } else { "s" };
        write!(
            f,
            "<section id=\"timeline\">\n<h2>Timeline</h2>\n<p>{bars} run{plural}, at most {} at a time, {}; a bar \
             includes the removal of its sandbox</p>\n<svg role=\"img\" aria-label=\"Start and duration of each \
             test\" width=\"100%\" height=\"{}\">\n",
            rows.len(),
            Time(all),
            bottom + LABEL
        )?;
        ticks(scale, (top, bottom), f)?;
        if top > 0 {
            names(self.0, scale, bottom, f)?;
        }
        for (row, place) in rows.iter().zip(0..) {
            let down = top + place * (thickness + GAP);
            writeln!(f, "<g class=\"slot\" transform=\"translate(0 {down})\">")?;
            row.iter().try_for_each(|bar| bar.draw(scale, thickness, f))?;
            writeln!(f, "</g>")?;
        }
        let key = ["passed", "failed", "flaky"].map(|word| format!("<span class=\"{word}\">{word}</span>"));
        writeln!(f, "</svg>\n<p class=\"key\">{}</p>\n</section>", key.join(" "))
    }
}

impl Bar<'_> {
    fn draw(&self, scale: Scale, thickness: usize, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { test, attempt, number, start } = self;
        let verdict = test.verdict.word();
        let (left, width) = (scale.percent(*start), scale.percent(attempt.wall).max(NARROWEST));
        let (name, took) = (Text(&test.name), Time(attempt.wall));
        write!(
            f,
            "<rect class=\"{verdict}\" x=\"{left:.2}%\" width=\"{width:.2}%\" height=\"{thickness}\"><title>{name}"
        )?;
        match test.attempts.len() {
            1 => {}
            all => write!(f, ", attempt {number} of {all}")?,
        }
        writeln!(f, ", {took}</title></rect>")
    }
}

impl Scale {
    fn percent(self, micros: u64) -> f64 {
        micros as f64 / self.0.max(1) as f64 * 100.0
    }

    /// Returns the time between two labels: 1, 2 or 5 times a power of ten.
    fn step(self) -> u64 {
        let powers = (0..15).map(|power| 10_u64.pow(power));
        let mut steps = powers.flat_map(|power| [power, 2 * power, 5 * power]);
        steps.find(|step| self.0 / step < MOST_TICKS).unwrap_or(self.0.max(1))
    }
}

/// Assigns each attempt the first row that is free when it starts.
fn rows(runs: &[Run]) -> Vec<Vec<Bar<'_>>> {
    let mut rows: Vec<Vec<Bar<'_>>> = Vec::new();
    let mut before = 0;
    for run in runs {
        let mut bars = Vec::new();
        for test in &run.tests {
            let attempts = test.attempts.iter().zip(1..);
            bars.extend(attempts.map(|(attempt, number)| Bar {
                test,
                attempt,
                number,
                start: before + attempt.start,
            }));
        }
        bars.sort_by_key(|bar| bar.start);
        for bar in bars {
            let is_free = |row: &&mut Vec<Bar<'_>>| {
                row.last().is_none_or(|last| last.start.saturating_add(last.attempt.wall) <= bar.start)
            };
            match rows.iter_mut().find(is_free) {
                Some(row) => row.push(bar),
                None => rows.push(vec![bar]),
            }
        }
        before += run.micros();
    }
    rows
}

/// Draws a line and a label for each step of time.
fn ticks(scale: Scale, (top, bottom): (usize, usize), f: &mut Formatter<'_>) -> fmt::Result {
    let step = scale.step();
    let unit = match step {
        0..1_000 => (1e3, "ms", if step < 100 { 2 } else { 1 }),
        1_000..1_000_000 => (1e3, "ms", 0),
        _ => (1e6, "s", 0),
    };
    let (factor, unit, digits) = unit;
    for place in (0..scale.0).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
        let left = scale.percent(place);
        writeln!(f, "<line x1=\"{left:.2}%\" x2=\"{left:.2}%\" y1=\"{top}\" y2=\"{}\"/>", bottom + LABEL)?;
        // A label further right could be cut off.
        if left < 94.0 {
            let (down, time) = (bottom + LABEL - 5, place as f64 / factor);
            writeln!(f, "<text x=\"{left:.2}%\" dx=\"4\" y=\"{down}\">{time:.digits$} {unit}</text>")?;
        }
    }
    Ok(())
}

/// Draws the boundaries of the binaries, and the names that fit.
fn names(runs: &[Run], scale: Scale, bottom: usize, f: &mut Formatter<'_>) -> fmt::Result {
    /// How many letters fit into one percent of a page of ordinary width.
    const LETTERS: f64 = 1.3;
    let mut before = 0;
    for run in runs {
        let (left, width) = (scale.percent(before), scale.percent(run.micros()));
        writeln!(f, "<line class=\"binary\" x1=\"{left:.2}%\" x2=\"{left:.2}%\" y1=\"0\" y2=\"{bottom}\"/>")?;
        if width * LETTERS >= run.name.chars().count() as f64 {
            writeln!(f, "<text x=\"{left:.2}%\" dx=\"4\" y=\"{}\">{}</text>", LABEL - 6, Text(&run.name))?;
        }
        before += run.micros();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Scale, rows};
    use crate::Verdict;
    use crate::report::html::data::Run;
    use crate::report::row::{Row, Try};

    fn run(attempts: &[(u64, u64)]) -> Run {
        let attempts = attempts.iter();
        let attempts = attempts.map(|&(start, wall)| Try {
            start,
            wall,
            cpu: 0,
            peak_kib: 0,
            said: String::new(),
            remarks: Vec::new(),
        });
        let row = |attempt| Row {
            name: String::new(),
            verdict: Verdict::Passed,
            why: None,
            attempts: vec![attempt],
        };
        Run { tests: attempts.map(row).collect(), ..Run::default() }
    }

    #[test]
    fn attempts_at_the_same_time_have_different_rows() {
        // The third starts when the second has ended. The second binary starts when the first has ended.
        let runs = [run(&[(0, 10), (2, 3), (5, 9), (6, 1)]), run(&[(0, 1)])];
        let starts = |row: &Vec<super::Bar<'_>>| row.iter().map(|bar| bar.start).collect::<Vec<_>>();
        let rows: Vec<_> = rows(&runs).iter().map(starts).collect();
        assert_eq!(rows, [vec![0, 14], vec![2, 5], vec![6]]);
    }

    #[test]
    fn labels_are_at_round_times() {
        for (all, step) in [(0, 1), (7, 1), (8, 2), (79, 10), (80, 20), (1_234_567, 200_000)] {
            assert_eq!(Scale(all).step(), step, "{all}");
        }
    }
}
