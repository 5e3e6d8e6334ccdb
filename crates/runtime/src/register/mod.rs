//! `register`: configures engines so that they can use husk.
//!
//! An engine that reads drop-in files gets one that belongs to husk alone. docker and containerd have only one file.
//! There husk adds and removes its own entries and changes no other byte. A [`FileChange`] is computed first, and
//! written by [`FileChange::apply`].

mod containerd;
mod json;

use crate::error::Error;
use crate::store::atomic::{self, Draft};
use rustix::fs::{AtFlags, Gid, Mode, Uid, fchmod, fchown, fstat, statat};
use rustix::io::Errno;
use std::fs;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

/// An engine that starts containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// podman and buildah.
    Podman,
    /// containerd's CRI plugin, for Kubernetes.
    Containerd,
    Docker,
    CriO,
}

/// A request to configure an engine for husk.
#[derive(Clone, Debug)]
pub struct Registration {
    pub engine: Engine,
    /// The directory of its configuration: `/etc`, or a user's equivalent.
    pub etc: PathBuf,
    /// The path of husk's binary, or of its shim's.
    pub program: PathBuf,
    /// Whether the engine starts husk through [`SHIM`], which `program` then is, and not through its shim for runc. Only
    /// containerd and docker start shims.
    pub shim: bool,
    /// Whether husk becomes the engine's default runtime.
    pub default: bool,
    /// Whether systemd makes the cgroups, if this engine configures that for each runtime.
    pub systemd_cgroup: bool,
}

/// The file name of husk's shim for containerd. containerd derives it from the name of the runtime.
pub const SHIM: &str = "containerd-shim-husk-v1";

/// The name of the runtime whose shim is [`SHIM`].
const SHIM_TYPE: &str = "io.containerd.husk.v1";

/// The PATH of a service, unless its unit sets another (systemd.exec(5)). docker's containerd searches it for shims.
const SERVICE_PATH: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The text of one file, now and as it is to be. Both are equal if nothing has to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    pub path: PathBuf,
    /// The text now. `None` if the file does not exist.
    pub before: Option<String>,
    /// The new text. `None` if the file is to be removed.
    pub after: Option<String>,
}

impl FileChange {
    /// Computes the change to the file `name` below `etc`.
    fn new(
        etc: &Path,
        name: &str,
        after: impl FnOnce(Option<&str>) -> Result<Option<String>, Error>,
    ) -> Result<Self, Error> {
        let path = etc.join(name);
        let before = match fs::read_to_string(&path) {
            Ok(text) => Some(text),
            Err(reason) if reason.kind() == io::ErrorKind::NotFound => None,
            Err(reason) => return Err(Error::file("read", path, reason)),
        };
        let after = after(before.as_deref())?;
        Ok(Self { path, before, after })
    }

    /// Writes the change, atomically.
    ///
    /// # Errors
    ///
    /// If the file cannot be written or removed.
    pub fn apply(&self) -> Result<(), Error> {
        if self.before == self.after {
            return Ok(());
        }
        let failed = |act| move |reason| Error::file(act, &self.path, reason);
        let Some(after) = &self.after else {
            // Its directory stays, because it may have existed before.
            return fs::remove_file(&self.path).map_err(failed("remove"));
        };
        // If the path is a symlink, its target is replaced.
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let directory = path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(directory).map_err(failed("make the directory of"))?;
        replace(&path, after.as_bytes()).map_err(failed("write"))
    }
}

/// Replaces a file atomically and keeps its owner and permissions. The new file gets both before its name, so that at
/// no time can another user read or write it who could not before.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (directory, name) = atomic::parent(path)?;
    let before = match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(before) => Some(before),
        Err(Errno::NOENT) => None,
        Err(errno) => return Err(errno.into()),
    };
    let mode = if before.is_some() { PRIVATE } else { READABLE };
    let mut draft = Draft::new(directory.as_fd(), mode)?;
    draft.file().write_all(bytes)?;
    if let Some(before) = before {
        let own = fstat(&*draft.file())?;
        if (own.st_uid, own.st_gid) != (before.st_uid, before.st_gid) {
            let (uid, gid) = (Uid::from_raw(before.st_uid), Gid::from_raw(before.st_gid));
            fchown(draft.file(), Some(uid), Some(gid))?;
        }
        // Must follow fchown(2), which clears mode bits.
        fchmod(draft.file(), Mode::from_raw_mode(before.st_mode))?;
    }
    draft.place(name)
}

/// The mode of a replacement, until it gets the mode of the file that it replaces.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// The mode of a new file, before the umask.
const READABLE: Mode = PRIVATE.union(Mode::RGRP).union(Mode::ROTH);

