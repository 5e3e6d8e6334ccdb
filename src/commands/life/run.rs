//! `husk run`.

use super::create::Creation;
use crate::exit::Exit;
use crate::output::timings::TimingsOption;
use crate::rare::Rare;
use crate::session::Session;
use crate::verb::Perform;
use anyhow::Result;
use husk_runtime::{AfterExit, Foreground, Orphans};

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
    #[command(flatten)]
    timings: TimingsOption,
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
        let report = self.rare.timings.clone().report("the program")?;
        let mut request = self.creation.request(session)?;
        request.timings = report.timings.clone();
        let executed = husk_runtime::run(&session.store, &request, how, |warnings| session.warn(warnings));
        report.show()?;
        Ok(executed?.into())
    }
}
