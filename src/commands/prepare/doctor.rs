//! `husk doctor`.

use crate::exit::Exit;
use crate::output::terminal::{self, Colour, Painter};
use crate::output::{self, escape};
use crate::session::Session;
use crate::verb::Perform;
use anyhow::Result;
use clap::ValueEnum;
use husk_hermetic::{Caller, Tools};
use husk_runtime::doctor::{self, Finding, Verdict};
use std::fmt::Write as _;

pub(crate) const MORE: &str = "
Checks what containers need and prints how to fix what is missing. It tries each operation in a separate process and
changes nothing. Exits with 1 if it finds a problem that prevents containers from running.

For root, it checks what containers of root need, and warns about what other users would lack. For other users, it
checks what their own containers need.

EXAMPLES:
  {husk} doctor                                                        check for yourself
  sudo {husk} doctor                                                   check for root
  {husk} doctor --format json | jq '.[] | select(.verdict != \"ok\")'    print only warnings and problems
";

/// Check whether this machine can run containers
#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// Output format: table or json
    #[arg(short, long, value_name = "FORMAT", default_value = "table", hide_possible_values = true)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

impl Perform for Doctor {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        let mut found = doctor::examine();
        found.push(state(session));
        found.extend(tools());
        match self.format {
            Format::Json => output::print(escape::json(serde_json::to_string_pretty(&found)?) + "\n")?,
            Format::Table => terminal::page(&table(&found, Painter::of_standard_output()))?,
        };
        let is_ill = found.iter().any(|finding| finding.verdict == Verdict::Problem);
        Ok(if is_ill { Exit::Failed } else { Exit::Success })
    }
}

/// Returns where containers are recorded.
fn state(session: &Session<'_>) -> Finding {
    let (place, opened) = session.place();
    let finding = Finding {
        topic: "state",
        verdict: Verdict::Ok,
        text: format!("containers are recorded in {}", place.display()),
        fix: None,
    };
    match opened {
        Ok(()) => finding,
        Err(error) => Finding {
            verdict: Verdict::Problem,
            text: error.to_string(),
            fix: Some("set XDG_RUNTIME_DIR to a directory of your own, or use --root".to_owned()),
            ..finding
        },
    }
}

/// Returns the tools that sandboxes show, if there are any.
fn tools() -> Option<Finding> {
    let tools = Tools::find(&Caller { wants_caches: true, ..Caller::of(&[]) });
    let text = format!("'husk test' shows {tools}");
    let finding = Finding { topic: "tools", verdict: Verdict::Ok, text, fix: None };
    (!tools.found.is_empty()).then_some(finding)
}

fn table(found: &[Finding], painter: Painter) -> String {
    let width = found.iter().map(|finding| finding.topic.len()).max().unwrap_or(0);
    let mut text = String::new();
    let mut add = |more: std::fmt::Arguments<'_>| {
        // Writing to a `String` cannot fail.
        let written = text.write_fmt(more);
        debug_assert!(written.is_ok());
    };
    for finding in found {
        let (word, colour) = match finding.verdict {
            Verdict::Ok => ("ok", Colour::Green),
            Verdict::Warning => ("warning", Colour::Yellow),
            Verdict::Problem => ("problem", Colour::Red),
        };
        let word = painter.paint(&format!("{word:7}"), colour);
        add(format_args!("{word}  {:width$}  {}\n", finding.topic, escape::line(&finding.text)));
        if let Some(fix) = &finding.fix {
            add(format_args!("{:9}{:width$}  fix: {}\n", "", "", escape::line(fix)));
        }
    }
    let is_ill = found.iter().any(|finding| finding.verdict == Verdict::Problem);
    let who = if rustix::process::geteuid().is_root() { "root" } else { "you" };
    let verdict = if is_ill { "cannot" } else { "can" };
    add(format_args!("\n{who} {verdict} run containers here\n"));
    text
}
