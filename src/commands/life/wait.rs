//! `husk wait`.

use crate::exit::{self, Exit};
use crate::output;
use crate::session::Session;
use crate::verb::Perform;
use anyhow::Result;

pub(crate) const MORE: &str = "
Prints the program's exit code, or 128 plus the number of the signal that killed the program.

Prints 'unknown' if the container had already stopped. Linux before 6.15 reports an exit code to the parent process
only, so there the answer may be 'unknown' too.

EXAMPLES:
  {husk} wait web-1                        print the exit code
  {husk} wait web-1 && notify-send Done    run a command afterwards
";

/// Wait for a container to stop, and print its exit code
#[derive(Debug, clap::Args)]
pub(crate) struct Wait {
    /// ID of the container
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
