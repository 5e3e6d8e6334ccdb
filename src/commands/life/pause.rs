//! `husk pause` and `husk resume`.

use crate::exit::Exit;
use crate::session::Session;
use crate::verb::Perform;
use anyhow::Result;

/// Stop all processes of a container, until 'resume'
#[derive(Debug, clap::Args)]
pub(crate) struct Pause {
    /// The container's name
    id: String,
}

impl Perform for Pause {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        husk_runtime::pause(&session.store, &self.id)?;
        Ok(Exit::Success)
    }
}

/// Let the processes of a paused container go on
#[derive(Debug, clap::Args)]
pub(crate) struct Resume {
    /// The container's name
    id: String,
}

impl Perform for Resume {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        husk_runtime::resume(&session.store, &self.id)?;
        Ok(Exit::Success)
    }
}
