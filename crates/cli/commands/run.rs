//! `run`.

use super::Perform;
use super::create::Creation;
use crate::exit::Exit;
use crate::session::Session;
use anyhow::Result;
use husk_runtime::{Afterwards, Foreground, Orphans};

pub(super) const MORE: &str = "
husk ends as the program does: with its code, or with 128 and the signal that killed it. Signals that husk gets
are passed on to it.

Examples:
  husk run web-1                        the bundle in this directory
  husk run --bundle /srv/web web-1      another one
";

/// Create a container, start it, wait for its end and delete it
#[derive(Debug, clap::Args)]
pub(super) struct Run {
    #[command(flatten)]
    creation: Creation,
    /// Do not wait for its end
    #[arg(short, long)]
    detach: bool,
    /// Do not delete it when it has ended
    #[arg(long)]
    keep: bool,
    /// Do not adopt what a container without a pid namespace of its own leaves behind
    #[arg(long)]
    no_subreaper: bool,
}

impl Perform for Run {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        let foreground = Foreground {
            afterwards: if self.keep { Afterwards::Keep } else { Afterwards::Delete },
            orphans: if self.no_subreaper { Orphans::Others } else { Orphans::Ours },
        };
        let how =
            if self.detach { husk_runtime::Run::Detached } else { husk_runtime::Run::Foreground(foreground) };
        session.prepare()?;
        let request = self.creation.request()?;
        let status = husk_runtime::run(&session.store, &request, how, |warnings| session.warn(warnings))?;
        Ok(status.map_or(Exit::Success, Exit::Program))
    }
}
