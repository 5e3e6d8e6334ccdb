//! Tests of what `test --merge` keeps of reports that are damaged or far too large. Reports come from other machines.

use super::join::{Joined, Reading};
use super::record::{Begin, Damage, End, Line, MOST_SHARDS, read, read_bytes};
use crate::runner::{Listed, digest};
use rustix::fs::{CWD, FileType, Mode, ftruncate, mknodat};
use serde_json::{Value, json};
use std::fs::File;
use std::io;

const NAMES: [&str; 4] = ["a::one", "a::two", "b::three", "b::four"];

fn begin(part: usize, parts: usize, names: &[&str]) -> Begin {
    Begin {
        run: format!("run-{part}"),
        suite: "suite".to_owned(),
        id: "0123456789abcdef".to_owned(),
        shard: (part, parts),
        began: 1_790_000_000_000_000,
        timestamp: "2026-09-21T14:13:20Z".to_owned(),
        durations: None,
        listed: Listed {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            all: NAMES.len(),
            digest: digest(NAMES.into_iter()),
        },
    }
}

fn test(run: Option<&str>, name: &str) -> Value {
    let mut line = json!({
        "binary": "target/debug/deps/suite-0123456789abcdef",
        "suite": "suite",
        "test": name,
        "verdict": "passed",
        "attempts": 1,
        "cached": false,
        "status": "exit status: 0",
        "start_ms": 0.5,
        "wall_ms": 2.25,
        "cpu_ms": 1.125,
        "peak_kib": 4096,
        "output": null,
    });
    if let Some(run) = run {
        line["run"] = run.into();
    }
    line
}

/// Returns the report of a shard of two.
fn report(part: usize) -> String {
    let names = if part == 1 { &NAMES[..2] } else { &NAMES[2..] };
    let begin = begin(part, 2, names);
    let tests = names.iter().map(|name| test(Some(&begin.run), name));
    let end = End { results: names.len(), ..End::default() };
    let lines = [begin.line()].into_iter().chain(tests).chain([end.line(&begin.run)]);
    lines.map(|line| format!("{line}\n")).collect()
}

fn joined<'b>(reports: impl IntoIterator<Item = &'b [u8]>) -> Joined {
    let mut reading = Reading::default();
    for (number, bytes) in reports.into_iter().enumerate() {
        reading.file(format!("{number}.json"));
        read_bytes(bytes, |line| reading.line(line));
        reading.end_file(None);
    }
    reading.join()
}

fn one(line: &Value) -> Result<Line, Damage> {
    let mut lines = Vec::new();
    read_bytes(format!("{line}\n").as_bytes(), |line| lines.push(line));
    assert_eq!(lines.len(), 1);
    lines.remove(0)
}

#[test]
fn reports_of_all_shards_have_no_problem() {
    let joined = joined([report(1).as_bytes(), report(2).as_bytes()]);
    assert_eq!(joined.problems, [""; 0]);
    assert_eq!((joined.tests().count(), joined.not_run), (4, 0));
}

#[test]
fn number_of_shards_is_limited() {
    let read = |part: usize, parts: usize| one(&begin(part, parts, &NAMES).line()).is_ok();
    assert!(read(1, 1) && read(MOST_SHARDS, MOST_SHARDS));
    assert!(!read(0, 1) && !read(2, 1) && !read(1, 0));
    assert!(!read(1, MOST_SHARDS + 1) && !read(MOST_SHARDS + 1, MOST_SHARDS + 1));
}

#[test]
fn only_the_first_of_many_missing_shards_are_named() {
    let line = format!("{}\n", begin(7, MOST_SHARDS, &NAMES).line());
    let joined = joined([line.as_bytes()]);
    let missing = format!(
        "shards 1/{MOST_SHARDS}, 2/{MOST_SHARDS}, 3/{MOST_SHARDS}, 4/{MOST_SHARDS}, 5/{MOST_SHARDS}, 6/{MOST_SHARDS}, \
         8/{MOST_SHARDS}, 9/{MOST_SHARDS}, 10/{MOST_SHARDS}, 11/{MOST_SHARDS} and {} others are missing",
        MOST_SHARDS - 11
    );
    assert_eq!(joined.problems.first(), Some(&missing));
}

#[test]
fn times_are_cut_and_never_negative() {
    let wall = |millis: f64| {
        let mut line = test(None, "t");
        line["wall_ms"] = json!(millis);
        match one(&line) {
            Ok(Line::Test(test)) => test.row.attempts.last().map(|attempt| attempt.wall),
            _ => None,
        }
    };
    assert_eq!(wall(2.25), Some(2_250));
    assert_eq!(wall(1e300), Some(10_000_000_000_000));
    assert_eq!(wall(-0.001), None);
}

