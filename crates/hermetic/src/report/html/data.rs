//! The data of a page, in lines at its end. They are text to a browser; husk reads them to add a run to the page.
//!
//! ```text
//! run      NAME  ID  TIMESTAMP  NUMBER OF TESTS NOT RUN  [GROUP  BEGIN OF THE GROUP]
//! test     NAME  VERDICT  REASON FOR BEING IGNORED
//! attempt  START  WALL  CPU  PEAK  OUTPUT
//! remark   TOPIC  TEXT
//! ```
//!
//! A tab separates fields. Text contains neither tabs nor line breaks nor `<`, so it can end neither its field nor the
//! element around it.

use crate::report::tested::{Attempt, Tested, Verdict};
use husk_script::sys::tolerate;
use std::fmt::{self, Display, Formatter, Write as _};
use std::time::Duration;

/// The tests of a binary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The binary's name.
    pub name: String,
    /// Unique identifier: a run replaces an earlier one with the same id.
    pub id: String,
    /// The start time, as in RFC 3339.
    pub timestamp: String,
    /// The number of tests that were not begun.
    pub not_run: usize,
    /// The group that it belongs to, if other processes run more tests of the binary.
    pub group: Option<Group>,
    pub(super) tests: Vec<Row>,
}

/// Processes that each run some tests of a binary, such as those of one nextest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The name that the processes share.
    pub name: String,
    /// When the first of them began, in microseconds since 1970.
    pub began: u64,
}

/// A test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) verdict: Verdict,
    /// The reason for being ignored.
    pub(super) why: Option<String>,
    pub(super) attempts: Vec<Try>,
}

/// One run of a test. Times are in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Try {
    /// The time since the run of the binary began.
    pub(super) start: u64,
    pub(super) wall: u64,
    pub(super) cpu: u64,
    pub(super) peak_kib: u64,
    /// The output, if the attempt failed.
    pub(super) said: String,
    pub(super) remarks: Vec<(Topic, String)>,
}

/// The topic of a remark on an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topic {
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
    const ALL: [Self; 6] = [Self::End, Self::Limit, Self::Full, Self::Left, Self::Denied, Self::Cached];

    /// Returns the topic as one word.
    pub(super) fn word(self) -> &'static str {
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
    pub(super) fn sentence(self, text: &str) -> String {
        match self {
            Self::End | Self::Full | Self::Denied | Self::Cached => text.to_owned(),
            Self::Limit => format!("killed: {text}"),
            Self::Left => format!("killed a process that was left running: {text}"),
        }
    }
}

const VERDICTS: [Verdict; 4] = [Verdict::Passed, Verdict::Flaky, Verdict::Failed, Verdict::Ignored];
const BEGIN: &str = "<script type=\"text/plain\" id=\"husk-runs\">\n";
const END: &str = "</script>\n</body>\n</html>\n";

impl Run {
    /// Returns a run without tests.
    #[must_use]
    pub fn new(name: String, id: String, timestamp: String) -> Self {
        Self { name, id, timestamp, ..Self::default() }
    }

    pub fn add(&mut self, tested: &Tested) {
        let mut attempts: Vec<_> = tested.attempts.iter().map(Try::of).collect();
        // Only the last attempt is explained.
        if let Some((last, explained)) = attempts.last_mut().zip(tested.explained.as_ref()) {
            last.remarks.extend(explained.all_lines().into_iter().map(|line| (Topic::Denied, line)));
        }
        self.tests.push(Row {
            name: tested.name.clone(),
            verdict: tested.verdict(),
            why: tested.ignored.clone(),
            attempts,
        });
    }

    /// Adds a run of the same group. A test that both have was run again.
    pub(super) fn join(&mut self, mut other: Self) {
        let began = |run: &Self| run.group.as_ref().map_or(0, |group| group.began);
        if began(&other) < began(self) {
            std::mem::swap(self, &mut other);
        }
        let later = began(&other).saturating_sub(began(self));
        self.not_run += other.not_run;
        for mut test in other.tests {
            test.attempts.iter_mut().for_each(|attempt| attempt.start = attempt.start.saturating_add(later));
            match self.tests.iter_mut().find(|known| known.name == test.name) {
                Some(known) => known.try_again(test),
                None => self.tests.push(test),
            }
        }
    }

