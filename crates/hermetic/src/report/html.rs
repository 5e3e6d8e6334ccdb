//! Reports as a page for a browser: one file without links to others, with a section for each question about a run.
//!
//! Cargo runs one binary after another, each with its own husk. So the page ends with its data (`data.rs`): the next
//! husk reads them, adds its run and writes the page again. All text of tests passes through `Text`, and the page's
//! policy permits no script but its own.

mod data;
mod timeline;

use super::junit::Foreign;
use super::row::{Row, Topic, Try};
use super::tested::Verdict;
use super::xml::Escaped;
use husk_script::sys::tolerate;
use std::cmp::Reverse;
use std::fmt::{self, Arguments, Display, Formatter, Write as _};

pub use data::{Group, Run};

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");
/// The digest of `SCRIPT`, by which a browser tells it from any other script.
const SCRIPT_DIGEST: &str = "sha256-UFy2laZKA4TQtXVYK0cQXPWk3ZJ1IIcBzTP0ON7SJhY=";

/// The number of tests in a list of the most expensive ones.
const MOST_LISTED: usize = 10;
/// The number of failed tests whose output is shown without a click.
const MOST_OPEN: usize = 3;

/// The topics whose remarks have a section of their own, in the order of the page.
const LISTS: [(Topic, &str); 5] = [
    (Topic::Denied, "Denied"),
    (Topic::Limit, "Limits reached"),
    (Topic::Full, "Private directories full"),
    (Topic::Left, "Left running"),
    (Topic::Cached, "Cached"),
];

impl Run {
    /// Returns the page with this run and the other runs of the previous page. The run joins those of its group, and
    /// replaces others with its id.
    ///
    /// # Errors
    ///
    /// If `before` was not written by this module.
    pub fn into_page(self, before: &str) -> Result<String, Foreign> {
        let mut runs = if before.is_empty() { Vec::new() } else { data::read(before).ok_or(Foreign)? };
        let is_of_group = |run: &&mut Run| match (&run.group, &self.group) {
            (Some(one), Some(other)) => run.id == self.id && one.name == other.name,
            _ => false,
        };
        match runs.iter_mut().find(is_of_group) {
            Some(run) => run.join(self),
            None => {
                runs.retain(|run| run.id != self.id);
                runs.push(self);
            }
        }
        Ok(page(&runs))
    }
}

/// Returns the page of these runs.
#[must_use]
pub fn page(runs: &[Run]) -> String {
    Page { runs, text: String::new() }.finish()
}

/// Checks that a page was written by this module.
///
/// # Errors
///
/// If it was not, and is not empty.
pub fn check(page: &str) -> Result<(), Foreign> {
    if page.is_empty() { Ok(()) } else { data::read(page).map(drop).ok_or(Foreign) }
}

/// Text, displayed for an element or an attribute.
///
/// Control characters become Unicode control pictures. Marks that change the direction of text become replacement
/// characters, because they could reorder what follows.
#[derive(Clone, Copy, Debug)]
struct Text<'t>(&'t str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|char| match char {
            '\'' => f.write_str("&#39;"),
            '\r' => f.write_char('\u{240d}'),
            '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                f.write_char(char::REPLACEMENT_CHARACTER)
            }
            _ => Escaped(char.encode_utf8(&mut [0; 4])).fmt(f),
        })
    }
}

/// A duration in microseconds, displayed with a fitting unit.
struct Time(u64);

impl Display for Time {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            micros @ 0..10_000 => write!(f, "{:.1} ms", micros as f64 / 1e3),
            micros @ 10_000..1_000_000 => write!(f, "{:.0} ms", micros as f64 / 1e3),
            micros @ 1_000_000..60_000_000 => write!(f, "{:.2} s", micros as f64 / 1e6),
            micros => write!(f, "{} min {} s", micros / 60_000_000, micros / 1_000_000 % 60),
        }
    }
}

fn mebibytes(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

/// A page that is being written.
struct Page<'r> {
    runs: &'r [Run],
    text: String,
}

