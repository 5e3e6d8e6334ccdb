//! `husk plan`.

use crate::exit::Exit;
use crate::output::{self, escape};
use crate::session::{Session, absolute};
use crate::verb::Perform;
use anyhow::{Result, bail};
use husk_runtime::PlannedStep;
use std::path::PathBuf;

pub(crate) const MORE: &str = "
A line has its number, the field of config.json that it comes from, and what is done. Each object of the
JSON array, one a line, has them as numbers and strings:
  step    the number, from 0
  field   the field: mounts[1]
  origin  the field, and what it says where that helps: mounts[1] /dev
  kind    the kind of step, one word: fsconfig
  text    what is done: fsconfig r0 mode=755

EXAMPLES:
  husk plan                    of the bundle in this directory
  husk plan web | grep mounts  what is done for its mounts
  husk plan --json web | jq -r '.[].kind' | sort | uniq -c
  husk plan --seccomp web
";

/// Print what 'run' would do, a line a step, and do nothing
#[derive(Debug, clap::Args)]
pub(crate) struct Plan {
    /// The bundle's directory
    #[arg(value_name = "BUNDLE", default_value = ".")]
    bundle: PathBuf,
    /// Print it as a JSON array
    #[arg(long)]
    json: bool,
    /// Print what its seccomp profile decides, for every system call, instead
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
            output::print(&*escape::text(&planned.listing))?;
        }
        Ok(Exit::Success)
    }
}

/// Formats steps as a JSON array with one object per line, so that a diff works by lines.
fn json(steps: &[PlannedStep]) -> Result<String> {
    let lines: Vec<_> = steps.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    Ok(format!("[\n{}\n]\n", lines.join(",\n")))
}
