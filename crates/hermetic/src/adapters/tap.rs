//! Programs that print the Test Anything Protocol, version 13 or 14: a result for each test point.
//!
//! ```text
//!  TAP version 14
//!  1..4
//!  ok 1 - adds
//!  not ok 2 - subtracts
//!  # expected 1, got 2             belongs to the point above
//!      ok 1 - part                 a subtest: belongs to the point below
//!  ok 3 - multiplies # SKIP slow
//!  not ok 4 - divides # TODO later
//! ```
//!
//! The rules are those of prove: a plan that does not match is a failure of the program, and so is an exit code other
//! than zero.

use super::{Adapter, Outcome, Output, Part, Reading, Unit, lossy, printable, with_status};
use crate::sandbox::ended::Ended;
use std::ffi::OsString;
use std::path::Path;

/// The programs, with their arguments.
pub(crate) struct Tap {
    pub(crate) programs: Vec<Vec<OsString>>,
}

/// A longer description of a point is cut off.
const MOST_DESCRIPTION: usize = 200;

impl Adapter for Tap {
    fn format(&self) -> &'static str {
        "tap"
    }

    fn begin(&self) -> Vec<Unit> {
        let unit = |args: &Vec<OsString>| {
            let name = args.first().map(name).unwrap_or_default();
            Unit { name, args: args.clone(), splits: true, ..Unit::default() }
        };
        self.programs.iter().map(unit).collect()
    }

    fn read(&self, unit: &Unit, ended: &Ended, output: &Output) -> Reading {
        let mut document = Document::default();
        let text = lossy(&output.out);
        text.lines().for_each(|line| document.line(line.trim_end_matches('\r')));
        let mut parts = document.finish(&unit.name);
        // The text on standard error may explain the first failure.
        let errors = lossy(&output.errors);
        if let Some(failed) = parts.iter_mut().find(|part| part.outcome == Outcome::Failed) {
            failed.said += &errors;
        }
        Reading { parts: with_status(parts, unit, ended, output), ..Reading::default() }
    }
}

fn name(program: &OsString) -> String {
    let text = program.to_string_lossy();
    printable(text.strip_prefix("./").unwrap_or(&text))
}

/// A point, whose diagnostics may still follow.
struct Point {
    number: usize,
    description: String,
    outcome: Outcome,
    said: String,
}

#[derive(Default)]
struct Document {
    points: Vec<Point>,
    /// The lines of subtests, which come before their point.
    pending: String,
    /// Lines before the first point.
    before: String,
    plan: Option<usize>,
    /// The reason in a plan for no tests.
    skipped: Option<String>,
    problems: Vec<String>,
    is_bailed: bool,
}

impl Document {
    fn line(&mut self, line: &str) {
        if self.is_bailed {
            return;
        }
        if line.starts_with("    ") {
            self.pending += line;
            self.pending.push('\n');
        } else if let Some((is_ok, number, description)) = point(line) {
            self.point(line, is_ok, number, description);
        } else if let Some((count, why)) = plan(line) {
            if self.plan.replace(count).is_some() {
                self.problems.push("has more than one plan".to_owned());
            }
            self.skipped = why.filter(|_| count == 0);
        } else if let Some(why) = line.strip_prefix("Bail out!") {
            self.problems.push(format!("bailed out: {}", why.trim()));
            self.is_bailed = true;
        } else if !line.starts_with("TAP version ") && !line.starts_with("pragma ") {
            let pending = std::mem::take(&mut self.pending);
            let said = self.points.last_mut().map_or(&mut self.before, |point| &mut point.said);
            // Output that is indented without belonging to a subtest.
            said.extend([&pending, line, "\n"]);
        }
    }

    fn point(&mut self, line: &str, is_ok: bool, number: Option<usize>, description: &str) {
        let expected = self.points.last().map_or(1, |last| last.number.saturating_add(1));
        let number = number.unwrap_or(expected);
        if number != expected {
            self.problems.push(format!("test point {number} comes where {expected} was expected"));
        }
        let (description, directive) = directive(description);
        let why = |word: &str, why: String| Some(if why.is_empty() { word.to_owned() } else { why });
        let outcome = match (is_ok, directive) {
            (true, Some(Directive::Skip(reason))) => Outcome::Skipped(why("skipped", reason)),
            (false, Some(Directive::Todo(reason))) => {
                Outcome::Skipped(why("", reason).map(|why| format!("TODO {why}").trim_end().to_owned()))
            }
            (true, _) => Outcome::Passed,
            (false, _) => Outcome::Failed,
        };
        let said = std::mem::take(&mut self.pending) + line + "\n";
        self.points.push(Point { number, description, outcome, said });
    }

