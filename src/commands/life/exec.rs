//! `husk exec`.

use crate::exit::Exit;
use crate::session::{Session, absolute};
use crate::verb::Perform;
use anyhow::Result;
use husk_runtime::exec::{Changes, ExecProgram, ExecRequest, NoNewPrivileges, Paused, Wait};
use std::path::PathBuf;

pub(crate) const MORE: &str = "
husk ends as the process does: with its code, or with 128 and the signal that killed it; with 255 if there was
no process.

EXAMPLES:
  husk exec -t web-1 sh                    a shell in it
  husk exec -u www-data:www-data web-1 id  as one of its users
  husk exec --process probe.json web-1     as written in the form of a config.json's 'process'
";

/// Run one more process in a container
#[derive(Debug, clap::Args)]
pub(crate) struct Exec {
    /// The process, in a file of the form of a config.json's 'process'
    #[arg(short, long, value_name = "FILE")]
    process: Option<PathBuf>,
    /// Do not wait for its end
    #[arg(short, long)]
    detach: bool,
    /// Give it a terminal
    #[arg(short, long)]
    tty: bool,
    /// Send the terminal to whoever listens there
    #[arg(long, value_name = "SOCKET")]
    console_socket: Option<PathBuf>,
    /// Send its pidfd to whoever listens there
    #[arg(long, value_name = "SOCKET")]
    pidfd_socket: Option<PathBuf>,
    /// Write its pid there
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// Who it runs as, by name or number of the container
    #[arg(short, long, value_name = "USER[:GROUP]", allow_hyphen_values = true)]
    user: Option<String>,
    /// One more group; may be said several times
    #[arg(short = 'g', long, value_name = "GID")]
    additional_gids: Vec<u32>,
    /// Its working directory
    #[arg(long, value_name = "DIRECTORY")]
    cwd: Option<PathBuf>,
    /// One more variable; may be said several times
    #[arg(short, long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// One more capability; may be said several times
    #[arg(short, long, value_name = "CAPABILITY")]
    cap: Vec<String>,
    /// Whether it may not gain privileges
    #[arg(long)]
    no_new_privs: bool,
    /// Its AppArmor profile
    #[arg(long, value_name = "PROFILE")]
    apparmor: Option<String>,
    /// Its SELinux label
    #[arg(long, value_name = "LABEL")]
    process_label: Option<String>,
    /// Pass on N descriptors more than the standard ones and LISTEN_FDS
    #[arg(long, value_name = "N", default_value_t = 0)]
    preserve_fds: u32,
    /// In a paused container: wait until it goes on
    #[arg(long)]
    ignore_paused: bool,
    /// Put it into this cgroup below the container's
    #[arg(long, value_name = "[CONTROLLER:]PATH")]
    cgroup: Vec<String>,
    /// The container's name
    id: String,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

impl Perform for Exec {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        let request = self.request()?;
        let status = husk_runtime::exec(&session.store, &request, |warnings| session.warn(warnings))?;
        Ok(status.map_or(Exit::Success, Exit::Program))
    }
}

impl Exec {
    fn request(self) -> Result<ExecRequest> {
        let path = |path: Option<PathBuf>| path.as_deref().map(absolute).transpose();
        let program = match path(self.process)? {
            Some(file) => ExecProgram::File(file),
            None => ExecProgram::Changed {
                changes: Changes {
                    args: self.args,
                    env: self.env,
                    cwd: self.cwd,
                    terminal: self.tty,
                    user: None,
                    additional_gids: self.additional_gids,
                    capabilities: self.cap,
                    apparmor_profile: self.apparmor,
                    selinux_label: self.process_label,
                    no_new_privileges: self.no_new_privs.then_some(NoNewPrivileges::Set),
                },
                user: self.user,
            },
        };
        Ok(ExecRequest {
            id: self.id,
            program,
            pid_file: path(self.pid_file)?,
            console_socket: path(self.console_socket)?,
            pidfd_socket: path(self.pidfd_socket)?,
            preserve_fds: self.preserve_fds,
            wait: if self.detach { Wait::Detached } else { Wait::Foreground },
            paused: if self.ignore_paused { Paused::Waits } else { Paused::Refused },
            cgroups: self.cgroup,
        })
    }
}
