//! `husk validate`.

use crate::exit::Exit;
use crate::output::{self, escape};
use crate::session::{Session, absolute};
use crate::verb::Perform;
use anyhow::Result;
use husk_runtime::{Problem, Severity};
use serde_json::{Value, json};
use std::path::PathBuf;

pub(crate) const MORE: &str = "
Reports all problems at once: the field of config.json, the problem, and what to write instead. Exits with 1 if
the container cannot be created. A setting that husk applies differently than written is a warning.

EXAMPLES:
  {husk} validate web                                   check a bundle
  {husk} validate --json web                            print the problems for another program
  {husk} validate web && {husk} run --bundle web web-1    run it if it is valid
";

/// Report every problem of a bundle
#[derive(Debug, clap::Args)]
pub(crate) struct Validate {
    /// Directory of the bundle
    #[arg(value_name = "BUNDLE", default_value = ".")]
    bundle: PathBuf,
    /// Print the problems as JSON
    #[arg(long)]
    json: bool,
}

impl Perform for Validate {
    fn perform(self, _session: &Session<'_>) -> Result<Exit> {
        let found = husk_runtime::validate(&absolute(&self.bundle)?);
        let number = |severity| found.iter().filter(|finding| finding.severity == severity).count();
        let (errors, warnings) = (number(Severity::Error), number(Severity::Warning));
        let exit = if errors == 0 { Exit::Success } else { Exit::Failed };
        if self.json {
            let problems: Vec<_> = found.iter().map(as_json).collect();
            output::print(format!("{:#}\n", json!(problems)))?;
            return Ok(exit);
        }
        let mut text = String::new();
        for finding in &found {
            let line = format!("{}: {}: {}", severity(finding), finding.field, finding.text);
            text.extend([&*escape::line(&line), "\n"]);
            if let Some(hint) = &finding.hint {
                text.extend(["  ", &*escape::line(hint), "\n"]);
            }
        }
        let counted =
            |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
        let counts = format!("{}, {}\n", counted(errors, "error"), counted(warnings, "warning"));
        output::print(text + &counts)?;
        Ok(exit)
    }
}

fn severity(problem: &Problem) -> &'static str {
    match problem.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

fn as_json(problem: &Problem) -> Value {
    let Problem { field, text, hint, .. } = problem;
    json!({ "severity": severity(problem), "field": field, "text": text, "hint": hint })
}
