//! `resume`.

use crate::exit::Exit;
use crate::session::Session;
use crate::verb::Perform;
use anyhow::Result;

/// Let the processes of a paused container go on
#[derive(Debug, clap::Args)]
pub(super) struct Resume {
    /// The container's name
    id: String,
}

impl Perform for Resume {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        husk_runtime::resume(&session.store, &self.id)?;
        Ok(Exit::Success)
    }
}
