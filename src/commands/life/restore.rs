//! `husk restore`.

use super::checkpoint::Images;
use crate::exit::Exit;
use crate::output::timings::TimingsOption;
use crate::session::{Session, absolute};
use crate::verb::Perform;
use anyhow::Result;
use husk_runtime::restore::RestoreRequest;
use husk_runtime::{AfterExit, Foreground, Keyring, NewRoot, Orphans, RunMode};
use std::path::PathBuf;

pub(crate) const MORE: &str = "
Continues the processes that '{husk} checkpoint' has saved. husk takes the bind mounts from the bundle's config.json,
and replaces pipes among the standard streams by its own.

EXAMPLES:
  {husk} restore --image-path saved --bundle web web-1             in the foreground, like 'run'
  {husk} restore --image-path saved --bundle web --detach web-1    in the background
  {husk} restore --image-path saved --bundle web --timings web-1   show how long the steps took
";

/// Continue a container that 'checkpoint' has saved
#[derive(Debug, clap::Args)]
pub(crate) struct Restore {
    /// Directory of the bundle
    #[arg(short, long, value_name = "DIRECTORY", default_value = ".")]
    bundle: PathBuf,
    #[command(flatten)]
    images: Images,
    /// Return once the container runs
    #[arg(short, long)]
    detach: bool,
    /// Write the pid of the container's process to this file
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// Send the terminal to this Unix socket
    #[arg(long, value_name = "SOCKET")]
    console_socket: Option<PathBuf>,
    /// Do not adopt orphans of a container without a pid namespace of its own
    #[arg(long)]
    no_subreaper: bool,
    /// Accepted for compatibility with runc; CRIU sets the root file system
    #[arg(long)]
    no_pivot: bool,
    /// AppArmor profile or SELinux label to use instead of the saved one
    #[arg(long, value_name = "TYPE:NAME")]
    lsm_profile: Option<String>,
    /// SELinux context of the mounts to use instead of the saved one
    #[arg(long, value_name = "CONTEXT")]
    lsm_mount_context: Option<String>,
    #[command(flatten)]
    timings: TimingsOption,
    /// ID of the container
    id: String,
}

impl Perform for Restore {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        // See the option's help.
        let Self { no_pivot: _, .. } = self;
        session.prepare()?;
        let path = |path: &Option<PathBuf>| path.as_deref().map(absolute).transpose();
        let said = |text: Option<String>| text.filter(|text| !text.is_empty());
        let report = self.timings.report("the program")?;
        let request = RestoreRequest {
            settings: self.images.settings(&[])?,
            lsm_profile: said(self.lsm_profile),
            lsm_mount_context: said(self.lsm_mount_context),
            creation: husk_runtime::CreateRequest {
                id: self.id,
                bundle: absolute(&self.bundle)?,
                config: None,
                pid_file: path(&self.pid_file)?,
                console_socket: path(&self.console_socket)?,
                pidfd_socket: None,
                new_root: NewRoot::Pivot,
                keyring: Keyring::New,
                preserve_fds: 0,
                cgroups: session.cgroups,
                timings: report.timings.clone(),
            },
        };
        let foreground = Foreground {
            afterwards: AfterExit::Delete,
            orphans: if self.no_subreaper { Orphans::Others } else { Orphans::Ours },
        };
        let how = if self.detach { RunMode::Detached } else { RunMode::Foreground(foreground) };
        let executed =
            husk_runtime::restore(&session.store, &request, how, |warnings| session.warn(warnings));
        report.show()?;
        Ok(executed?.into())
    }
}
