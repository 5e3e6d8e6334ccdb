//! `husk kill`.

use crate::each::Selection;
use crate::exit::Exit;
use crate::session::Session;
use crate::verb::Perform;
use anyhow::{Context as _, Result};
use husk_runtime::KillScope;

pub(crate) const MORE: &str = "
EXAMPLES:
  husk kill web-1              ask it to end
  husk kill web-1 KILL         end it
  husk kill web-1 RTMIN+3      or 37, or SIGRTMIN+3
  husk kill --all web-1 KILL   and all that it left behind
  husk kill --regex '^web-'    every one whose name begins so
";

/// Send a signal to a container's process
#[derive(Debug, clap::Args)]
pub(crate) struct Kill {
    /// To all of its processes; that there is none is no error
    #[arg(short, long)]
    all: bool,
    /// The name is a regular expression: to every container that it matches
    #[arg(short, long)]
    regex: bool,
    /// The container's name
    id: String,
    /// A number or a name
    #[arg(default_value = "SIGTERM")]
    signal: String,
}

impl Perform for Kill {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        let named = Selection::of(self.regex);
        if self.signal == "0" {
            return named.each(session, &self.id, |id| match husk_runtime::check(&session.store, id) {
                Err(husk_runtime::Error::State(_)) if self.all => Ok(()),
                there => there,
            });
        }
        let signal = husk_runtime::signal(&self.signal);
        let signal = signal.with_context(|| format!("unknown signal {:?}", self.signal))?;
        let whom = if self.all { KillScope::All } else { KillScope::First };
        named.each(session, &self.id, |id| husk_runtime::kill(&session.store, id, signal, whom))
    }
}
