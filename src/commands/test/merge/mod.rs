//! `husk test --merge`: joins the JSON reports of shards to one verdict, and to one report of each kind.

use super::directory::Directory;
use super::options::Tests;
use super::report::{self, Document, in_one_line};
use crate::exit::Exit;
use crate::output::escape;
use crate::output::log::with_causes;
use crate::output::{self, Unwritten};
use crate::session::Session;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use clap::ArgMatches;
use clap::parser::ValueSource;
use husk_hermetic::html::Run;
use husk_hermetic::join::{Joined, Reading};
use husk_hermetic::junit::{self, Suite};
use husk_hermetic::record;
use husk_hermetic::{Row, Topic, Try, Verdict, html};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The suite of the problems in the joined reports.
const OWN: &str = "husk test --merge";
/// Shards whose clocks differ by more are drawn as if they had begun together: a day, in microseconds.
const MOST_LATER: u64 = 86_400_000_000;

/// Joins the reports in these files. Options of husk.toml and variables are for the runs of tests, so they do not count.
pub(super) fn perform(
    tests: &Tests,
    files: &[OsString],
    matches: &ArgMatches,
    session: &Session<'_>,
) -> Result<Exit> {
    ensure!(!files.is_empty(), "--merge: no report given");
    let is_typed = |option: &str| matches.value_source(option) == Some(ValueSource::CommandLine);
    let typed = |option, path| Some(path).filter(|_| is_typed(option)).and_then(Option::as_deref);
    let (json, junit, html) =
        (typed("json", &tests.json), typed("junit", &tests.junit), typed("html", &tests.html));
    for to in [json, junit, html].into_iter().flatten() {
        let is_input = |file: &OsString| {
            fs::canonicalize(file).is_ok_and(|file| fs::canonicalize(to).ok() == Some(file))
        };
        if files.iter().any(is_input) {
            bail!("{}: is one of the reports to join; choose another file", to.display());
        }
    }
    let open = |path: &Path| Document::open(path);
    let (junit, html) = (junit.map(open).transpose()?, html.map(open).transpose()?);

    let mut reading = Reading::default();
    for file in files {
        reading.file(escape::cell(&file.to_string_lossy()).into_owned());
        let read = record::read(Path::new(file), |line| reading.line(line));
        reading.end_file(read.err().map(|error| with_causes(&error.into())));
    }
    let joined = reading.join();
    let success =
        joined.problems.is_empty() && joined.tests().all(|test| test.row.verdict != Verdict::Failed);

    output::print(&*escape::text(&summary(&joined, success)))?;
    for problem in &joined.problems {
        session.log.failed(&anyhow!("{}", escape::cell(problem)));
    }
    let written = json.map_or(Ok(()), |path| write_lines(&joined, path));
    let runs = runs(&joined);
    let junit = junit.map_or(Ok(()), |document| {
        let suites: Vec<_> = runs.iter().map(|(run, rows)| suite(run, rows)).collect();
        document.write("JUnit", |before| junit::check(before).map(|()| junit::document(&suites)))
    });
    let html = html.map_or(Ok(()), |document| {
        let page = |(mut run, rows): (Run, Vec<Row>)| {
            rows.into_iter().for_each(|row| run.add_row(row));
            run
        };
        let runs: Vec<_> = runs.into_iter().map(page).collect();
        document.write("HTML", |before| html::check(before).map(|()| html::page(&runs)))
    });
    written.and(junit).and(html)?;
    Ok(if success { Exit::Success } else { Exit::Tests })
}

