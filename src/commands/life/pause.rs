//! `husk pause` and `husk resume`.

use crate::exit::Exit;
use crate::session::Session;
use crate::verb::Perform;
use anyhow::Result;

/// Pause all processes of a container
#[derive(Debug, clap::Args)]
pub(crate) struct Pause {
    /// ID of the container
    id: String,
}

impl Perform for Pause {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        husk_runtime::pause(&session.store, &self.id)?;
        Ok(Exit::Success)
    }
}

/// Resume the processes of a paused container
#[derive(Debug, clap::Args)]
pub(crate) struct Resume {
    /// ID of the container
    id: String,
}

impl Perform for Resume {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        husk_runtime::resume(&session.store, &self.id)?;
        Ok(Exit::Success)
    }
}
