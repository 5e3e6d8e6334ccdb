//! `husk exec`.

use crate::exit::Exit;
use crate::rare::Rare;
use crate::session::{Session, absolute};
use crate::verb::Perform;
use anyhow::Result;
use husk_runtime::exec::{Changes, ExecProgram, ExecRequest, NoNewPrivileges, Paused, Wait};
use std::path::PathBuf;

pub(crate) const MORE: &str = "
husk exits with the exit code of the process, or with 128 plus the number of the signal that killed it. It exits
with 255 if it could not start the process.

EXAMPLES:
  {husk} exec -t web-1 sh                      start a shell with a terminal
  {husk} exec -u www-data:www-data web-1 id    run as another user
  {husk} exec --process probe.json web-1       run a process that a file describes
";

pub(crate) const COMMON: &[&str] = &["--process", "--pid-file", "--detach", "--tty", "--console-socket"];

/// Run another process in a container
#[derive(Debug, clap::Args)]
pub(crate) struct Exec {
    /// File that describes the process, in the format of 'process' in config.json
    #[arg(short, long, value_name = "FILE")]
    process: Option<PathBuf>,
    /// Return once the process has started
    #[arg(short, long)]
    detach: bool,
    /// Give the process a terminal
    #[arg(short, long)]
    tty: bool,
    /// Send the terminal to this Unix socket
    #[arg(long, value_name = "SOCKET")]
    console_socket: Option<PathBuf>,
    /// Write the pid of the process to this file
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
    #[command(flatten)]
    rare: Rare<RareExec>,
    /// ID of the container
    id: String,
    /// Program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// The options that engines seldom use, because '--process' includes them.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct RareExec {
    /// Send the pidfd of the process to this Unix socket
    #[arg(long, value_name = "SOCKET")]
    pidfd_socket: Option<PathBuf>,
    /// User and group, by name or number as in the container
    #[arg(short, long, value_name = "USER[:GROUP]", allow_hyphen_values = true)]
    user: Option<String>,
    /// Additional group; may be repeated
    #[arg(short = 'g', long, value_name = "GID")]
    additional_gids: Vec<u32>,
    /// Working directory of the process
    #[arg(long, value_name = "DIRECTORY")]
    cwd: Option<PathBuf>,
    /// Environment variable; may be repeated
    #[arg(short, long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Additional capability; may be repeated
    #[arg(short, long, value_name = "CAPABILITY")]
    cap: Vec<String>,
    /// Prevent the process from gaining privileges
    #[arg(long)]
    no_new_privs: bool,
    /// AppArmor profile of the process
    #[arg(long, value_name = "PROFILE")]
    apparmor: Option<String>,
    /// SELinux label of the process
    #[arg(long, value_name = "LABEL")]
    process_label: Option<String>,
    /// Pass N descriptors besides the standard streams and LISTEN_FDS
    #[arg(long, value_name = "N", default_value_t = 0)]
    preserve_fds: u32,
    /// Wait while the container is paused, instead of failing
    #[arg(long)]
    ignore_paused: bool,
    /// Cgroup for the process, relative to the container's; may be repeated
    #[arg(long, value_name = "[CONTROLLER:]PATH")]
    cgroup: Vec<String>,
}

impl Perform for Exec {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        let request = self.request()?;
        let executed = husk_runtime::exec(&session.store, &request, |warnings| session.warn(warnings))?;
        Ok(executed.into())
    }
}

impl Exec {
    fn request(self) -> Result<ExecRequest> {
        let path = |path: Option<PathBuf>| path.as_deref().map(absolute).transpose();
        let rare = self.rare.into_inner();
        let program = match path(self.process)? {
            Some(file) => ExecProgram::File(file),
            None => ExecProgram::Changed {
                changes: Changes {
                    args: self.args,
                    env: rare.env,
                    cwd: rare.cwd,
                    terminal: self.tty,
                    user: None,
                    additional_gids: rare.additional_gids,
                    capabilities: rare.cap,
                    apparmor_profile: rare.apparmor,
                    selinux_label: rare.process_label,
                    no_new_privileges: rare.no_new_privs.then_some(NoNewPrivileges::Set),
                },
                user: rare.user,
            },
        };
        Ok(ExecRequest {
            id: self.id,
            program,
            pid_file: path(self.pid_file)?,
            console_socket: path(self.console_socket)?,
            pidfd_socket: path(rare.pidfd_socket)?,
            preserve_fds: rare.preserve_fds,
            wait: if self.detach { Wait::Detached } else { Wait::Foreground },
            paused: if rare.ignore_paused { Paused::Waits } else { Paused::Refused },
            cgroups: rare.cgroup,
        })
    }
}