    /// Returns the time from the beginning to the end of the last test.
    pub(super) fn micros(&self) -> u64 {
        let attempts = self.tests.iter().flat_map(|test| &test.attempts);
        attempts.map(Try::end).max().unwrap_or_default()
    }
}

impl Row {
    /// Adds the attempts of another run. The one that began last decides.
    fn try_again(&mut self, other: Self) {
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
    pub(super) fn wall(&self) -> u64 {
        self.attempts.iter().fold(0, |sum, attempt| sum.saturating_add(attempt.wall))
    }

    pub(super) fn cpu(&self) -> u64 {
        self.attempts.iter().fold(0, |sum, attempt| sum.saturating_add(attempt.cpu))
    }

    pub(super) fn peak_kib(&self) -> u64 {
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
            said: if attempt.passed() { String::new() } else { shortened(&attempt.said) },
            remarks,
        }
    }

    pub(super) fn end(&self) -> u64 {
        self.start.saturating_add(self.wall)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Longer output is shortened to about this many bytes.
const MOST_SAID: usize = 64 << 10;

/// Returns the beginning and the end of a long output. A test usually prints the reason for its failure last.
fn shortened(said: &str) -> String {
    if said.len() <= MOST_SAID {
        return said.to_owned();
    }
    let first = said.floor_char_boundary(MOST_SAID / 4);
    let last = said.ceil_char_boundary(said.len() - MOST_SAID / 4 * 3);
    let (first, last) = (said.split_at(first).0, said.split_at(last).1);
    let left_out = said.len() - first.len() - last.len();
    format!("{first}\n[husk: {left_out} bytes are left out]\n{last}")
}

/// Text in a field.
struct Field<'t>(&'t str);

impl Display for Field<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|char| match char {
            '<' => f.write_str("\\u{3c}"),
            // Not escape_debug: it escapes the quotes that Rust's output is full of.
            '"' | '\'' => f.write_char(char),
            _ => write!(f, "{}", char.escape_debug()),
        })
    }
}

/// Reads what [`Field`] displays.
fn text(field: &str) -> Option<String> {
    let mut text = String::with_capacity(field.len());
    let mut rest = field;
    while let Some((plain, escape)) = rest.split_once('\\') {
        text.push_str(plain);
        let mut chars = escape.chars();
        let char = match chars.next()? {
            '\\' => '\\',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            '0' => '\0',
            'u' => {
                let (number, after) = chars.as_str().strip_prefix('{')?.split_once('}')?;
                chars = after.chars();
                char::from_u32(u32::from_str_radix(number, 16).ok()?)?
            }
            _ => return None,
        };
        text.push(char);
        rest = chars.as_str();
    }
    text.push_str(rest);
    Some(text)
}

/// Writes the end of a page.
pub(super) fn write(runs: &[Run], page: &mut String) {
    let mut line = |line: fmt::Arguments<'_>| {
        tolerate(writeln!(page, "{line}"), "writing to a string does not fail");
    };
    line(format_args!("{}", BEGIN.trim_end()));
    for Run { name, id, timestamp, not_run, group, tests } in runs {
        let (name, id, timestamp) = (Field(name), Field(id), Field(timestamp));
        match group {
            Some(Group { name: group, began }) => {
                let group = Field(group);
                line(format_args!("run\t{name}\t{id}\t{timestamp}\t{not_run}\t{group}\t{began}"));
            }
            None => line(format_args!("run\t{name}\t{id}\t{timestamp}\t{not_run}")),
        }
        for Row { name, verdict, why, attempts } in tests {
            let (name, why) = (Field(name), Field(why.as_deref().unwrap_or_default()));
            line(format_args!("test\t{name}\t{}\t{why}", verdict.word()));
            for Try { start, wall, cpu, peak_kib, said, remarks } in attempts {
                line(format_args!("attempt\t{start}\t{wall}\t{cpu}\t{peak_kib}\t{}", Field(said)));
                for (topic, text) in remarks {
                    line(format_args!("remark\t{}\t{}", topic.word(), Field(text)));
                }
            }
        }
    }
    page.push_str(END);
}

