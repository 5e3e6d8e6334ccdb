//! `husk ps`.

use crate::exit::Exit;
use crate::output::{self, escape};
use crate::session::Session;
use crate::verb::Perform;
use anyhow::{Result, bail};
use husk_runtime::ps;

pub(crate) const MORE: &str = "
Runs ps(1) on the host, with -ef or the given options.

EXAMPLES:
  {husk} ps web-1                    list the processes
  {husk} ps web-1 -o pid,rss,args    choose the columns
  {husk} ps --format json web-1      print the pids as a JSON array
";

/// List the processes of a container
#[derive(Debug, clap::Args)]
pub(crate) struct Ps {
    /// Output format: table or json
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    format: String,
    /// ID of the container
    id: String,
    /// Options for ps(1)
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
