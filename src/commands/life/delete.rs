//! `husk delete`.

use crate::each::Selection;
use crate::exit::Exit;
use crate::session::Session;
use crate::verb::Perform;
use anyhow::Result;
use husk_runtime::Warning;

/// Delete a container that has stopped
#[derive(Debug, clap::Args)]
pub(crate) struct Delete {
    /// Whatever it does; one that is not there is no error
    #[arg(short, long)]
    force: bool,
    /// The name is a regular expression: every container that it matches
    #[arg(short, long)]
    regex: bool,
    /// The container's name
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
