//! `run`.

use super::Perform;
use super::create::Creation;
use crate::exit::Exit;
use crate::session::Session;
use anyhow::{Result, ensure};

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
    /// Accepted for runc's callers: husk is never a subreaper
    #[arg(long, hide = true)]
    no_subreaper: bool,
}

impl Perform for Run {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        ensure!(!self.detach && !self.keep, "--detach and --keep are not supported yet");
        session.prepare()?;
        let request = self.creation.request()?;
        let status = husk_runtime::run(&session.store, &request, |warnings| session.warn(warnings))?;
        Ok(Exit::Program(status))
    }
}
