//! Lines of the JSON report: written for each test, and read again for durations and by `--merge`.
//!
//! ```text
//! with a shard  {"run": ID, "suite": .., "id": .., "shard": [2, 4], "all": .., "digest": .., "listed": [..], ..}
//! always        {"binary": .., "suite": .., "test": .., "verdict": .., ..}            one for each test
//! with a shard  {"run": ID, "results": .., "not_run": .., "not_begun": [..], ..}     missing if husk was killed
//! ```
//!
//! Cargo appends the lines of several binaries to one file, and other husks may append at the same time. The `run` of
//! each line tells which lines belong together. A report that is read comes from another machine and may be damaged, so
//! everything in it is checked.

use super::row::{Row, Topic, Try};
use super::tested::{Tested, Verdict};
use crate::explain::Explanation;
use crate::explain::judge::Denied;
use crate::runner::Listed;
use crate::sandbox::ended::Ended;
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// More than a report of a million tests.
const MOST_BYTES: u64 = 512 << 20;
/// A line with more values is not one of a report. In memory a value takes up to a hundred times as many bytes as in a file.
const MOST_VALUES: usize = 2 << 20;
/// Longer times are cut, so that sums of them do not overflow: some months, in microseconds.
const MOST_MICROS: u64 = 10_000_000_000_000;
/// The highest number of shards.
pub const MOST_SHARDS: usize = 1 << 16;

/// The run of a shard of a suite, as its first line describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begin {
    /// A random identifier of the run.
    pub run: String,
    /// The name of the suite.
    pub suite: String,
    /// The identifier of the suite, which is the same in all shards.
    pub id: String,
    pub shard: (usize, usize),
    /// Microseconds since 1970.
    pub began: u64,
    /// The same time in the format of RFC 3339.
    pub timestamp: String,
    /// The digest of the durations that divided the tests, if there were any.
    pub durations: Option<u64>,
    pub listed: Listed,
}

/// The end of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// The number of lines with results.
    pub results: usize,
    /// The number of tests that were not begun.
    pub not_run: usize,
    /// The units whose tests were not begun.
    pub not_begun: Vec<String>,
    pub wall: u64,
}

/// A result.
#[derive(Clone, Debug)]
pub struct ReadTest {
    /// The run that it belongs to, if it belongs to a shard.
    pub run: Option<String>,
    pub suite: String,
    /// The file, package or program that it ran in.
    pub unit: String,
    pub row: Row,
    /// The line itself, without its run.
    pub line: Value,
}

/// A line of a report.
#[derive(Debug)]
pub enum Line {
    Begin(Begin),
    Test(Box<ReadTest>),
    End(String, End),
}

impl Begin {
    pub fn line(&self) -> Value {
        let Self { run, suite, id, shard: (part, parts), began, timestamp, durations, listed } = self;
        json!({
            "run": run,
            "suite": suite,
            "id": id,
            "shard": [part, parts],
            "began": began,
            "timestamp": timestamp,
            "durations": durations.map(hex),
            "all": listed.all,
            "digest": hex(listed.digest),
            "listed": listed.names,
        })
    }

    fn read(line: &Value) -> Option<Self> {
        let number = |value: &Value| usize::try_from(value.as_u64()?).ok();
        let (part, parts) = match line["shard"].as_array()?.as_slice() {
            [part, parts] => (number(part)?, number(parts)?),
            _ => return None,
        };
        let names = texts(&line["listed"])?;
        let durations = match &line["durations"] {
            Value::Null => None,
            digest => Some(from_hex(digest)?),
        };
        (1..=parts.min(MOST_SHARDS)).contains(&part).then_some(())?;
        Some(Self {
            run: text(line, "run")?,
            suite: text(line, "suite")?,
            id: text(line, "id")?,
            shard: (part, (parts <= MOST_SHARDS).then_some(parts)?),
            began: line["began"].as_u64()?,
            timestamp: text(line, "timestamp")?,
            durations,
            listed: Listed { names, all: number(&line["all"])?, digest: from_hex(&line["digest"])? },
        })
    }
}

impl End {
    pub fn line(&self, run: &str) -> Value {
        let Self { results, not_run, not_begun, wall } = self;
        json!({
            "run": run,
            "results": results,
            "not_run": not_run,
            "not_begun": not_begun,
            "wall_ms": *wall as f64 / 1000.0,
        })
    }

    fn read(line: &Value) -> Option<Self> {
        // Counts are at most the number of lines of a report.
        let count = |name: &str| u32::try_from(line[name].as_u64()?).ok()?.try_into().ok();
        Some(Self {
            results: count("results")?,
            not_run: count("not_run")?,
            not_begun: texts(&line["not_begun"])?,
            wall: micros(&line["wall_ms"])?,
        })
    }
}

