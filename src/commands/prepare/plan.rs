//! `husk plan`.

use crate::exit::Exit;
use crate::output::terminal::{self, Colour, Painter};
use crate::output::{self, escape};
use crate::session::{Session, absolute};
use crate::verb::Perform;
use anyhow::{Result, bail};
use husk_runtime::PlannedStep;
use std::path::PathBuf;

pub(crate) const MORE: &str = "
Each line has the number of the step, the field of config.json that it comes from, and the operation.

With --json, each line has an object with these members:
  step    number of the step, from 0
  field   field of config.json: mounts[1]
  origin  field with its value, if that helps: mounts[1] /dev
  kind    kind of step: fsconfig
  text    operation: fsconfig r0 mode=755

EXAMPLES:
  {husk} plan                      print the plan of the bundle in the current directory
  {husk} plan web | grep mounts    print the steps for its mounts
  {husk} plan --seccomp web        print what its seccomp profile allows
  {husk} plan --json web | jq -r '.[].kind' | sort | uniq -c    count the steps of each kind
";

/// Print the steps of 'run' without performing them
#[derive(Debug, clap::Args)]
pub(crate) struct Plan {
    /// Directory of the bundle
    #[arg(value_name = "BUNDLE", default_value = ".")]
    bundle: PathBuf,
    /// Print the steps as a JSON array
    #[arg(long)]
    json: bool,
    /// Print the seccomp profile's decision for each system call instead
    #[arg(long, conflicts_with = "json")]
    seccomp: bool,
}

impl Perform for Plan {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        let planned = husk_runtime::plan(&absolute(&self.bundle)?)?;
        session.warn(&planned.warnings);
        if self.seccomp {
            let Some(decisions) = planned.decisions else { bail!("linux.seccomp: is missing") };
            planned.unknown_calls.iter().for_each(|unknown| session.log.warning(unknown));
            output::print(&*escape::text(&decisions))?;
        } else if self.json {
            output::print(escape::json(json(&planned.steps)?))?;
        } else {
            let painter = Painter::of_standard_output();
            let listing = escape::text(&planned.listing);
            terminal::page(&listing.lines().map(|line| painted(line, painter)).collect::<String>())?;
        }
        Ok(Exit::Success)
    }
}

/// Returns a line of the listing with its number and field in colour.
fn painted(line: &str, painter: Painter) -> String {
    let indent = line.len() - line.trim_start().len();
    let (number, rest) = line.split_at(line[indent..].find("  ").map_or(0, |end| indent + end));
    let (field, step) = rest.split_at(rest.trim_start().find("  ").map_or(0, |end| end + 2));
    painter.paint(number, Colour::Grey) + &painter.paint(field, Colour::Cyan) + step + "\n"
}

/// Formats steps as a JSON array with one object per line, so that a diff works by lines.
fn json(steps: &[PlannedStep]) -> Result<String> {
    let lines: Vec<_> = steps.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    Ok(format!("[\n{}\n]\n", lines.join(",\n")))
}