/// Reads the runs of a page; `None` if husk did not write it.
pub(super) fn read(page: &str) -> Option<Vec<Run>> {
    let (_, lines) = page.strip_suffix(END)?.rsplit_once(BEGIN)?;
    let mut runs: Vec<Run> = Vec::new();
    for line in lines.lines() {
        let fields: Vec<_> = line.split('\t').collect();
        match *fields.as_slice() {
            ["run", name, id, timestamp, not_run, ref group @ ..] => runs.push(Run {
                not_run: not_run.parse().ok()?,
                group: match *group {
                    [] => None,
                    [name, began] => Some(Group { name: text(name)?, began: began.parse().ok()? }),
                    _ => return None,
                },
                ..Run::new(text(name)?, text(id)?, text(timestamp)?)
            }),
            ["test", name, verdict, why] => runs.last_mut()?.tests.push(Row {
                name: text(name)?,
                verdict: VERDICTS.into_iter().find(|known| known.word() == verdict)?,
                why: Some(text(why)?).filter(|why| !why.is_empty()),
                attempts: Vec::new(),
            }),
            ["attempt", start, wall, cpu, peak_kib, said] => {
                runs.last_mut()?.tests.last_mut()?.attempts.push(Try {
                    start: start.parse().ok()?,
                    wall: wall.parse().ok()?,
                    cpu: cpu.parse().ok()?,
                    peak_kib: peak_kib.parse().ok()?,
                    said: text(said)?,
                    remarks: Vec::new(),
                });
            }
            ["remark", topic, remark] => {
                let topic = Topic::ALL.into_iter().find(|known| known.word() == topic)?;
                let attempt = runs.last_mut()?.tests.last_mut()?.attempts.last_mut()?;
                attempt.remarks.push((topic, text(remark)?));
            }
            _ => return None,
        }
    }
    Some(runs)
}

#[cfg(test)]
mod tests {
    use super::{END, Group, MOST_SAID, Row, Run, Topic, Try, read, shortened, write};
    use crate::Verdict;

    #[test]
    fn written_runs_are_read_again() {
        let hostile = "</script>\t\n\r\0\\u{3c}\x1b[1m\u{9b}'\"\u{202e}ä\\";
        let attempt = Try {
            start: 1,
            wall: 2,
            cpu: 3,
            peak_kib: 4,
            said: hostile.to_owned(),
            remarks: vec![(Topic::Left, hostile.to_owned()), (Topic::End, String::new())],
        };
        let (name, why) = (hostile.to_owned(), Some(hostile.to_owned()));
        let tests = vec![
            Row { name: name.clone(), verdict: Verdict::Failed, why: None, attempts: vec![attempt; 2] },
            Row { name: name.clone(), verdict: Verdict::Ignored, why, attempts: Vec::new() },
        ];
        let group = Some(Group { name: name.clone(), began: 6 });
        let alone = Run { tests, not_run: 5, ..Run::new(name.clone(), name, "now".to_owned()) };
        let runs = vec![Run { group, ..alone.clone() }, alone];
        let mut page = String::new();
        write(&runs, &mut page);
        assert_eq!(read(&page).unwrap(), runs);
        assert_eq!(page.matches('<').count(), 1 + END.matches('<').count());
        assert!(page.chars().all(|char| !char.is_control() || matches!(char, '\n' | '\t')), "{page:?}");
    }

    #[test]
    fn long_output_keeps_its_beginning_and_end() {
        let said = format!("first{}last", "ä".repeat(MOST_SAID));
        let short = shortened(&said);
        assert!(short.starts_with("firstä") && short.ends_with("älast"));
        assert!(short.len() < MOST_SAID + 100, "{}", short.len());
        assert!(short.contains(" bytes are left out]\nä"));
    }
}