/// Returns the end of libtest's output for all tests, and how long each shard took.
fn summary(joined: &Joined, success: bool) -> String {
    let of = |verdict| joined.tests().filter(move |test| test.row.verdict == verdict);
    let count = |verdict| of(verdict).count();
    let shards = joined.shards();
    let (tests, machines) = (counted(joined.tests().count(), "test"), counted(shards.len(), "shard"));
    let mut text = format!("\nrunning {tests} in {machines}\n");
    let mut add = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    for ((part, parts), tests, micros) in &shards {
        let tests = counted(*tests, "test");
        add(format!("shard {part}/{parts}: {tests} in {:.2}s", seconds(*micros)));
    }
    let failed = || of(Verdict::Failed).map(|test| &test.row);
    if failed().next().is_some() {
        add("\nfailures:\n".to_owned());
        failed().for_each(|row| add(format!("---- {} stdout ----\n{}", escape::cell(&row.name), said(row))));
        add("\nfailures:".to_owned());
        let mut names: Vec<_> = failed().map(|row| &row.name).collect();
        names.sort_unstable();
        names.into_iter().for_each(|name| add(format!("    {}", escape::cell(name))));
    }
    if of(Verdict::Flaky).next().is_some() {
        add("\nflaky:".to_owned());
        of(Verdict::Flaky).for_each(|test| add(format!("    {}", escape::cell(&test.row.name))));
    }
    let result = if success { "ok" } else { "FAILED" };
    let (passed, failed, ignored) =
        (count(Verdict::Passed) + count(Verdict::Flaky), count(Verdict::Failed), count(Verdict::Ignored));
    let longest = shards.iter().map(|(.., micros)| *micros).max().unwrap_or_default();
    add(format!(
        "\ntest result: {result}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; 0 filtered out; \
         finished in {:.2}s\n",
        seconds(longest)
    ));
    if joined.not_run > 0 {
        add(format!("husk: {} tests were not run\n", joined.not_run));
    }
    text
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// Returns the output of a failed test with husk's remarks.
fn said(row: &Row) -> String {
    let Some(last) = row.attempts.last() else { return String::new() };
    let mut text = last.said.clone();
    for (topic, remark) in &last.remarks {
        husk_runtime::tolerate(
            writeln!(text, "husk: {}", escape::cell(&topic.sentence(remark))),
            "writing to a string does not fail",
        );
    }
    text
}

/// Returns a run for each suite with its tests, and one that fails for the problems.
fn runs(joined: &Joined) -> Vec<(Run, Vec<Row>)> {
    let mut runs = Vec::new();
    for (id, suite) in &joined.suites {
        let begins = || suite.shards().map(|shard| &shard.begin);
        let Some(first) = begins().min_by_key(|begin| begin.began) else { continue };
        let run = Run::new(first.suite.clone(), id.clone(), first.timestamp.clone());
        let mut rows = Vec::new();
        for shard in suite.shards() {
            let later =
                Some(shard.begin.began - first.began).filter(|later| *later < MOST_LATER).unwrap_or(0);
            rows.extend(shard.tests.iter().map(|test| {
                let mut row = test.row.clone();
                row.attempts
                    .iter_mut()
                    .for_each(|attempt| attempt.start = attempt.start.saturating_add(later));
                row
            }));
        }
        runs.push((run, rows));
    }
    if !joined.others.is_empty() {
        let name = "other programs".to_owned();
        let rows = joined.others.iter().map(|test| test.row.clone()).collect();
        runs.push((Run::new(name.clone(), name, husk_runtime::now()), rows));
    }
    if !joined.problems.is_empty() {
        let mut run = Run::new(OWN.to_owned(), OWN.to_owned(), husk_runtime::now());
        run.not_run = joined.not_run;
        runs.push((run, joined.problems.iter().map(|problem| failed(problem)).collect()));
    }
    runs
}

/// Returns a failed test that stands for a problem.
fn failed(problem: &str) -> Row {
    let attempt = Try {
        start: 0,
        wall: 0,
        cpu: 0,
        peak_kib: 0,
        said: problem.to_owned(),
        remarks: vec![(Topic::End, "the reports are not those of all tests".to_owned())],
    };
    Row { name: problem.to_owned(), verdict: Verdict::Failed, why: None, attempts: vec![attempt] }
}

fn suite(run: &Run, rows: &[Row]) -> Suite {
    let mut suite = Suite::new(run.name.clone(), run.id.clone(), run.timestamp.clone());
    rows.iter().for_each(|row| suite.add_row(row));
    suite
}

/// Writes the line of each test. The file is replaced, and so can be the durations of the next run.
fn write_lines(joined: &Joined, path: &Path) -> Result<()> {
    let lines: String = joined.tests().map(|test| in_one_line(&test.line)).collect();
    if report::descriptor(path).is_some() {
        return Document::open(path)?.write("JSON", |_| Ok(lines));
    }
    let written = Directory::of(path).and_then(|(directory, name)| directory.replace(&name, &lines));
    written.context(Unwritten("JSON")).with_context(|| path.display().to_string())
}