impl<'r> Page<'r> {
    fn finish(mut self) -> String {
        let verdict = self.verdict();
        self.add(format_args!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
             style-src 'unsafe-inline'; script-src '{SCRIPT_DIGEST}'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{verdict} – husk test</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
        ));
        self.head(&verdict);
        self.binaries();
        let runs = self.runs;
        self.add(format_args!("{}", timeline::Timeline(runs)));
        self.failed();
        self.flaky();
        for (topic, heading) in LISTS {
            self.list(topic, heading);
        }
        self.add(format_args!("<div class=\"pair\">\n"));
        self.slowest();
        self.largest();
        self.add(format_args!("</div>\n"));
        self.all();
        self.add(format_args!("</main>\n<script>{SCRIPT}</script>\n"));
        data::write(runs, &mut self.text);
        self.text
    }

    fn add(&mut self, text: Arguments<'_>) {
        tolerate(self.text.write_fmt(text), "writing to a string does not fail");
    }

    /// Returns each test with its run.
    fn tests(&self) -> impl Iterator<Item = (&'r Run, &'r Row)> + use<'r> {
        self.runs.iter().flat_map(|run| run.tests.iter().map(move |test| (run, test)))
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.tests().filter(|(_, test)| test.verdict == verdict).count()
    }

    fn not_run(&self) -> usize {
        self.runs.iter().map(|run| run.not_run).sum()
    }

    fn verdict(&self) -> String {
        let (all, failed, not_run) = (self.tests().count(), self.count(Verdict::Failed), self.not_run());
        let plural = if all + not_run == 1 { "" } else { "s" };
        match (failed, not_run) {
            (0, 0) if all == 0 => "No tests".to_owned(),
            (0, 0) if all == self.count(Verdict::Ignored) => format!("{all} test{plural} ignored"),
            (0, 0) => format!("{} test{plural} passed", all - self.count(Verdict::Ignored)),
            (0, _) => format!("{not_run} of {} test{plural} not run", all + not_run),
            _ => format!("{failed} of {} test{plural} failed", all + not_run),
        }
    }

    fn head(&mut self, verdict: &str) {
        let failed = self.count(Verdict::Failed) + self.not_run() > 0;
        let class = if failed { "failed" } else { "passed" };
        self.add(format_args!("<h1 class=\"{class}\">{verdict}</h1>\n<p class=\"counts\">"));
        let verdicts = [Verdict::Passed, Verdict::Failed, Verdict::Flaky, Verdict::Ignored];
        let counts = verdicts.map(|verdict| (self.count(verdict), verdict.word()));
        for (count, word) in counts.into_iter().chain([(self.not_run(), "not run")]) {
            if count > 0 {
                self.add(format_args!("<span>{count} {word}</span> "));
            }
        }
        let took = self.runs.iter().map(Run::micros).sum();
        self.add(format_args!("<span>{}</span>", Time(took)));
        if let Some(began) = self.runs.iter().map(|run| &run.timestamp).min() {
            self.add(format_args!(" <span>{}</span>", Text(&minute(began))));
        }
        self.add(format_args!("</p>\n"));
    }

    /// Adds a table of the binaries, if there are several.
    fn binaries(&mut self) {
        if self.runs.len() < 2 {
            return;
        }
        self.add(format_args!(
            "<section id=\"binaries\">\n<h2>Binaries</h2>\n<table>\n<thead><tr><th>Binary<th>Tests<th>Failed\
             <th>Time</thead>\n<tbody>\n"
        ));
        for run in self.runs {
            let failed = run.tests.iter().filter(|test| test.verdict == Verdict::Failed).count();
            let class = if failed > 0 { "failed" } else { "passed" };
            let (name, tests, took) = (Text(&run.id), run.tests.len(), Time(run.micros()));
            self.add(format_args!("<tr class=\"{class}\"><td>{name}<td>{tests}<td>{failed}<td>{took}\n"));
        }
        self.add(format_args!("</tbody>\n</table>\n</section>\n"));
    }

    /// Returns the name of a test as an element, with its binary if there are several.
    fn name(&self, run: &Run, test: &Row) -> String {
        let name = Text(&test.name);
        match self.runs.len() {
            1 => format!("<bdi>{name}</bdi>"),
            _ => format!("<bdi>{name}</bdi> <small>{}</small>", Text(&run.name)),
        }
    }

    fn failed(&mut self) {
        let failed: Vec<_> = self.tests().filter(|(_, test)| test.verdict == Verdict::Failed).collect();
        self.outputs("failed", "Failed", &failed, failed.len() <= MOST_OPEN);
    }

    fn flaky(&mut self) {
        let flaky: Vec<_> = self.tests().filter(|(_, test)| test.verdict == Verdict::Flaky).collect();
        self.outputs("flaky", "Flaky", &flaky, false);
    }

    /// Adds a section with the output of each failed attempt of these tests.
    fn outputs(&mut self, id: &str, heading: &str, tests: &[(&Run, &Row)], is_open: bool) {
        if tests.is_empty() {
            return;
        }
        self.add(format_args!("<section id=\"{id}\">\n<h2>{heading}</h2>\n"));
        let open = if is_open { " open" } else { "" };
        for (run, test) in tests {
            let name = self.name(run, test);
            let (took, attempts) = (Time(test.wall()), test.attempts.len());
            self.add(format_args!("<details{open}><summary>{name} <small>{took}</small></summary>\n"));
            for (attempt, number) in test.attempts.iter().zip(1..) {
                let passed = test.verdict == Verdict::Flaky && number == attempts;
                self.attempt(attempt, (attempts > 1).then_some((number, attempts)), passed);
            }
            self.add(format_args!("</details>\n"));
        }
        self.add(format_args!("</section>\n"));
    }

    fn attempt(&mut self, attempt: &Try, number: Option<(usize, usize)>, passed: bool) {
        let mut remarks: Vec<_> = number.iter().map(|(it, all)| format!("attempt {it} of {all}")).collect();
        if passed {
            remarks.push("passed".to_owned());
        }
        remarks.extend(attempt.remarks.iter().map(|(topic, text)| topic.sentence(text)));
        if !remarks.is_empty() {
            self.add(format_args!("<p>{}</p>\n", Text(&remarks.join("; "))));
        }
        match attempt.said.as_str() {
            _ if passed => {}
            "" => self.add(format_args!("<p>no output</p>\n")),
            // A browser drops a line break at the beginning of <pre>.
            said => self.add(format_args!("<pre>\n{}</pre>\n", Text(said))),
        }
    }

    /// Adds a section with the remarks on a topic, if there are any.
    fn list(&mut self, topic: Topic, heading: &str) {
        let of_topic = |test: &'r Row| {
            let remarks = test.attempts.iter().flat_map(|attempt| &attempt.remarks);
            remarks.filter(move |(its, _)| *its == topic).map(|(_, text)| text)
        };
        let found = self.tests().flat_map(|(run, test)| of_topic(test).map(move |text| (run, test, text)));
        let found: Vec<_> = found.collect();
        if found.is_empty() {
            return;
        }
        let id = topic.word();
        self.add(format_args!("<section id=\"{id}\">\n<h2>{heading}</h2>\n<table class=\"remarks\">\n"));
        for (run, test, text) in found {
            let name = self.name(run, test);
            self.add(format_args!("<tr><td>{name}<td>{}\n", Text(text)));
        }
        self.add(format_args!("</table>\n</section>\n"));
    }

    fn slowest(&mut self) {
        self.top(("slowest", "Slowest"), Row::wall, |micros| Time(micros).to_string());
    }

    fn largest(&mut self) {
        self.top(("memory", "Most memory"), Row::peak_kib, |kib| format!("{:.1} MiB", mebibytes(kib)));
    }

    /// Adds a section with the tests of which a number is highest.
    fn top(&mut self, (id, heading): (&str, &str), number: fn(&Row) -> u64, shown: impl Fn(u64) -> String) {
        let mut tests: Vec<_> = self.tests().filter(|(_, test)| number(test) > 0).collect();
        tests.sort_by_key(|(_, test)| Reverse(number(test)));
        if tests.is_empty() {
            return;
        }
        self.add(format_args!("<section id=\"{id}\">\n<h2>{heading}</h2>\n<table>\n"));
        for (run, test) in tests.into_iter().take(MOST_LISTED) {
            let (name, number) = (self.name(run, test), shown(number(test)));
            self.add(format_args!("<tr><td>{name}<td>{number}\n"));
        }
        self.add(format_args!("</table>\n</section>\n"));
    }

    fn all(&mut self) {
        self.add(format_args!(
            "<section id=\"all\">\n<h2>All tests</h2>\n<p id=\"filter\" hidden><input type=\"search\" \
             placeholder=\"Name\" aria-label=\"Name\"> <select aria-label=\"Result\"><option value=\"\">Any \
             result<option>passed<option>failed<option>flaky<option>ignored</select> <output></output></p>\n\
             <table>\n<thead><tr><th>Test<th>Result<th>Attempts<th>Start (ms)<th>Time (ms)<th>CPU (ms)\
             <th>Memory (MiB)</thead>\n<tbody>\n"
        ));
        for (run, test) in self.tests() {
            let (name, verdict) = (self.name(run, test), test.verdict.word());
            self.add(format_args!("<tr class=\"{verdict}\"><td>{name}<td>{verdict}"));
            if let Some(first) = test.attempts.first() {
                let milliseconds = |micros: u64| micros as f64 / 1e3;
                self.add(format_args!(
                    "<td>{}<td>{:.1}<td>{:.1}<td>{:.1}<td>{:.1}\n",
                    test.attempts.len(),
                    milliseconds(first.start),
                    milliseconds(test.wall()),
                    milliseconds(test.cpu()),
                    mebibytes(test.peak_kib())
                ));
            } else {
                let why = test.why.as_deref().unwrap_or_default();
                self.add(format_args!("<td class=\"why\" colspan=\"5\">{}\n", Text(why)));
            }
        }
        self.add(format_args!("</tbody>\n</table>\n</section>\n"));
    }
}