impl Registration {
    /// Computes the change that adds husk to the engine's configuration.
    ///
    /// # Errors
    ///
    /// If the existing configuration cannot be read or conflicts with it.
    pub fn change(&self) -> Result<FileChange, Error> {
        let program =
            self.program.to_str().ok_or_else(|| self.error("the path of husk is not valid UTF-8"))?;
        let is_for_docker = self.shim && self.engine == Engine::Docker;
        let program = if is_for_docker { runtime_type(program) } else { program };
        let quoted = serde_json::to_string(program).map_err(|error| self.error(&error.to_string()))?;
        match self.engine {
            Engine::Podman | Engine::CriO if self.shim => {
                Err(self.error("this engine starts no shims; only containerd and docker do"))
            }
            Engine::Podman => self.drop_in(Some(podman(&quoted, self.default))),
            Engine::CriO => self.drop_in(Some(cri_o(&quoted, self.default))),
            Engine::Docker => self.daemon_json(Some(&quoted)),
            Engine::Containerd => containerd::change(self, Some(&quoted)),
        }
    }

    /// Computes the change that removes husk from the engine's configuration.
    ///
    /// # Errors
    ///
    /// If the existing configuration cannot be read.
    pub fn undoing(&self) -> Result<FileChange, Error> {
        match self.engine {
            Engine::Podman | Engine::CriO => self.drop_in(None),
            Engine::Docker => self.daemon_json(None),
            Engine::Containerd => containerd::change(self, None),
        }
    }

    fn drop_in(&self, text: Option<String>) -> Result<FileChange, Error> {
        let name = match self.engine {
            Engine::Podman => "containers/containers.conf.d/husk.conf",
            _ => "crio/crio.conf.d/50-husk.conf",
        };
        FileChange::new(&self.etc, name, |_| Ok(text))
    }

    /// Removes husk's keys from the text, and then adds them with their new values.
    fn daemon_json(&self, program: Option<&str>) -> Result<FileChange, Error> {
        let name = "docker/daemon.json";
        let edit = |before: Option<&str>| {
            let before = before.filter(|text| !text.trim().is_empty()).unwrap_or("{}");
            let mut text = json::without(before, "runtimes", "husk")?;
            let default = json::member(&text, "default-runtime")?;
            match default {
                Some("\"husk\"") => text = json::without_key(&text, "default-runtime")?,
                Some(other) if self.default && program.is_some() => {
                    return Err(format!(
                        "default-runtime is {other}; remove it first, because husk could not restore it"
                    ));
                }
                _ => {}
            }
            if let Some(program) = program {
                if self.default {
                    text = json::with_key(&text, "default-runtime", "\"husk\"")?;
                }
                let key = if self.shim { "runtimeType" } else { "path" };
                text = json::with(&text, "runtimes", "husk", &format!("{{ \"{key}\": {program} }}"))?;
            }
            Ok((!json::is_empty(&text)?).then_some(text))
        };
        let failed = |reason: String| self.error(&format!("{}: {reason}", self.etc.join(name).display()));
        FileChange::new(&self.etc, name, |before| edit(before).map_err(failed))
    }

    fn error(&self, reason: &str) -> Error {
        Error::Argument { option: "register", reason: reason.to_owned() }
    }
}

/// Returns the runtime's type for the shim at this path: the runtime's name, or the path if containerd would not find the
/// shim by that name. containerd takes paths since version 1.6, docker since 23.
fn runtime_type(shim: &str) -> &str {
    match shim.rsplit_once('/') {
        Some((directory, SHIM)) if SERVICE_PATH.contains(&directory) => SHIM_TYPE,
        _ => shim,
    }
}

const BY: &str = "# Written by 'husk register'. 'husk register --undo' removes it.\n";

/// A list in a drop-in file replaces the previous one, so podman's own entries are repeated here (containers/common,
/// pkg/config/default.go). The manual's `runtime_supports_nocgroups` is read without its last letter (config.go).
fn podman(program: &str, is_default: bool) -> String {
    let default = if is_default { "runtime = \"husk\"\n" } else { "" };
    format!(
        "{BY}[engine]\n{default}\
         runtime_supports_json = [\"crun\", \"runc\", \"kata\", \"runsc\", \"youki\", \"krun\", \"husk\"]\n\
         runtime_supports_nocgroup = [\"crun\", \"krun\", \"husk\"]\n\n\
         [engine.runtimes]\nhusk = [{program}]\n"
    )
}

fn cri_o(program: &str, is_default: bool) -> String {
    let default = if is_default { "[crio.runtime]\ndefault_runtime = \"husk\"\n\n" } else { "" };
    format!(
        "{BY}{default}[crio.runtime.runtimes.husk]\nruntime_path = {program}\nruntime_type = \"oci\"\n\
         runtime_root = \"/run/husk\"\n"
    )
}

#[cfg(test)]
mod tests;
