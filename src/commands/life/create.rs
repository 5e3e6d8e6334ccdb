//! `husk create`.

use crate::exit::Exit;
use crate::rare::Rare;
use crate::session::{Session, absolute};
use crate::verb::Perform;
use anyhow::Result;
use husk_runtime::{CreateRequest, Keyring, NewRoot, Timings};
use std::path::PathBuf;

pub(crate) const MORE: &str = "
Sets up the container. Its program begins when '{husk} start' is called. If any step fails, husk removes what it
has created.

EXAMPLES:
  {husk} create --bundle web web-1                       create a container
  {husk} create --bundle web --pid-file web.pid web-1    and write its pid to a file
";

pub(crate) const COMMON: &[&str] = &["--bundle", "--pid-file", "--console-socket"];

/// Create a container whose program waits for 'start'
#[derive(Debug, clap::Args)]
pub(crate) struct Create {
    #[command(flatten)]
    creation: Creation,
    #[command(flatten)]
    orphans: Rare<CreateOrphans>,
}

/// The options that only `create` has.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct CreateOrphans {
    /// Accepted for compatibility with runc; 'create' never adopts orphans
    #[arg(long)]
    no_subreaper: bool,
}

impl Perform for Create {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        // See the option's help.
        let CreateOrphans { no_subreaper: _ } = *self.orphans;
        session.prepare()?;
        let request = self.creation.request(session)?;
        husk_runtime::create(&session.store, &request, |warnings| session.warn(warnings))?;
        Ok(Exit::Success)
    }
}

// Options that `create` and `run` share. (Not a doc comment, which clap would use as the verb's description.)
#[derive(Debug, clap::Args)]
pub(crate) struct Creation {
    /// Directory of the bundle
    #[arg(short, long, value_name = "DIRECTORY", default_value = ".")]
    pub(crate) bundle: PathBuf,
    /// Write the pid of the container's process to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) pid_file: Option<PathBuf>,
    /// Send the terminal to this Unix socket
    #[arg(long, value_name = "SOCKET")]
    pub(crate) console_socket: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) rare: Rare<RareCreation>,
    /// ID of the container
    pub(crate) id: String,
}

/// The options of `Creation` that engines seldom use.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct RareCreation {
    /// Configuration to use instead of the bundle's config.json
    #[arg(short = 'f', long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Send the pidfd of the container's process to this Unix socket
    #[arg(long, value_name = "SOCKET")]
    pub(crate) pidfd_socket: Option<PathBuf>,
    /// Move the root file system instead of pivoting, as needed on a ramdisk
    #[arg(long)]
    pub(crate) no_pivot: bool,
    /// Keep the caller's session keyring instead of creating one
    #[arg(long)]
    pub(crate) no_new_keyring: bool,
    /// Pass N descriptors besides the standard streams and LISTEN_FDS
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) preserve_fds: u32,
}

impl Creation {
    pub(crate) fn request(&self, session: &Session<'_>) -> Result<CreateRequest> {
        let path = |path: &Option<PathBuf>| path.as_deref().map(absolute).transpose();
        Ok(CreateRequest {
            id: self.id.clone(),
            bundle: absolute(&self.bundle)?,
            config: path(&self.rare.config)?,
            pid_file: path(&self.pid_file)?,
            console_socket: path(&self.console_socket)?,
            pidfd_socket: path(&self.rare.pidfd_socket)?,
            new_root: if self.rare.no_pivot { NewRoot::Move } else { NewRoot::Pivot },
            keyring: if self.rare.no_new_keyring { Keyring::Callers } else { Keyring::New },
            preserve_fds: self.rare.preserve_fds,
            cgroups: session.cgroups,
            timings: Timings::default(),
        })
    }
}