/// Returns an RFC 3339 time up to the minute.
fn minute(timestamp: &str) -> String {
    let text = timestamp.get(..16).map(|text| text.replace('T', " ") + " UTC");
    text.unwrap_or_else(|| timestamp.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{SCRIPT, SCRIPT_DIGEST, Text, Time};
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    #[test]
    fn text_cannot_end_its_element_or_reorder_others() {
        let text = Text("</script>&\"'\x1b[1m\0\r\n\u{9b}\u{202e}ä").to_string();
        assert_eq!(text, "&lt;/script&gt;&amp;&quot;&#39;␛[1m␀␍\n\u{fffd}\u{fffd}ä");
    }

    #[test]
    fn times_have_fitting_units() {
        let times = [0, 9_949, 10_000, 1_234_567, 61_000_000].map(|micros| Time(micros).to_string());
        assert_eq!(times, ["0.0 ms", "9.9 ms", "10 ms", "1.23 s", "1 min 1 s"]);
    }

    #[test]
    fn script_has_the_digest_of_the_policy() {
        let mut sum = Command::new("sha256sum");
        let mut sum = sum.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        sum.stdin.take().unwrap().write_all(SCRIPT.as_bytes()).unwrap();
        let sum = String::from_utf8(sum.wait_with_output().unwrap().stdout).unwrap();
        let digit = |place: usize| u32::from_str_radix(&sum[place..=place], 16).unwrap();
        let bits = |place: usize| (0..64).contains(&place).then(|| digit(place));
        // Three hexadecimal digits are two digits of base 64; the last ones are padded.
        let digest = (0..66).step_by(3).flat_map(|place| {
            let three = [0, 1, 2].map(|next| bits(place + next).unwrap_or_default());
            let bits = three[0] << 8 | three[1] << 4 | three[2];
            [bits >> 6, bits & 63]
        });
        let digest = digest.take(43).map(|digit| match digit as u8 {
            digit @ 0..26 => (b'A' + digit) as char,
            digit @ 26..52 => (b'a' + digit - 26) as char,
            digit @ 52..62 => (b'0' + digit - 52) as char,
            62 => '+',
            _ => '/',
        });
        assert_eq!(SCRIPT_DIGEST, format!("sha256-{}=", digest.collect::<String>()));
    }
}
