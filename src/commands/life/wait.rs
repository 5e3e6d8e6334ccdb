//! `husk wait`.

use crate::exit::{self, Exit};
use crate::output;
use crate::session::Session;
use crate::verb::Perform;
use anyhow::Result;

pub(crate) const MORE: &str = "
Prints what its program ended with: its code, or 128 and the number of the signal that killed it. 'unknown' is for
a container that had ended before, and for kernels that tell nobody but its parent (before Linux 6.15, unless husk
comes first).

EXAMPLES:
  husk wait web-1                   0 when all went well
  husk wait web-1 && notify-send Done
";

/// Wait until a container has ended, and print how
#[derive(Debug, clap::Args)]
pub(crate) struct Wait {
    /// The container's name
    id: String,
}

impl Perform for Wait {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        let status = husk_runtime::wait(&session.store, &self.id)?;
        output::print(match status.and_then(exit::number) {
            Some(number) => format!("{number}\n"),
            None => "unknown\n".to_owned(),
        })?;
        Ok(Exit::Success)
    }
}
