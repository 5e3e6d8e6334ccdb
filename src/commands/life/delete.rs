//! `husk delete`.

use crate::each::Selection;
use crate::exit::Exit;
use crate::session::Session;
use crate::verb::Perform;
use anyhow::Result;
use husk_runtime::Warning;

/// Delete a stopped container
#[derive(Debug, clap::Args)]
pub(crate) struct Delete {
    /// Kill the container first if it runs; ignore one that does not exist
    #[arg(short, long)]
    force: bool,
    /// Delete every container whose ID matches the regular expression ID
    #[arg(short, long)]
    regex: bool,
    /// ID of the container
    id: String,
}

impl Perform for Delete {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        let warn = |warnings: &[Warning]| session.warn(warnings);
        let delete = |id: &str| {
            if self.force {
                husk_runtime::force_delete(&session.store, id, warn)
            } else {
                husk_runtime::delete(&session.store, id, warn)
            }
        };
        Selection::of(self.regex).each(session, &self.id, delete)
    }
}
