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
Makes husk available as a runtime: 'podman --runtime husk', 'docker run --runtime husk', or the handler 'husk' of a
Kubernetes RuntimeClass. With --default, the engine uses husk unless another runtime is requested.

containerd and docker start a runtime through a shim. By default that is their shim for runc, which starts husk for each
step. With --shim it is containerd-shim-husk-v1, which runs containers itself. docker needs version 23 for that.

For root, it changes the configuration in /etc; for other users, their own. With the global option --systemd-cgroup,
containerd creates the cgroups through systemd.

EXAMPLES:
  {husk} register podman             add husk to podman
  {husk} register docker --print     print the new configuration
  {husk} register cri-o --default    make husk the default runtime
  {husk} register containerd --shim  add husk with its own shim
  {husk} register docker --undo      remove husk again
";

/// Add husk to the configuration of an engine
#[derive(Debug, clap::Args)]
pub(crate) struct Register {
    /// Print the new configuration instead of writing it
    #[arg(long, alias = "dry-run")]
    print: bool,
    /// Make husk the engine's default runtime
    #[arg(long)]
    default: bool,
    /// Remove husk from the engine's configuration
    #[arg(long, conflicts_with = "default")]
    undo: bool,
    /// Directory of configurations [default: /etc, or $XDG_CONFIG_HOME without root]
    #[arg(long, value_name = "DIRECTORY")]
    etc: Option<PathBuf>,
    /// Let containerd or docker start husk's own shim, not that for runc
    #[arg(long)]
    shim: bool,
    /// Binary that the engine starts [default: this one, or the shim beside it]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Engine: podman, containerd, docker or cri-o
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
                (register::Engine::Podman, "podman reads its configuration at each start".to_owned())
            }
            Engine::Containerd => {
                (register::Engine::Containerd, format!("next: {systemctl} restart containerd"))
            }
            Engine::Docker => (register::Engine::Docker, format!("next: {systemctl} reload docker")),
            Engine::CriO => (register::Engine::CriO, format!("next: {systemctl} restart crio")),
        };
        let registration = Registration {
            engine,
            etc: match &self.etc {
                Some(etc) => absolute(etc)?,
                None => own_etc()?,
            },
            program: match &self.program {
                Some(program) => absolute(program)?,
                None => {
                    let husk = env::current_exe().context("find this binary")?;
                    // An entry is removed even if the shim no longer exists.
                    if self.shim && !self.undo { shim_beside(&husk)? } else { husk }
                }
            },
            shim: self.shim,
            default: self.default,
            systemd_cgroup: session.cgroups == CgroupManager::Systemd,
        };
        let change = if self.undo { registration.undoing()? } else { registration.change()? };
        let path = change.path.display().to_string();
        let path = escape::cell(&path);
        let text = match (&change.before, &change.after) {
            (_, Some(after)) if self.print => format!("# {path}\n{}", after.trim_end()),
            (_, None) if self.print => format!("# {path}: does not exist"),
            (before, after) if before == after => format!("{path}: already up to date"),
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

/// Returns the path of the shim that was installed with this husk, or of the first in PATH.
fn shim_beside(husk: &Path) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let beside = husk.parent().map(Path::to_owned);
    let mut directories = beside.into_iter().chain(env::split_paths(&path).filter(|path| path.is_absolute()));
    let found = directories.find_map(|directory| {
        let shim = directory.join(register::SHIM);
        shim.is_file().then_some(shim)
    });
    let missing =
        || format!("{} is neither beside {} nor in PATH; pass --program", register::SHIM, husk.display());
    found.with_context(missing)
}

/// Returns the directory in which the caller's engines keep their configuration.
fn own_etc() -> Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok("/etc".into());
    }
    let said = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || said("HOME").map(|home| home.join(Path::new(".config")));
    let Some(etc) = said("XDG_CONFIG_HOME").or_else(home) else { bail!("HOME is not set; pass --etc") };
    Ok(etc)
}
