//! `husk state`.

use crate::exit::Exit;
use crate::output::{self, escape};
use crate::session::Session;
use crate::verb::Perform;
use anyhow::Result;

/// Print the state of a container as JSON
#[derive(Debug, clap::Args)]
pub(crate) struct State {
    /// ID of the container
    id: String,
}

impl Perform for State {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        // Prints no final newline, as runc does.
        let state = husk_runtime::state(&session.store, &self.id)?;
        output::print(escape::json(serde_json::to_string_pretty(&state)?))?;
        Ok(Exit::Success)
    }
}
