//! `husk register`.

use crate::exit::Exit;
use crate::output::{self, escape};
use crate::session::{Session, absolute};
use crate::verb::Perform;
use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use husk_runtime::CgroupManager;
use husk_runtime::register::{self, Registration};
use std::env;
use std::path::{Path, PathBuf};

pub(crate) const MORE: &str = "
ENGINE is podman, containerd, docker or cri-o. Without an option husk can be chosen there: 'podman --runtime husk',
'docker run --runtime husk', the handler 'husk' of a Kubernetes RuntimeClass. As a user it is your own configuration
that is written, below $XDG_CONFIG_HOME. 'husk --systemd-cgroup register containerd' has systemd make the cgroups.

EXAMPLES:
  husk register docker --print   what would be written
  husk register podman           podman --runtime husk run ...
  husk register cri-o --default  for everything that names no other
  husk register docker --undo    as it was before
";

/// Have an engine know husk
#[derive(Debug, clap::Args)]
pub(crate) struct Register {
    /// Print what would be written, and write nothing
    #[arg(long, alias = "dry-run")]
    print: bool,
    /// Have it use husk where nobody asks for another
    #[arg(long)]
    default: bool,
    /// Have it forget husk
    #[arg(long, conflicts_with = "default")]
    undo: bool,
    /// Where configurations are [default: /etc, or a user's]
    #[arg(long, value_name = "DIRECTORY")]
    etc: Option<PathBuf>,
    /// Which binary it is to start [default: this one]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Who starts containers
    #[arg(hide_possible_values = true)]
    engine: Engine,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Engine {
    Podman,
    Containerd,
    Docker,
    CriO,
}

impl Perform for Register {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        // A user's engine is run by the user's service manager.
        let systemctl = if rustix::process::geteuid().is_root() { "systemctl" } else { "systemctl --user" };
        let (engine, restart) = match self.engine {
            Engine::Podman => {
                (register::Engine::Podman, "nothing to restart: podman reads it each time".to_owned())
            }
            Engine::Containerd => {
                (register::Engine::Containerd, format!("now: {systemctl} restart containerd"))
            }
            Engine::Docker => (register::Engine::Docker, format!("now: {systemctl} reload docker")),
            Engine::CriO => (register::Engine::CriO, format!("now: {systemctl} restart crio")),
        };
        let registration = Registration {
            engine,
            etc: match &self.etc {
                Some(etc) => absolute(etc)?,
                None => own_etc()?,
            },
            program: match &self.program {
                Some(program) => absolute(program)?,
                None => env::current_exe().context("find this binary")?,
            },
            default: self.default,
            systemd_cgroup: session.cgroups == CgroupManager::Systemd,
        };
        let change = if self.undo { registration.undoing()? } else { registration.change()? };
        let path = change.path.display().to_string();
        let path = escape::cell(&path);
        let text = match (&change.before, &change.after) {
            (_, Some(after)) if self.print => format!("# {path}\n{}", after.trim_end()),
            (_, None) if self.print => format!("# {path}: not there"),
            (before, after) if before == after => format!("{path}: nothing to do"),
            (_, after) => {
                change.apply()?;
                let done = if after.is_some() { "written" } else { "removed" };
                format!("{path}: {done}\n{restart}")
            }
        };
        output::print(escape::text(&text).into_owned() + "\n")?;
        Ok(Exit::Success)
    }
}

/// Returns the directory in which the caller's engines keep their configuration.
fn own_etc() -> Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok("/etc".into());
    }
    let said = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || said("HOME").map(|home| home.join(Path::new(".config")));
    let Some(etc) = said("XDG_CONFIG_HOME").or_else(home) else { bail!("HOME is not set: where is --etc?") };
    Ok(etc)
}
