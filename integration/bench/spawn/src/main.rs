//! The spawn benchmark: measures the cost of starting a process with husk-spawn, with std, and with every way that C
//! has. `run.sh` beside this package builds what it needs and runs it.
//!
//! ```text
//! husk-bench-spawn measure --competitors FILE --tiny FILE --results DIR --date DATE
//!                          [--fact NAME=VALUE]... [--smoke]
//! husk-bench-spawn report FILE.csv       writes the table and the plots of a result anew
//! husk-bench-spawn contend ...           is one contender (src/contend/mod.rs)
//! husk-bench-spawn pids ...              compares ways to choose pids (src/pids/mod.rs)
//! ```
//!
//! The driver starts every contender as its own process, which touches some memory, measures itself and prints numbers.
//! `measure.rs` decides when each contender runs. `record.rs` keeps the numbers, and `report.rs` and `plot.rs` show
//! them. The benchmark has no pass or fail.

#![expect(clippy::disallowed_macros, reason = "a benchmark that cannot print its figures may fail")]

mod contend;
mod contenders;
mod machine;
mod measure;
mod pids;
mod plot;
mod record;
mod report;

use record::Results;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Errors are only printed, so any type does.
type Failure = Box<dyn Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = arguments.split_first().map_or(("", &[][..]), |(first, rest)| (first, rest));
    let done = match command {
        "measure" => measure(rest),
        "report" => report(rest),
        "contend" => contend::contend(rest),
        "pids" => pids::pids(rest),
        _ => Err("the command is measure, report, contend or pids".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("husk-bench-spawn: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &[String]) -> Result<(), Failure> {
    let mut files = measure::Files::default();
    let mut results = PathBuf::new();
    let mut date = String::new();
    let mut facts = Vec::new();
    let mut effort = measure::full();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--smoke" {
            effort = measure::smoke();
            continue;
        }
        let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
        match argument.as_str() {
            "--competitors" => files.competitors = fs::canonicalize(value)?,
            "--tiny" => files.tiny = fs::canonicalize(value)?,
            "--results" => results = value.into(),
            "--date" => date.clone_from(value),
            "--fact" => {
                let (name, value) = value.split_once('=').ok_or("a fact is NAME=VALUE")?;
                facts.push((name.to_owned(), value.to_owned()));
            }
            _ => return Err(format!("there is no option {argument}").into()),
        }
    }
    facts.insert(0, ("date".to_owned(), date.clone()));

    let measured = measure::measure(&files, &effort, facts)?;
    fs::create_dir_all(&results)?;
    let csv = results.join(format!("spawn-{date}.csv"));
    fs::write(&csv, measured.to_csv())?;
    write_report(&csv, &measured)
}

fn report(arguments: &[String]) -> Result<(), Failure> {
    let [csv] = arguments else { return Err("report FILE.csv".into()) };
    write_report(Path::new(csv), &Results::from_csv(&fs::read_to_string(csv)?)?)
}

/// Writes the table and the plots beside the CSV file.
fn write_report(csv: &Path, results: &Results) -> Result<(), Failure> {
    let stem = csv.file_stem().and_then(|stem| stem.to_str()).ok_or("the file has no name")?;
    for (suffix, text) in report::report(stem, results) {
        let path = csv.with_file_name(format!("{stem}{suffix}"));
        fs::write(&path, text)?;
        eprintln!("wrote {}", path.display());
    }
    eprintln!("wrote {}", csv.display());
    Ok(())
}
