//! `husk restore`.

use super::checkpoint::Images;
use crate::exit::Exit;
use crate::session::{Session, absolute};
use crate::verb::Perform;
use anyhow::Result;
use husk_runtime::restore::RestoreRequest;
use husk_runtime::{AfterExit, Foreground, Keyring, NewRoot, Orphans, RunMode, Timings};
use std::path::PathBuf;

pub(crate) const MORE: &str = "
The container goes on where 'husk checkpoint' has left it. Its bundle is needed: what is mounted in it from the host
is what config.json says now. Pipes among its standard streams are replaced by those of husk.

EXAMPLES:
  husk restore --image-path saved --bundle web web-1            in the foreground, as 'run'
  husk restore --image-path saved --bundle web --detach web-1
";

/// Let a container go on that 'checkpoint' has saved
#[derive(Debug, clap::Args)]
pub(crate) struct Restore {
    /// The bundle's directory
    #[arg(short, long, value_name = "DIRECTORY", default_value = ".")]
    bundle: PathBuf,
    #[command(flatten)]
    images: Images,
    /// Do not wait for its end
    #[arg(short, long)]
    detach: bool,
    /// Write the pid of the container's process there
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// Send the terminal to whoever listens there
    #[arg(long, value_name = "SOCKET")]
    console_socket: Option<PathBuf>,
    /// Do not adopt what a container without a pid namespace of its own leaves behind
    #[arg(long)]
    no_subreaper: bool,
    /// Accepted for runc's callers; CRIU decides how the root file system becomes the root
    #[arg(long)]
    no_pivot: bool,
    /// The AppArmor profile or SELinux label that the processes get instead of theirs
    #[arg(long, value_name = "TYPE:NAME")]
    lsm_profile: Option<String>,
    /// The SELinux context that its mounts get instead of theirs
    #[arg(long, value_name = "CONTEXT")]
    lsm_mount_context: Option<String>,
    /// The container's name
    id: String,
}

impl Perform for Restore {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        // See the option's help.
        let Self { no_pivot: _, .. } = self;
        session.prepare()?;
        let path = |path: &Option<PathBuf>| path.as_deref().map(absolute).transpose();
        let said = |text: Option<String>| text.filter(|text| !text.is_empty());
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
                timings: Timings::default(),
            },
        };
        let foreground = Foreground {
            afterwards: AfterExit::Delete,
            orphans: if self.no_subreaper { Orphans::Others } else { Orphans::Ours },
        };
        let how = if self.detach { RunMode::Detached } else { RunMode::Foreground(foreground) };
        let ended = husk_runtime::restore(&session.store, &request, how, |warnings| session.warn(warnings))?;
        Ok(ended.map_or(Exit::Success, Exit::Program))
    }
}