#[test]
fn counts_beyond_32_bits_are_damage() {
    let end = |results: u64| {
        let mut line = End::default().line("run");
        line["results"] = results.into();
        one(&line).is_ok()
    };
    assert!(end(u64::from(u32::MAX)));
    assert!(!end(u64::from(u32::MAX) + 1));
}

#[test]
fn at_most_a_hundred_problems_of_a_file_are_listed() {
    // Each line is the end of a run that never began.
    let ends = format!("{}\n", End::default().line("unknown")).repeat(1000);
    let problems = joined([ends.as_bytes()]).problems;
    assert_eq!(problems.len(), 100);
    assert_eq!(problems.last().unwrap(), "0.json: has further problems");
}

#[test]
fn damaged_lines_and_stray_results_are_one_problem_each() {
    let damaged = "not JSON\n".repeat(1000);
    let stray: String =
        (0..1000).map(|number| format!("{}\n", test(Some("x"), &number.to_string()))).collect();
    let problems = joined([(damaged + &stray).as_bytes()]).problems;
    assert_eq!(
        problems,
        [
            "0.json: is damaged in line 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 990 others",
            "0.json: has results of shards that are not in it: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 990 others",
            "0.json: records no shard; write it with 'husk test --shard PART/PARTS --json FILE'",
        ]
    );
}

#[test]
fn files_that_are_too_large_or_not_regular_are_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let error = |name: &str| {
        let mut lines = 0;
        let read = read(&directory.path().join(name), |_| lines += 1);
        assert_eq!(lines, 0);
        read.unwrap_err().to_string()
    };
    let large = File::create(directory.path().join("large")).unwrap();
    ftruncate(&large, (512 << 20) + 1).unwrap();
    assert_eq!(error("large"), "has more than 512 MiB");
    // It is not waited for a writer.
    mknodat(CWD, directory.path().join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert_eq!(error("fifo"), "is not a regular file");
    assert_eq!(error("."), "is not a regular file");
    assert_eq!(read(&directory.path().join("none"), |_| {}).unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn last_line_without_a_line_break_is_cut_off() {
    let report = report(1);
    let mut last = None;
    read_bytes(report.trim_end().as_bytes(), |line| last = Some(line));
    assert!(matches!(last, Some(Err(Damage::CutOff(4)))), "{last:?}");
}

/// Numbers that are the same in every run (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap_or_default() % limit.max(1)
    }
}

/// Damages a report in one place.
fn damage(bytes: &mut Vec<u8>, numbers: &mut Numbers) {
    let at = numbers.below(bytes.len());
    let end = at + numbers.below(bytes.len() - at) % 80;
    match numbers.below(6) {
        0 => bytes[at] ^= 1 << numbers.below(8),
        1 => bytes[at] = b"0123456789-\"\\[]{},:\n\0\xff"[numbers.below(22)],
        2 => drop(bytes.drain(at..end)),
        3 => bytes.truncate(at),
        4 => {
            let copy = bytes[at..end].to_vec();
            let to = numbers.below(bytes.len());
            bytes.splice(to..to, copy);
        }
        _ => {
            let mut lines: Vec<_> =
                bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            let (one, other) = (numbers.below(lines.len()), numbers.below(lines.len()));
            match numbers.below(3) {
                0 => lines.swap(one, other),
                1 => lines.insert(one, lines[other].clone()),
                _ => drop(lines.remove(one)),
            }
            *bytes = lines.concat();
        }
    }
}

#[test]
fn damage_never_hides_a_test() {
    let (whole, other) = (report(1), report(2));
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut unnoticed = 0;
    for round in 0..20_000 {
        let mut bytes = whole.clone().into_bytes();
        for _ in 0..=numbers.below(3) {
            damage(&mut bytes, &mut numbers);
            if bytes.is_empty() {
                break;
            }
        }
        let joined = joined([&bytes, other.as_bytes()]);
        assert!(joined.problems.len() <= 2 * 100 + 16, "{}", joined.problems.len());
        if joined.problems.is_empty() && joined.not_run == 0 {
            unnoticed += 1;
            let mut units: Vec<_> = joined.tests().map(|test| test.unit.as_str()).collect();
            units.sort_unstable();
            units.dedup();
            units.retain(|unit| NAMES.contains(unit));
            let mut names = NAMES;
            names.sort_unstable();
            assert_eq!(units, names, "round {round}: {}", String::from_utf8_lossy(&bytes));
        }
    }
    // Changes of a time go unnoticed. If all changes did, this test would show nothing.
    assert!((100..10_000).contains(&unnoticed), "{unnoticed}");
}
