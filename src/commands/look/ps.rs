//! `husk ps`.

use crate::exit::Exit;
use crate::output::{self, escape};
use crate::session::Session;
use crate::verb::Perform;
use anyhow::{Result, bail};
use husk_runtime::ps;

pub(crate) const MORE: &str = "
What follows the name is for the host's ps(1), in place of -ef.

EXAMPLES:
  husk ps web-1
  husk ps web-1 -o pid,rss,args
  husk ps --format json web-1  the pids, and no more
";

/// Print the processes of a container
#[derive(Debug, clap::Args)]
pub(crate) struct Ps {
    /// How: table or json
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    format: String,
    /// The container's name
    id: String,
    /// What ps(1) is to do
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "PS OPTIONS")]
    arguments: Vec<String>,
}

impl Perform for Ps {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        let pids = ps::pids(&session.store, &self.id)?;
        let text = match self.format.as_str() {
            "json" => format!("{}\n", serde_json::to_string(&pids)?),
            "table" => {
                let usual = ["-ef".to_owned()];
                let arguments = if self.arguments.is_empty() { &usual[..] } else { &self.arguments };
                ps::table(&pids, arguments)?
            }
            _ => bail!("invalid format option"),
        };
        output::print(&*escape::text(&text))?;
        Ok(Exit::Success)
    }
}
