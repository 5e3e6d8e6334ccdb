//! `--timings`: shows how long each step took, as a waterfall in the terminal or an SVG.
//!
//! Each row is a span: its start, its duration, a bar, the process, and the action. A container has a hundred steps, most
//! of which take next to no time. Therefore neighbours that were short and concern the same field share a row, except in
//! the complete list.

mod svg;

use super::escape;
use crate::session::absolute;
use anyhow::{Context as _, Result};
use husk_runtime::{Lane, Span, Timings};
use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};

/// The option of verbs that can show their times.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct TimingsOption {
    /// Report how long steps took, on standard error or in a text or SVG file
    #[arg(long, value_name = "FILE.svg", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    timings: Option<PathBuf>,
}

/// The times of a verb, and the place where they are shown.
pub(crate) struct Report {
    pub(crate) timings: Timings,
    /// A file as the user named it, and its absolute path. `None` if the times are not wanted.
    file: Option<(PathBuf, PathBuf)>,
    /// The event that ends the times.
    end: &'static str,
}

impl TimingsOption {
    /// Returns the report of a verb whose times end with this event.
    pub(crate) fn report(self, end: &'static str) -> Result<Report> {
        let timings = if self.timings.is_some() { Timings::wanted() } else { Timings::default() };
        let named = |file: PathBuf| absolute(&file).map(|path| (file, path));
        Ok(Report { timings, file: self.timings.map(named).transpose()?, end })
    }
}

impl Report {
    /// Shows the times so far. After a failure, those of husk's own phases are known.
    pub(crate) fn show(&self) -> Result<()> {
        let Some((file, path)) = &self.file else { return Ok(()) };
        let waterfall = Waterfall::new(self.timings.spans(), self.end);
        if file == Path::new("-") {
            super::tell(&escape::text(&waterfall.folded().to_string()));
            return Ok(());
        }
        let is_picture = path.extension().is_some_and(|extension| extension == "svg");
        let text = if is_picture {
            waterfall.folded().svg()
        } else {
            escape::text(&waterfall.to_string()).into_owned()
        };
        std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
    }
}

/// The spans of one container, on a time axis that starts with the first span.
pub(crate) struct Waterfall {
    rows: Vec<Row>,
    first: u64,
    last: u64,
    /// The event that ends the times.
    end: &'static str,
}

/// One span, or several short ones.
#[derive(Clone)]
struct Row {
    lane: Lane,
    /// The field that the steps come from, without an index or a path.
    field: String,
    text: String,
    begin: u64,
    /// `None` if the end is not known.
    end: Option<u64>,
    /// The number of spans.
    count: usize,
}

impl Row {
    fn new(span: Span) -> Self {
        let field = span.origin.split(['[', ' ']).next().unwrap_or_default().to_owned();
        let text = match span.lane {
            Lane::Husk => format!("husk: {}", span.text),
            Lane::Child => format!("{}: {}", span.origin, span.text),
        };
        Self { lane: span.lane, field, text, begin: span.begin, end: span.end, count: 1 }
    }

    /// Returns the duration, or 0 if the end is not known.
    fn took(&self) -> u64 {
        self.end.unwrap_or(self.begin) - self.begin
    }

    /// Adds a neighbour to the row.
    fn fold(&mut self, next: &Self, is_same_field: bool) {
        self.count += next.count;
        self.end = next.end;
        if !is_same_field {
            self.field = "...".to_owned();
        }
        self.text = format!("{}: {} short steps", self.field, self.count);
    }
}

impl Waterfall {
    /// Sorts the spans by their start. For the child's spans, this is the order of the plan.
    pub(crate) fn new(mut spans: Vec<Span>, end: &'static str) -> Self {
        spans.sort_by_key(|span| span.begin);
        let first = spans.iter().map(|span| span.begin).min().unwrap_or_default();
        let ends = spans.iter().map(|span| span.end.unwrap_or(span.begin));
        let last = ends.max().unwrap_or_default().max(first + 1);
        Self { rows: spans.into_iter().map(Row::new).collect(), first, last, end }
    }

    /// Returns the same with at most some 60 rows.
    pub(crate) fn folded(&self) -> Self {
        const MOST: usize = 60;
        let mut rows = self.folded_if(100, |a, b| a.field == b.field);
        // Steps that take a larger part are fewer, and so are the rows of others between them.
        for part in [20, 10, 5, 2, 1] {
            if rows.len() > MOST {
                rows = self.folded_if(part, |_, _| true);
            }
        }
        Self { rows, ..*self }
    }

    /// Folds neighbours of the child's that each took less than a part of the whole.
    fn folded_if(&self, part: u64, fits: impl Fn(&Row, &Row) -> bool) -> Vec<Row> {
        let most = (self.last - self.first) / part;
        let is_short = |row: &Row| row.lane == Lane::Child && row.end.is_some() && row.took() < most;
        let mut rows: Vec<Row> = Vec::new();
        // The rows of husk itself are in between, because both run at the same time.
        let mut open = None;
        for row in &self.rows {
            let before = open.and_then(|at: usize| rows.get_mut(at));
            if let Some(before) = before.filter(|before| is_short(row) && fits(before, row)) {
                before.fold(row, before.field == row.field);
                continue;
            }
            if row.lane == Lane::Child {
                open = is_short(row).then_some(rows.len());
            }
            rows.push(row.clone());
        }
        rows
    }

