//! `husk checkpoint`.

use crate::exit::Exit;
use crate::output::timings::TimingsOption;
use crate::session::{Session, absolute};
use crate::verb::Perform;
use anyhow::{Context as _, Result, bail, ensure};
use husk_runtime::checkpoint::{CheckpointRequest, CheckpointScope, StatusFd};
use husk_runtime::{CgroupMode, Settings, Switch};
use std::path::PathBuf;

pub(crate) const MORE: &str = "
Saves the container's processes to a directory, and then stops and deletes the container. '{husk} restore' continues
it, on this machine or another. Needs CRIU 3.16 or newer, and without root 3.18 or newer.

Images contain the memory of the container, so husk creates their directory for its caller only. If root's container has
a user namespace, CRIU reads the images as another user: create a directory that this user can enter and others cannot.

EXAMPLES:
  {husk} checkpoint --image-path saved web-1               save and stop the container
  {husk} checkpoint --leave-running web-1                  save to ./checkpoint, and continue
  {husk} checkpoint --timings web-1                        show how long the steps took
  {husk} checkpoint --pre-dump --image-path first web-1    save most of the memory ahead of time
  {husk} checkpoint --parent-path ../first --image-path saved web-1    then save the rest
";

/// Save a running container, for 'restore'
#[derive(Debug, clap::Args)]
pub(crate) struct Checkpoint {
    #[command(flatten)]
    images: Images,
    /// Images of an earlier --pre-dump, relative to --image-path
    #[arg(long, value_name = "DIRECTORY")]
    parent_path: Option<PathBuf>,
    /// Save only memory, and leave the container running
    #[arg(long)]
    pre_dump: bool,
    /// Leave the container running
    #[arg(long)]
    leave_running: bool,
    /// Skip TCP connections that are not yet established
    #[arg(long)]
    tcp_skip_in_flight: bool,
    /// Give deleted files that are still open a temporary name
    #[arg(long)]
    link_remap: bool,
    /// Send memory to this page server
    #[arg(long, value_name = "ADDRESS:PORT")]
    page_server: Option<String>,
    /// Write a zero byte to this descriptor when lazy pages can be requested
    #[arg(long, value_name = "FD", allow_hyphen_values = true)]
    status_fd: Option<i32>,
    #[command(flatten)]
    timings: TimingsOption,
    /// ID of the container
    id: String,
}

// Options that `checkpoint` and `restore` share. (Not a doc comment, which clap would use as the verb's
// description.)
#[derive(Debug, clap::Args)]
pub(crate) struct Images {
    /// Directory of the images
    #[arg(long, value_name = "DIRECTORY", default_value = "checkpoint")]
    image_path: PathBuf,
    /// Directory for CRIU's log and temporary files [default: --image-path]
    #[arg(long, value_name = "DIRECTORY")]
    work_path: Option<PathBuf>,
    /// Keep established TCP connections
    #[arg(long)]
    tcp_established: bool,
    /// Allow Unix sockets connected to processes outside the container
    #[arg(long)]
    ext_unix_sk: bool,
    /// Allow a session whose leader is outside the container
    #[arg(long)]
    shell_job: bool,
    /// Keep file locks
    #[arg(long)]
    file_locks: bool,
    /// Transfer memory pages when they are first used
    #[arg(long)]
    lazy_pages: bool,
    /// Remove pages from older images that newer images contain
    #[arg(long)]
    auto_dedup: bool,
    /// How to save or restore cgroups: soft, full, strict or ignore
    #[arg(long, value_name = "MODE", default_value = "", hide_default_value = true)]
    manage_cgroups_mode: String,
    /// Configuration file of CRIU [default: /etc/criu/runc.conf]
    #[arg(long, value_name = "FILE")]
    criu_config: Option<PathBuf>,
    /// Leave this namespace empty: network, which is always left empty
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
                .context("invalid manage-cgroups-mode value: use soft, full, strict or ignore")?,
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
        let report = self.timings.report("its end")?;
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
                .map(|number| StatusFd { number, descriptor: husk_runtime::inherited(number) }),
            timings: report.timings.clone(),
            id: self.id,
        };
        let saved = husk_runtime::checkpoint(&session.store, request, |warnings| session.warn(warnings));
        report.show()?;
        saved?;
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