/// Returns the line of a test. A run is named if it is that of a shard.
pub fn test_line(binary: &str, suite: &str, run: Option<&str>, tested: &Tested) -> Value {
    let verdict = tested.verdict().word();
    let Some(last) = tested.attempts.last() else {
        let mut line = json!({
            "binary": binary,
            "suite": suite,
            "test": tested.name,
            "verdict": verdict,
            "attempts": 0,
            "why": tested.ignored,
        });
        add_place(&mut line, run, tested);
        return line;
    };
    let Ended { status, wall, usage, remaining, .. } = &last.ended;
    let limits = last.ended.limits();
    let mut line = json!({
        "binary": binary,
        "suite": suite,
        "test": tested.name,
        "verdict": verdict,
        "attempts": tested.attempts.len(),
        "cached": last.ended.is_cached(),
        "status": status.to_string(),
        "start_ms": last.start.as_secs_f64() * 1000.0,
        "limit": (!limits.is_empty()).then(|| limits.join("; ")),
        "wall_ms": wall.as_secs_f64() * 1000.0,
        "cpu_ms": usage.cpu_micros as f64 / 1000.0,
        "peak_kib": usage.peak_kib,
        "left_running": remaining.iter().map(|process| &process.command).collect::<Vec<_>>(),
        "denied": tested.explained.as_ref().map(|explained| explained.denied.iter().map(denial).collect::<Vec<_>>()),
        "passes_with": tested.explained.as_ref().and_then(Explanation::passing_options),
        "flaky_when_observed": tested.is_flaky_when_observed(),
        "not_explained": tested.explained.as_ref().and_then(|explained| explained.unavailable.as_ref()),
        "output": if last.passed() { None } else { Some(&last.said) },
    });
    if let Some((last, earlier)) = Row::of(tested).attempts.split_last() {
        if !last.remarks.is_empty() {
            line["remarks"] = remarks(last);
        }
        if !earlier.is_empty() {
            line["earlier"] = earlier.iter().map(attempt).collect();
        }
    }
    add_place(&mut line, run, tested);
    line
}

fn add_place(line: &mut Value, run: Option<&str>, tested: &Tested) {
    if let Some(unit) = &tested.unit {
        line["unit"] = unit.as_str().into();
    }
    if let Some(run) = run {
        line["run"] = run.into();
    }
}

/// Returns the remarks of an attempt, each with its topic.
fn remarks(attempt: &Try) -> Value {
    attempt.remarks.iter().map(|(topic, text)| json!([topic.word(), text])).collect()
}

/// Returns an attempt before the last one.
fn attempt(attempt: &Try) -> Value {
    json!({
        "start_ms": attempt.start as f64 / 1000.0,
        "wall_ms": attempt.wall as f64 / 1000.0,
        "cpu_ms": attempt.cpu as f64 / 1000.0,
        "peak_kib": attempt.peak_kib,
        "remarks": remarks(attempt),
        "output": attempt.said,
    })
}

fn denial(denied: &Denied) -> Value {
    let (what, subject) = denied.subject();
    let mut object = json!({ "what": what, "option": denied.option() });
    if let Some((name, value)) = subject {
        object[name] = value.into();
    }
    object
}

impl ReadTest {
    fn read(mut line: Value) -> Option<Self> {
        let name = text(&line, "test")?;
        let verdict =
            Verdict::ALL.into_iter().find(|known| Some(known.word()) == line["verdict"].as_str())?;
        let attempts = match verdict {
            Verdict::Ignored => Vec::new(),
            _ => {
                let earlier =
                    line.get("earlier").map_or(Some(&[][..]), |earlier| Some(earlier.as_array()?))?;
                earlier.iter().chain([&line]).map(read_attempt).collect::<Option<_>>()?
            }
        };
        let run = match line.as_object_mut()?.remove("run") {
            Some(run) => Some(run.as_str()?.to_owned()),
            None => None,
        };
        // Reports of older versions name only the binary.
        let suite = text(&line, "suite").or_else(|| {
            let file = Path::new(line["binary"].as_str()?).file_name()?.to_str()?;
            Some(file.rsplit_once('-').map_or(file, |(name, _hash)| name).to_owned())
        })?;
        let unit = text(&line, "unit").unwrap_or_else(|| name.clone());
        let row = Row { name, verdict, why: text(&line, "why"), attempts };
        Some(Self { run, suite, unit, row, line })
    }
}