    /// Returns the result of each point, and of the program if there is something wrong with the whole.
    fn finish(mut self, program: &str) -> Vec<Part> {
        let count = self.points.len();
        match self.plan {
            _ if self.is_bailed => {}
            None => self.problems.push("has no plan".to_owned()),
            Some(plan) if plan != count => {
                self.problems.push(format!("planned {plan} test points, but has {count}"));
            }
            Some(_) => {}
        }
        if let Some(last) = self.points.last_mut() {
            last.said += &self.pending;
        }
        let part = |point: Point| {
            let name = format!("{program} {} {}", point.number, point.description);
            Part::new(name.trim_end().to_owned(), point.outcome, point.said)
        };
        let mut parts: Vec<_> = self.points.into_iter().map(part).collect();
        if !self.problems.is_empty() {
            let said = format!("{}{}\n", self.before, self.problems.join("\n"));
            parts.push(Part::new(program.to_owned(), Outcome::Failed, said));
        } else if parts.is_empty() {
            let why = self.skipped.unwrap_or_else(|| "has no test points".to_owned());
            parts.push(Part::new(program.to_owned(), Outcome::Skipped(Some(why)), self.before));
        }
        parts
    }
}

/// Reads a test point: whether it is ok, its number, and the rest of the line.
fn point(line: &str) -> Option<(bool, Option<usize>, &str)> {
    let (is_ok, rest) = match line.strip_prefix("not ") {
        Some(rest) => (false, rest.trim_start()),
        None => (true, line),
    };
    let rest = rest.strip_prefix("ok")?;
    if !rest.is_empty() && !rest.starts_with([' ', '\t', '#']) {
        return None;
    }
    let rest = rest.trim_start();
    let digits = rest.len() - rest.trim_start_matches(|char: char| char.is_ascii_digit()).len();
    let (number, after) = rest.split_at(digits);
    let is_number = after.is_empty() || after.starts_with([' ', '\t', '#']);
    let (number, rest) = match number.parse() {
        Ok(number) if is_number => (Some(number), after.trim_start()),
        _ => (None, rest),
    };
    Some((is_ok, number, rest))
}

/// Reads a plan: the number of test points, and the reason if there are none.
fn plan(line: &str) -> Option<(usize, Option<String>)> {
    let rest = line.strip_prefix("1..")?;
    let (count, comment) = rest.split_once('#').unwrap_or((rest, ""));
    let comment = comment.trim();
    let why = if skips(comment) { comment.split_once(' ').map_or("", |(_, why)| why) } else { comment };
    Some((count.trim().parse().ok()?, Some(why.trim().to_owned()).filter(|why| !why.is_empty())))
}

enum Directive {
    Skip(String),
    Todo(String),
}

fn skips(comment: &str) -> bool {
    comment.get(..4).is_some_and(|word| word.eq_ignore_ascii_case("skip"))
}

/// Splits a description from its directive, and shortens it to what fits on a line.
fn directive(text: &str) -> (String, Option<Directive>) {
    let escaped = |place: usize| text.get(..place).is_some_and(|before| before.ends_with('\\'));
    let place = text.match_indices('#').map(|(place, _)| place).find(|place| {
        let comment = text.get(place + 1..).unwrap_or_default().trim_start();
        let is_todo = comment.get(..4).is_some_and(|word| word.eq_ignore_ascii_case("todo"));
        !escaped(*place) && (skips(comment) || is_todo)
    });
    let (description, comment) = text.split_at(place.unwrap_or(text.len()));
    let comment = comment.trim_start_matches('#').trim();
    let why = comment.split_once([' ', ':']).map_or("", |(_, why)| why).trim().to_owned();
    let directive = match comment.is_empty() {
        true => None,
        false if skips(comment) => Some(Directive::Skip(printable(&why))),
        false => Some(Directive::Todo(printable(&why))),
    };
    let description = description.replace("\\#", "#");
    let description: String = printable(description.trim()).chars().take(MOST_DESCRIPTION).collect();
    (description, directive)
}