    /// Returns the spans that took longest, longest first.
    fn longest(&self) -> Vec<&Row> {
        const COUNT: usize = 5;
        let mut rows: Vec<_> = self.rows.iter().filter(|row| row.count == 1 && row.end.is_some()).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.took()));
        rows.truncate(COUNT);
        rows
    }

    /// Returns a moment's position on the axis, from 0 to 1.
    fn place(&self, moment: u64) -> f64 {
        (moment - self.first) as f64 / (self.last - self.first) as f64
    }
}

impl Display for Waterfall {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        const BAR: usize = 32;
        writeln!(f, "{:>9} {:>9}", "at µs", "took µs")?;
        for row in &self.rows {
            let place = |moment| (self.place(moment) * BAR as f64) as usize;
            let begin = place(row.begin).min(BAR - 1);
            let end = row.end.map_or(begin, place).clamp(begin, BAR);
            let bar = match row.end {
                Some(_) => "#".repeat((end - begin).max(1)),
                None => String::new(),
            };
            let took = row.end.map_or_else(|| "?".to_owned(), |_| Micros(row.took()).to_string());
            let at = Micros(row.begin - self.first).to_string();
            let bar = format!("{}{bar}", " ".repeat(begin));
            writeln!(f, "{at:>9} {took:>9}  {bar:BAR$}  {}", row.text)?;
        }
        writeln!(
            f,
            "{:>9}            from the start of husk to {}",
            Micros(self.last - self.first).to_string(),
            self.end
        )?;
        writeln!(f, "\nthe longest:")?;
        for row in self.longest() {
            writeln!(f, "{:>19}  {}", Micros(row.took()).to_string(), row.text)?;
        }
        Ok(())
    }
}

/// A duration, displayed in microseconds with one decimal.
struct Micros(u64);

impl Display for Micros {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}", self.0 / 1000, self.0 % 1000 / 100))
    }
}

#[cfg(test)]
mod tests {
    use super::Waterfall;
    use husk_runtime::{Lane, Span};

    fn span(lane: Lane, origin: &str, text: &str, begin: u64, end: Option<u64>) -> Span {
        Span { lane, origin: origin.to_owned(), text: text.to_owned(), begin, end }
    }

    #[test]
    fn spans_are_listed_in_the_order_of_their_start() {
        let waterfall = Waterfall::new(
            vec![
                span(Lane::Husk, "", "clone", 1_000_000, Some(1_400_000)),
                span(Lane::Husk, "", "wait", 1_400_000, Some(1_800_000)),
                span(Lane::Child, "process.args[0]", "find <&>", 1_200_000, Some(1_800_000)),
                span(Lane::Child, "process.args[0]", "exec", 1_800_000, None),
            ],
            "the program",
        );
        let wanted = "    at µs   took µs
      0.0     400.0  ################                  husk: clone
    200.0     600.0          ########################  process.args[0]: find <&>
    400.0     400.0                  ################  husk: wait
    800.0         ?                                    process.args[0]: exec
    800.0            from the start of husk to the program

the longest:
              600.0  process.args[0]: find <&>
              400.0  husk: clone
              400.0  husk: wait
";
        assert_eq!(waterfall.to_string(), wanted);
        let svg = waterfall.svg();
        assert_eq!(svg.matches("<rect class=\"bar\"").count(), 4);
        assert!(svg.contains("find &lt;&amp;&gt;"));
    }

    #[test]
    fn short_neighbours_of_one_field_share_a_row() {
        let child = |origin, begin, end| span(Lane::Child, origin, "step", begin, Some(end));
        let waterfall = Waterfall::new(
            vec![
                child("mounts[0] /proc", 0, 10),
                child("mounts[1] /dev", 10, 20),
                span(Lane::Husk, "", "wait", 15, Some(10_000)),
                child("mounts[2] /sys", 20, 30),
                child("mounts[3] /tmp", 30, 5_000),
                child("mounts[4] /run", 5_000, 5_010),
                child("hostname", 5_010, 5_020),
            ],
            "the program",
        );
        let texts = |waterfall: &Waterfall| -> Vec<String> {
            waterfall.rows.iter().map(|row| row.text.clone()).collect()
        };
        let wanted = [
            "mounts: 3 short steps",
            "husk: wait",
            "mounts[3] /tmp: step",
            "mounts[4] /run: step",
            "hostname: step",
        ];
        assert_eq!(texts(&waterfall.folded()), wanted);
        assert_eq!(texts(&waterfall).len(), 7);
    }

    #[test]
    fn any_number_of_steps_fits_into_60_rows() {
        let fields = ["a", "b", "c"].map(str::to_owned);
        let spans = (0..1000_u64).map(|at| Span {
            lane: Lane::Child,
            origin: fields[at as usize % 3].clone(),
            text: "step".to_owned(),
            begin: at * 10,
            // Each tenth step takes long.
            end: Some(at * 10 + if at % 10 == 0 { 600 } else { 10 }),
        });
        let folded = Waterfall::new(spans.collect(), "the program").folded();
        assert!(folded.rows.len() <= 60, "{}", folded.rows.len());
        assert_eq!(folded.rows.iter().map(|row| row.count).sum::<usize>(), 1000);
    }
}
