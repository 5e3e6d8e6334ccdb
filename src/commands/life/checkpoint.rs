//! `husk checkpoint`.

use crate::entry;
use crate::exit::Exit;
use crate::session::{Session, absolute};
use crate::verb::Perform;
use anyhow::{Context as _, Result, bail, ensure};
use husk_runtime::checkpoint::{CheckpointRequest, CheckpointScope, StatusFd};
use husk_runtime::{CgroupMode, Settings, Switch};
use std::path::PathBuf;

pub(crate) const MORE: &str = "
What a container is that runs is written to a directory, from which 'husk restore' lets it go on, here or
elsewhere. It ends and is deleted, unless it is to go on. CRIU 3.16 or newer does it.

A directory that is made for the images is root's alone, for they hold what was in memory. CRIU reads those of a
container with a user namespace as somebody else: make one for them that may be entered, where others come not.

EXAMPLES:
  husk checkpoint --image-path saved web-1                   save it, and let it end
  husk checkpoint --leave-running web-1                      into ./checkpoint, and let it go on
  husk checkpoint --pre-dump --image-path first web-1        most of its memory, ahead of time
  husk checkpoint --parent-path ../first --image-path saved web-1   and then the rest
";

/// Save a container that runs, for 'restore'
#[derive(Debug, clap::Args)]
pub(crate) struct Checkpoint {
    #[command(flatten)]
    images: Images,
    /// Images of a --pre-dump, relative to --image-path: save what has changed since
    #[arg(long, value_name = "DIRECTORY")]
    parent_path: Option<PathBuf>,
    /// Save memory only, ahead of time; the container goes on
    #[arg(long)]
    pre_dump: bool,
    /// Let the container go on
    #[arg(long)]
    leave_running: bool,
    /// Leave out TCP connections that are not yet open
    #[arg(long)]
    tcp_skip_in_flight: bool,
    /// Give files that have no name any more one for the time being
    #[arg(long)]
    link_remap: bool,
    /// Send memory to a page server
    #[arg(long, value_name = "ADDRESS:PORT")]
    page_server: Option<String>,
    /// Write a zero byte to this descriptor when --lazy-pages can be asked for
    #[arg(long, value_name = "FD", allow_hyphen_values = true)]
    status_fd: Option<i32>,
    /// The container's name
    id: String,
}

// Options that `checkpoint` and `restore` share. (Not a doc comment, which clap would use as the verb's
// description.)
#[derive(Debug, clap::Args)]
pub(crate) struct Images {
    /// Where the images are
    #[arg(long, value_name = "DIRECTORY", default_value = "checkpoint")]
    image_path: PathBuf,
    /// Where CRIU works and writes its log, if not there
    #[arg(long, value_name = "DIRECTORY")]
    work_path: Option<PathBuf>,
    /// Keep TCP connections that are open
    #[arg(long)]
    tcp_established: bool,
    /// Allow Unix sockets whose other end is outside
    #[arg(long)]
    ext_unix_sk: bool,
    /// Allow a session whose leader is outside
    #[arg(long)]
    shell_job: bool,
    /// Keep locks on files
    #[arg(long)]
    file_locks: bool,
    /// Transfer memory when it is used
    #[arg(long)]
    lazy_pages: bool,
    /// Drop what is in a newer image from the older one
    #[arg(long)]
    auto_dedup: bool,
    /// What to do with properties of cgroups: soft, full, strict, or ignore for nothing
    #[arg(long, value_name = "MODE", default_value = "", hide_default_value = true)]
    manage_cgroups_mode: String,
    /// A file of CRIU's own options [default: /etc/criu/runc.conf]
    #[arg(long, value_name = "FILE")]
    criu_config: Option<PathBuf>,
    /// Leave a namespace of this kind without what is in it: network, which is always so
    #[arg(long, value_name = "NAMESPACE")]
    empty_ns: Vec<String>,
}

impl Images {
    pub(crate) fn settings(&self, more: &[(bool, Switch)]) -> Result<Settings> {
        let all = [
            (self.tcp_established, Switch::TcpEstablished),
            (self.ext_unix_sk, Switch::ExtUnixSk),
            (self.shell_job, Switch::ShellJob),
            (self.file_locks, Switch::FileLocks),
            (self.lazy_pages, Switch::LazyPages),
            (self.auto_dedup, Switch::AutoDedup),
        ];
        let on = all.iter().chain(more).filter(|(is_on, _)| *is_on);
        if let Some(other) = self.empty_ns.iter().find(|kind| *kind != "network") {
            bail!("--empty-ns: namespace {other:?} is not supported");
        }
        let image_path =
            if self.image_path.as_os_str().is_empty() { "checkpoint".as_ref() } else { &*self.image_path };
        Ok(Settings {
            images: absolute(image_path)?,
            work: self.work_path.as_deref().map(absolute).transpose()?,
            switches: on.map(|(_, switch)| *switch).collect(),
            configuration: self.criu_config.as_deref().map(absolute).transpose()?,
            cgroups: CgroupMode::named(&self.manage_cgroups_mode)
                .context("invalid manage-cgroups-mode value")?,
        })
    }
}

impl Perform for Checkpoint {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        let settings = self.images.settings(&[
            (self.leave_running, Switch::LeaveRunning),
            (self.tcp_skip_in_flight, Switch::TcpSkipInFlight),
            (self.link_remap, Switch::LinkRemap),
        ])?;
        let request = CheckpointRequest {
            settings,
            scope: if self.pre_dump { CheckpointScope::Memory } else { CheckpointScope::Whole },
            parent: self.parent_path.filter(|path| !path.as_os_str().is_empty()),
            page_server: self
                .page_server
                .as_deref()
                .filter(|text| !text.is_empty())
                .map(server)
                .transpose()?,
            // -1 means no descriptor, as in runc.
            status_fd: self
                .status_fd
                .filter(|number| *number >= 0)
                .map(|number| StatusFd { number, descriptor: entry::inherited(number) }),
            id: self.id,
        };
        husk_runtime::checkpoint(&session.store, request, |warnings| session.warn(warnings))?;
        Ok(Exit::Success)
    }
}

/// Parses an address and a port; IPv6 addresses are in brackets. The errors use runc's wording.
fn server(text: &str) -> Result<(String, u16)> {
    const USE: &str = "Use --page-server ADDRESS:PORT to specify page server";
    let (address, port) = text.rsplit_once(':').context(USE)?;
    let address = match address.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').context(USE)?,
        None => address,
    };
    ensure!(!address.is_empty() && !port.is_empty() && text.starts_with('[') == address.contains(':'), USE);
    Ok((address.to_owned(), port.parse().context("Invalid port number")?))
}
