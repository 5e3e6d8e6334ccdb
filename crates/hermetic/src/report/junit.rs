//! Reports in JUnit's XML as Maven's Surefire and Jenkins read it: one file with a suite for each binary. Only this
//! module writes and reads the file, one line for each end of an element.

use super::row::{Row, Topic, Try};
use super::tested::{Tested, Verdict};
use super::xml::Escaped;
use husk_script::sys::tolerate;
use std::fmt::{self, Display, Formatter, Write as _};
use std::time::Duration;

/// The tests of a binary.
#[derive(Clone, Debug, Default)]
pub struct Suite {
    /// The binary's name.
    pub name: String,
    /// Unique identifier: a suite replaces an earlier one with the same id.
    pub id: String,
    /// The start time, as in RFC 3339.
    pub timestamp: String,
    cases: String,
    tests: usize,
    failures: usize,
    skipped: usize,
    time: Duration,
}

const BEGIN: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"husk\">\n";
const END: &str = "</testsuites>\n";
const SUITE_BEGIN: &str = "<testsuite ";
const SUITE_END: &str = "</testsuite>\n";

impl Suite {
    /// Returns a suite without tests.
    #[must_use]
    pub fn new(name: String, id: String, timestamp: String) -> Self {
        Self { name, id, timestamp, ..Self::default() }
    }

    pub fn add(&mut self, tested: &Tested) {
        self.add_row(&Row::of(tested));
    }

    pub fn add_row(&mut self, row: &Row) {
        self.tests += 1;
        self.failures += usize::from(row.verdict == Verdict::Failed);
        self.skipped += usize::from(row.verdict == Verdict::Ignored);
        self.time = self.time.saturating_add(Duration::from_micros(row.wall()));
        let text = case(&self.name, row);
        self.cases.push_str(&text);
    }

    /// Returns the document with this suite and the other suites of the previous document.
    ///
    /// # Errors
    ///
    /// If `before` was not written by this module.
    pub fn into_document(&self, before: &str) -> Result<String, Foreign> {
        let before = if before.is_empty() { "" } else { inner(before).ok_or(Foreign)? };
        let id = format!(" id=\"{}\" ", Escaped(&self.id));
        // Escaped text contains no '<', so each match begins a suite.
        let others = before.split_inclusive(SUITE_END);
        let others = others.filter(|suite| !suite.lines().next().is_some_and(|line| line.contains(&id)));
        Ok([BEGIN, &others.collect::<String>(), &self.to_string(), END].concat())
    }
}

/// Returns the document of these suites.
#[must_use]
pub fn document(suites: &[Suite]) -> String {
    let suites: String = suites.iter().map(Suite::to_string).collect();
    [BEGIN, &suites, END].concat()
}

/// Checks that a document was written by this module.
///
/// # Errors
///
/// If it was not, and is not empty.
pub fn check(document: &str) -> Result<(), Foreign> {
    if document.is_empty() { Ok(()) } else { inner(document).map(drop).ok_or(Foreign) }
}

/// Returns the suites of a document.
fn inner(document: &str) -> Option<&str> {
    let suites = document.strip_prefix(BEGIN)?.strip_suffix(END)?;
    (suites.is_empty() || suites.starts_with(SUITE_BEGIN) && suites.ends_with(SUITE_END)).then_some(suites)
}

/// A document that husk did not write.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("already exists and is not a report by husk")]
pub struct Foreign;

impl Display for Suite {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { name, id, timestamp, cases, tests, failures, skipped, time } = self;
        let (name, id, timestamp) = (Escaped(name), Escaped(id), Escaped(timestamp));
        write!(
            f,
            "{SUITE_BEGIN}name=\"{name}\" id=\"{id}\" timestamp=\"{timestamp}\" tests=\"{tests}\" \
             failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\" time=\"{:.3}\">\n{cases}{SUITE_END}",
            time.as_secs_f64()
        )
    }
}