/// Returns the path of a program in the working directory, which a name without a slash would not find.
pub(crate) fn here(program: &OsString) -> OsString {
    match Path::new(program).components().count() {
        1 if Path::new(program).is_file() => Path::new(".").join(program).into_os_string(),
        _ => program.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Adapter as _, Document, Outcome, Tap};
    use crate::adapters::{Output, Part, Unit};
    use crate::sandbox::ended::exited;

    fn parts(lines: &str) -> Vec<Part> {
        let mut document = Document::default();
        lines.lines().for_each(|line| document.line(line));
        document.finish("a.t")
    }

    fn skipped(why: &str) -> Outcome {
        Outcome::Skipped(Some(why.to_owned()))
    }

    #[test]
    fn points_are_read_as_by_prove() {
        for (line, name, outcome) in [
            ("ok", "a.t 1", Outcome::Passed),
            ("ok 1", "a.t 1", Outcome::Passed),
            ("ok 1 - adds", "a.t 1 - adds", Outcome::Passed),
            ("ok 1 adds \\# skip", "a.t 1 adds # skip", Outcome::Passed),
            ("ok 2nd thing", "a.t 1 2nd thing", Outcome::Passed),
            ("ok 1 # of many", "a.t 1 # of many", Outcome::Passed),
            ("not ok 1 - adds", "a.t 1 - adds", Outcome::Failed),
            ("ok 1 # SKIP", "a.t 1", skipped("skipped")),
            ("ok 1 - b # skipped: no disk", "a.t 1 - b", skipped("no disk")),
            ("not ok 1 - b # SKIP no disk", "a.t 1 - b", Outcome::Failed),
            ("not ok 1 # todo", "a.t 1", skipped("TODO")),
            ("not ok 1 # TODO later", "a.t 1", skipped("TODO later")),
            ("ok 1 # TODO later", "a.t 1", Outcome::Passed),
            ("ok 1 \0\u{1b}[31m", "a.t 1 \u{fffd}\u{fffd}[31m", Outcome::Passed),
        ] {
            let found = parts(&format!("1..1\n{line}"));
            let found: Vec<_> = found.iter().map(|part| (part.name.as_str(), part.outcome.clone())).collect();
            assert_eq!(found, [(name, outcome)], "{line:?}");
        }
    }

    #[test]
    fn other_lines_belong_to_a_point() {
        let lines = "TAP version 14\npragma +strict\n1..2\nokay\nok\n  ---\n  at: 1\n  ...\n    ok 1 - part\n    1..1\nok 2\nnot okay\n";
        let said: Vec<_> = parts(lines).into_iter().map(|part| part.said).collect();
        assert_eq!(said, ["ok\n  ---\n  at: 1\n  ...\n", "    ok 1 - part\n    1..1\nok 2\nnot okay\n"]);
    }

    #[test]
    fn document_without_points_is_skipped_or_wrong() {
        let outcome = |lines: &str| parts(lines).pop().map(|part| part.outcome);
        assert_eq!(outcome("1..0 # SKIP not here"), Some(skipped("not here")));
        assert_eq!(outcome("1..0"), Some(skipped("has no test points")));
        assert_eq!(outcome(""), Some(Outcome::Failed));
        assert_eq!(outcome("1..99999999999999999999"), Some(Outcome::Failed));
        assert_eq!(outcome("1..1\nok 18446744073709551615\nok"), Some(Outcome::Failed));
    }

    #[test]
    fn only_standard_output_is_read() {
        let tap = Tap { programs: vec![vec!["./a.t".into()]] };
        let unit = tap.begin().pop().unwrap();
        let output = |out: &[u8]| Output { out: out.to_vec(), errors: b"1..9\nnot ok\n".to_vec() };
        let read = |unit: &Unit, code, out: &[u8]| tap.read(unit, &exited(code), &output(out)).parts;
        assert_eq!(unit.name, "a.t");
        let passed = read(&unit, 0, b"1..1\r\nok 1 \xff\r\n");
        assert_eq!((passed.len(), passed[0].name.as_str()), (1, "a.t 1 \u{fffd}"));
        let failed = read(&unit, 0, b"1..1\nnot ok\n");
        assert_eq!(failed[0].said, "not ok\n1..9\nnot ok\n");
        let status = read(&unit, 1, b"1..1\nok\n");
        assert_eq!((status[1].name.as_str(), &status[1].outcome), ("a.t", &Outcome::Status));
        // The failed point explains the exit code.
        assert_eq!(read(&unit, 1, b"1..1\nnot ok\n").len(), 1);
    }
}
