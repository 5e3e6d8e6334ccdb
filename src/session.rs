//! Opens the state directory and the log, which every verb needs.

use crate::options::{Global, Rootless};
use crate::output::log::Log;
use anyhow::{Context as _, Result, ensure};
use husk_runtime::{CgroupManager, Environment, Error, Listed, Notice, Sealed, Store, Warning};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) struct Session<'a> {
    pub(crate) store: Store,
    pub(crate) log: &'a Log,
    root: Root,
    pub(crate) rootless: Rootless,
    pub(crate) cgroups: CgroupManager,
}

/// The state directory.
enum Root {
    /// The directory that the command line gives.
    Said(PathBuf),
    /// The system-wide directory.
    System,
    /// The directory in a user's `$XDG_RUNTIME_DIR`.
    Users(PathBuf),
    /// The directory of a user without that variable.
    Fallback(PathBuf),
}

/// Protects husk's own binary from containers that could write to it, if the verb creates one.
pub(crate) fn seal(environment: Option<Environment>) -> Result<Option<Sealed>> {
    match environment.filter(|_| husk_runtime::is_exposed()) {
        Some(environment) => Ok(Some(husk_runtime::seal(environment)?)),
        None => Ok(None),
    }
}

impl<'a> Session<'a> {
    pub(crate) fn open(global: Global, log: &'a Log, sealed: Option<Sealed>) -> Result<Self> {
        match sealed {
            Some(Sealed::Mount) => ::log::debug!("exeseal: /proc/self/exe is on a read-only mount"),
            Some(Sealed::Memory) => ::log::debug!("exeseal: /proc/self/exe is a sealed copy in memory"),
            None => {}
        }
        let systemd = global.systemd_cgroup.then_some(CgroupManager::Systemd);
        let cgroups = systemd.or(global.rare.cgroup_manager).unwrap_or_default();
        let root = match global.root {
            Some(root) => {
                let root = absolute(&root).context("--root")?;
                ensure!(root != Path::new("/"), "Option --root argument should not be set to /");
                Root::Said(root)
            }
            None => match std::env::var_os("XDG_RUNTIME_DIR") {
                Some(directory) if !directory.is_empty() && is_user() => {
                    Root::Users(Path::new(&directory).join("husk"))
                }
                _ if geteuid().is_root() => Root::System,
                _ => Root::Fallback(without_variable(geteuid().as_raw())),
            },
        };
        ::log::debug!("root: {}", root.path().display());
        let rootless = global.rare.rootless.unwrap_or_default();
        Ok(Self { store: Store::new(root.path().to_owned()), log, root, rootless, cgroups })
    }

    pub(crate) fn warn(&self, warnings: &[Warning]) {
        for warning in warnings {
            match warning.notice {
                Notice::Always => self.log.warning(warning),
                Notice::OnRequest => ::log::debug!("{warning}"),
            }
        }
    }

    /// Returns every container.
    pub(crate) fn containers(&self) -> Result<Vec<Listed>, Error> {
        match husk_runtime::list(&self.store) {
            // No container was ever created there. A directory that the user named must exist, however.
            Err(Error::File { reason, .. })
                if reason.errno() == Some(Errno::NOENT) && !matches!(self.root, Root::Said(_)) =>
            {
                Ok(Vec::new())
            }
            found => found,
        }
    }

    /// Prepares the state directory before a container is created.
    pub(crate) fn prepare(&self) -> Result<()> {
        match &self.root {
            Root::Users(_) => self.store.make_sticky().context("$XDG_RUNTIME_DIR")?,
            // Programs that clean up /tmp should leave it alone too.
            Root::Fallback(_) => self.store.make_sticky().context("XDG_RUNTIME_DIR is not set")?,
            Root::Said(_) | Root::System => {}
        }
        Ok(())
    }

    /// Returns the directory in which containers are recorded, and whether only root and the caller can change it. A missing
    /// one will be created.
    pub(crate) fn place(&self) -> (&Path, Result<(), Error>) {
        let is_missing = |error: &Error| matches!(error, Error::File { reason, .. } if reason.errno() == Some(Errno::NOENT));
        let opened = husk_runtime::list(&self.store).map(drop);
        (self.root.path(), opened.or_else(|error| if is_missing(&error) { Ok(()) } else { Err(error) }))
    }
}

impl Root {
    fn path(&self) -> &Path {
        match self {
            Self::Said(path) | Self::Users(path) | Self::Fallback(path) => path,
            Self::System => Path::new("/run/husk"),
        }
    }
}

/// Returns the directory for a user without `XDG_RUNTIME_DIR`: where logind would have put it, or one in /tmp. The store
/// refuses a directory there that another user has made.
fn without_variable(uid: u32) -> PathBuf {
    let usual = PathBuf::from(format!("/run/user/{uid}"));
    if usual.is_dir() { usual.join("husk") } else { PathBuf::from(format!("/tmp/husk-{uid}")) }
}

/// Whether this process cannot write to the system-wide directory: it is not root, or it is root in a user
/// namespace and `USER` is not root. (podman's children there have no `USER`.)
fn is_user() -> bool {
    if !geteuid().is_root() {
        return true;
    }
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let everybody = map.split_whitespace().eq(["0", "0", "4294967295"]);
    !everybody && !map.is_empty() && std::env::var_os("USER").is_none_or(|name| name != "root")
}

/// Makes a path absolute and resolves `.` and `..` lexically, as runc does.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path).with_context(|| path.display().to_string())?;
    Ok(path.components().fold(PathBuf::new(), |mut clean, component| {
        match component {
            std::path::Component::ParentDir => drop(clean.pop()),
            component => clean.push(component),
        }
        clean
    }))
}
