//! `husk kill`.

use crate::each::Selection;
use crate::exit::Exit;
use crate::session::Session;
use crate::verb::Perform;
use anyhow::{Context as _, Result};
use husk_runtime::KillScope;

pub(crate) const MORE: &str = "
The signal goes to the container's first process, unless --all is given.

EXAMPLES:
  {husk} kill web-1               send SIGTERM
  {husk} kill web-1 KILL          send SIGKILL
  {husk} kill web-1 RTMIN+3       send a realtime signal; 37 and SIGRTMIN+3 are the same
  {husk} kill --all web-1 KILL    kill every process of the container
  {husk} kill --regex '^web-'     send SIGTERM to each container whose ID begins with web-
";

/// Send a signal to a container
#[derive(Debug, clap::Args)]
pub(crate) struct Kill {
    /// Signal all processes of the container; ignore that it has none
    #[arg(short, long)]
    all: bool,
    /// Signal every container whose ID matches the regular expression ID
    #[arg(short, long)]
    regex: bool,
    /// ID of the container
    id: String,
    /// Name or number of the signal
    #[arg(default_value = "SIGTERM")]
    signal: String,
}

impl Perform for Kill {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        let named = Selection::of(self.regex);
        if self.signal == "0" {
            return named.each(session, &self.id, |id| match husk_runtime::check(&session.store, id) {
                Err(husk_runtime::Error::State(_)) if self.all => Ok(()),
                there => there,
            });
        }
        let signal = husk_runtime::signal(&self.signal);
        let signal = signal.with_context(|| format!("unknown signal {:?}", self.signal))?;
        let whom = if self.all { KillScope::All } else { KillScope::First };
        named.each(session, &self.id, |id| husk_runtime::kill(&session.store, id, signal, whom))
    }
}
