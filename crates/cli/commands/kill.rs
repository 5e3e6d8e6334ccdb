//! `kill`.

use super::Perform;
use crate::exit::Exit;
use crate::session::Session;
use anyhow::{Context as _, Result};

pub(super) const MORE: &str = "
Examples:
  husk kill web-1              ask it to end
  husk kill web-1 KILL         end it
  husk kill web-1 RTMIN+3      or 37, or SIGRTMIN+3
";

/// Send a signal to a container's process
#[derive(Debug, clap::Args)]
pub(super) struct Kill {
    /// The container's name
    id: String,
    /// A number or a name
    #[arg(default_value = "SIGTERM")]
    signal: String,
}

impl Perform for Kill {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        let signal = husk_runtime::signal(&self.signal);
        let signal = signal.with_context(|| format!("unknown signal {:?}", self.signal))?;
        husk_runtime::kill(&session.store, &self.id, signal)?;
        Ok(Exit::Success)
    }
}