fn case(suite: &str, row: &Row) -> String {
    let time = Duration::from_micros(row.wall()).as_secs_f64();
    let (name, suite) = (Escaped(&row.name), Escaped(suite));
    let mut text = format!("<testcase name=\"{name}\" classname=\"{suite}\" time=\"{time:.3}\">\n");
    let mut add = |element: String| {
        text.push_str(&element);
        text.push('\n');
    };
    let (last, earlier) = match row.attempts.split_last() {
        Some((last, earlier)) => (Some(last), earlier),
        None => (None, [].as_slice()),
    };
    if row.verdict == Verdict::Passed && last.is_some_and(Try::is_cached) {
        add("<properties><property name=\"husk.cached\" value=\"true\"/></properties>".to_owned());
    }
    match (row.verdict, last) {
        (Verdict::Failed, Some(last)) => add(failure("failure", last)),
        (Verdict::Ignored, _) => {
            let why = row.why.as_deref().map(|why| format!(" message=\"{}\"", Escaped(why)));
            add(format!("<skipped{}/>", why.unwrap_or_default()));
        }
        _ => {}
    }
    let earlier_is = if row.verdict == Verdict::Failed { "rerunFailure" } else { "flakyFailure" };
    earlier.iter().for_each(|attempt| add(failure(earlier_is, attempt)));
    if let Some(last) = last {
        if row.passed_attempt().is_some() && !last.said.is_empty() {
            add(format!("<system-out>{}</system-out>", Escaped(&last.said)));
        }
        add(format!("<system-err>{}</system-err>", Escaped(&used(last))));
    }
    text.push_str("</testcase>\n");
    text
}

/// Returns the element for a failed attempt.
fn failure(element: &str, attempt: &Try) -> String {
    let has = |topics: &[Topic]| attempt.remarks.iter().any(|(topic, _)| topics.contains(topic));
    let remarks = attempt.remarks.iter().filter(|(topic, _)| *topic != Topic::Denied);
    let remarks: Vec<_> = remarks.map(|(topic, text)| topic.sentence(text)).collect();
    // A test usually prints the reason for its failure last.
    let (kind, message) = match (has(&[Topic::Limit, Topic::Full]), remarks.is_empty()) {
        (true, _) => ("limit", remarks.join("; ")),
        (false, false) => ("end", remarks.join("; ")),
        (false, true) => ("failure", "failed".to_owned()),
    };
    format!(
        "<{element} type=\"{kind}\" message=\"{}\">{}</{element}>",
        Escaped(&message),
        Escaped(&attempt.said)
    )
}

/// Describes the resources of an attempt, the processes that it left running and its denials. JUnit has no elements for
/// them.
fn used(attempt: &Try) -> String {
    let mut text = format!(
        "husk: {:.3} s of CPU time, {} KiB of memory at peak\n",
        attempt.cpu as f64 / 1e6,
        attempt.peak_kib
    );
    for (topic, remark) in &attempt.remarks {
        let remark = topic.sentence(remark);
        tolerate(writeln!(text, "husk: {remark}"), "writing to a string does not fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Foreign, Suite};
    use crate::sandbox::ended::exited;
    use crate::{Attempt, Tested};
    use std::time::Duration;

    fn attempt(code: i32, said: &str) -> Attempt {
        let ended = exited(code);
        Attempt { start: Duration::ZERO, ended, reported: None, said: said.to_owned() }
    }

    fn suite(id: &str, attempts: Vec<Attempt>) -> Suite {
        let mut suite = Suite { name: "web".to_owned(), id: id.to_owned(), ..Suite::default() };
        suite.add(&Tested {
            name: "a::b".to_owned(),
            mode: None,
            attempts,
            ignored: None,
            explained: None,
            unit: None,
        });
        suite
    }

    #[test]
    fn flaky_test_lists_its_failures() {
        let text = suite("1", vec![attempt(101, "no <"), attempt(0, "")]).into_document("").unwrap();
        let wanted = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<testsuites name=\"husk\">
<testsuite name=\"web\" id=\"1\" timestamp=\"\" tests=\"1\" failures=\"0\" errors=\"0\" skipped=\"0\" time=\"0.010\">
<testcase name=\"a::b\" classname=\"web\" time=\"0.010\">
<flakyFailure type=\"failure\" message=\"failed\">no &lt;</flakyFailure>
<system-err>husk: 0.000 s of CPU time, 0 KiB of memory at peak
</system-err>
</testcase>
</testsuite>
</testsuites>
";
        assert_eq!(text, wanted);
    }

    #[test]
    fn suite_replaces_the_earlier_one_with_its_id() {
        let one = suite("1", vec![attempt(101, "</testsuite>\n id=\"2\" ")]).into_document("").unwrap();
        let two = suite("2", vec![attempt(0, "")]).into_document(&one).unwrap();
        assert_eq!(two.matches("<testsuite ").count(), 2);
        let again = suite("1", vec![attempt(0, "better")]).into_document(&two).unwrap();
        assert_eq!(again.matches("<testsuite ").count(), 2);
        assert!(!again.contains("<failure"), "{again}");
        assert_eq!(suite("1", Vec::new()).into_document("<mine/>").unwrap_err(), Foreign);
    }
}
