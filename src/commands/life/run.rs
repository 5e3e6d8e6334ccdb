//! `husk run`.

use super::create::Creation;
use crate::exit::Exit;
use crate::output::timings::Waterfall;
use crate::output::{self, escape};
use crate::session::{Session, absolute};
use crate::verb::Perform;
use anyhow::{Context as _, Result};
use husk_runtime::{AfterExit, Foreground, Orphans, Timings};
use std::path::{Path, PathBuf};

pub(crate) const MORE: &str = "
husk ends as the program does: with its code, or with 128 and the signal that killed it. Signals that husk gets
are passed on to it.

EXAMPLES:
  husk run web-1                        the bundle in this directory
  husk run --bundle /srv/web web-1      another one
  husk run --timings web-1              what took how long
";

/// Create a container, start it, wait for its end and delete it
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    #[command(flatten)]
    creation: Creation,
    /// Do not wait for its end
    #[arg(short, long)]
    detach: bool,
    /// Do not delete it when it has ended
    #[arg(long)]
    keep: bool,
    /// Say at the end what took how long: on standard error, or as a picture
    #[arg(long, value_name = "FILE.svg", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    timings: Option<PathBuf>,
    /// Do not adopt what a container without a pid namespace of its own leaves behind
    #[arg(long)]
    no_subreaper: bool,
}

impl Perform for Run {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        let foreground = Foreground {
            afterwards: if self.keep { AfterExit::Keep } else { AfterExit::Delete },
            orphans: if self.no_subreaper { Orphans::Others } else { Orphans::Ours },
        };
        let how = if self.detach {
            husk_runtime::RunMode::Detached
        } else {
            husk_runtime::RunMode::Foreground(foreground)
        };
        session.prepare()?;
        let picture = self.timings.as_deref().map(absolute).transpose()?;
        let mut request = self.creation.request(session)?;
        if self.timings.is_some() {
            request.timings = Timings::wanted();
        }
        let ended = husk_runtime::run(&session.store, &request, how, |warnings| session.warn(warnings));
        if let (Some(file), Some(picture)) = (self.timings, picture) {
            // A container that failed has not reported its steps, but husk's own spans are known.
            let waterfall = Waterfall::new(request.timings.spans());
            if file == Path::new("-") {
                output::tell(&escape::text(&waterfall.to_string()));
            } else {
                let written = std::fs::write(&picture, waterfall.svg());
                written.with_context(|| format!("write {}", picture.display()))?;
            }
        }
        Ok(ended?.map_or(Exit::Success, Exit::Program))
    }
}
