//! `husk start`.

use crate::exit::Exit;
use crate::session::Session;
use crate::verb::Perform;
use anyhow::Result;

/// Start the program of a created container
#[derive(Debug, clap::Args)]
pub(crate) struct Start {
    /// ID of the container
    id: String,
}

impl Perform for Start {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        husk_runtime::start(&session.store, &self.id, |warnings| session.warn(warnings))?;
        Ok(Exit::Success)
    }
}
