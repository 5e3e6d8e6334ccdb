//! `husk run`.

use super::create::Creation;
use crate::exit::Exit;
use crate::output::timings::Waterfall;
use crate::output::{self, escape};
use crate::rare::Rare;
use crate::session::{Session, absolute};
use crate::verb::Perform;
use anyhow::{Context as _, Result};
use husk_runtime::{AfterExit, Foreground, Orphans, Timings};
use std::path::{Path, PathBuf};

pub(crate) const MORE: &str = "
husk exits with the program's exit code, or with 128 plus the number of the signal that killed the program.
It forwards the signals that it receives to the program.

EXAMPLES:
  {husk} run web-1                      run the bundle in the current directory
  {husk} run --bundle /srv/web web-1    run another bundle
  {husk} run --detach web-1             run it in the background
  {husk} run --timings web-1            show how long the steps took, and which took longest
  {husk} run --timings=all.txt web-1    write the time of every step to a file
  {husk} run --timings=all.svg web-1    draw them
";

pub(crate) const COMMON: &[&str] = &["--bundle", "--pid-file", "--console-socket", "--detach"];

/// Create and start a container, wait for it to exit, and delete it
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    #[command(flatten)]
    creation: Creation,
    /// Return once the container has started
    #[arg(short, long)]
    detach: bool,
    #[command(flatten)]
    rare: Rare<RareRun>,
}

/// The options of `run` that engines seldom use.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct RareRun {
    /// Keep the container after it exits
    #[arg(long)]
    keep: bool,
    /// Report how long steps took, on standard error or in a text or SVG file
    #[arg(long, value_name = "FILE.svg", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    timings: Option<PathBuf>,
    /// Do not adopt orphans of a container without a pid namespace of its own
    #[arg(long)]
    no_subreaper: bool,
}

impl Perform for Run {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        let foreground = Foreground {
            afterwards: if self.rare.keep { AfterExit::Keep } else { AfterExit::Delete },
            orphans: if self.rare.no_subreaper { Orphans::Others } else { Orphans::Ours },
        };
        let how = if self.detach {
            husk_runtime::RunMode::Detached
        } else {
            husk_runtime::RunMode::Foreground(foreground)
        };
        session.prepare()?;
        let picture = self.rare.timings.as_deref().map(absolute).transpose()?;
        let mut request = self.creation.request(session)?;
        if self.rare.timings.is_some() {
            request.timings = Timings::wanted();
        }
        let executed = husk_runtime::run(&session.store, &request, how, |warnings| session.warn(warnings));
        if let (Some(file), Some(picture)) = (&self.rare.timings, picture) {
            // A container that failed has not reported its steps, but husk's own spans are known.
            let waterfall = Waterfall::new(request.timings.spans());
            if file == Path::new("-") {
                output::tell(&escape::text(&waterfall.folded().to_string()));
            } else {
                let is_picture = picture.extension().is_some_and(|extension| extension == "svg");
                let text = if is_picture {
                    waterfall.folded().svg()
                } else {
                    escape::text(&waterfall.to_string()).into_owned()
                };
                let written = std::fs::write(&picture, text);
                written.with_context(|| format!("write {}", picture.display()))?;
            }
        }
        Ok(executed?.into())
    }
}