fn read_attempt(line: &Value) -> Option<Try> {
    let remark = |remark: &Value| {
        let topic = Topic::ALL.into_iter().find(|topic| Some(topic.word()) == remark[0].as_str())?;
        Some((topic, remark[1].as_str()?.to_owned()))
    };
    let remarks = line.get("remarks").map_or(Some(&[][..]), |remarks| Some(remarks.as_array()?))?;
    Some(Try {
        start: micros(&line["start_ms"])?,
        wall: micros(&line["wall_ms"])?,
        cpu: micros(&line["cpu_ms"])?,
        peak_kib: line["peak_kib"].as_u64()?,
        said: text(line, "output").unwrap_or_default(),
        remarks: remarks.iter().map(remark).collect::<Option<_>>()?,
    })
}

impl Line {
    /// Reads a line; `None` if it is damaged.
    fn read(line: &[u8]) -> Option<Self> {
        (values(line) <= MOST_VALUES).then_some(())?;
        let line: Value = serde_json::from_slice(line).ok()?;
        match line.as_object()? {
            object if object.contains_key("test") => Some(Self::Test(Box::new(ReadTest::read(line)?))),
            object if object.contains_key("listed") => Some(Self::Begin(Begin::read(&line)?)),
            _ => Some(Self::End(text(&line, "run")?, End::read(&line)?)),
        }
    }
}

/// Returns an upper bound for the number of values in JSON, from the characters that separate them outside of strings.
fn values(line: &[u8]) -> usize {
    let (mut count, mut in_string, mut is_escaped) = (1, false, false);
    for byte in line {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_string,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' if !in_string => count += 1,
            _ => {}
        }
    }
    count
}

/// Why a part of a report could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// This line is not one of a report.
    Line(usize),
    /// The last line has no line break.
    CutOff(usize),
}

/// Reads the lines of a report. `take` receives what can be read, and each damaged line.
///
/// # Errors
///
/// If the file cannot be read, is not a regular file or is too large.
pub fn read(path: &Path, take: impl FnMut(Result<Line, Damage>)) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty())?;
    let stat = fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("is not a regular file"));
    }
    let check = |size: u64| match size > MOST_BYTES {
        true => Err(io::Error::other(format!("has more than {} MiB", MOST_BYTES >> 20))),
        false => Ok(()),
    };
    check(stat.st_size.try_into().unwrap_or_default())?;
    // The file may grow meanwhile, and files of some file systems have no size.
    let mut bytes = Vec::new();
    File::from(file).take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    check(bytes.len() as u64)?;
    read_bytes(&bytes, take);
    Ok(())
}

/// Reads the lines of a report that is in memory.
pub fn read_bytes(bytes: &[u8], mut take: impl FnMut(Result<Line, Damage>)) {
    for (line, number) in bytes.split_inclusive(|byte| *byte == b'\n').zip(1..) {
        take(match line.strip_suffix(b"\n") {
            Some(line) => Line::read(line).ok_or(Damage::Line(number)),
            None => Err(Damage::CutOff(number)),
        });
    }
}

fn text(line: &Value, name: &str) -> Option<String> {
    line[name].as_str().map(ToOwned::to_owned)
}

fn texts(values: &Value) -> Option<Vec<String>> {
    values.as_array()?.iter().map(|value| Some(value.as_str()?.to_owned())).collect()
}

/// Returns milliseconds as microseconds.
fn micros(value: &Value) -> Option<u64> {
    // The conversion saturates.
    let micros = (value.as_f64().filter(|millis| *millis >= 0.0)? * 1000.0).round() as u64;
    Some(micros.min(MOST_MICROS))
}

/// Numbers of 64 bits are not exact in the JSON of some languages.
fn hex(digest: u64) -> String {
    format!("{digest:016x}")
}

fn from_hex(value: &Value) -> Option<u64> {
    u64::from_str_radix(value.as_str()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::{Line, MOST_VALUES, values};

    #[test]
    fn values_are_counted_outside_of_strings() {
        for (line, count) in [("{}", 2), ("[1,2]", 3), (r#""a,\"[{,""#, 1), (r#"{"a":"\\","b":[]}"#, 4)] {
            assert!(values(line.as_bytes()) == count, "{line} {}", values(line.as_bytes()));
        }
    }

    #[test]
    fn line_that_would_fill_the_memory_is_not_read() {
        let many = format!("{{\"run\":\"\",\"x\":[0{}]}}", ",0".repeat(MOST_VALUES));
        assert!(Line::read(many.as_bytes()).is_none());
        let deep = format!("{}{}", "[".repeat(1 << 20), "]".repeat(1 << 20));
        assert!(Line::read(deep.as_bytes()).is_none());
    }
}
