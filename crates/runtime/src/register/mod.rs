//! `register`: what engines are configured with so that they know husk.
//!
//! Where an engine reads a directory of drop-in files, one of them is ours and nobody else's. docker and containerd
//! have one file, in which ours is put in and taken out and no other byte is touched. What is to be written is worked
//! out first, as a [`Change`], and carried out by [`Change::apply`].

mod containerd;
mod json;

use crate::error::Error;
use crate::store::whole::{self, Draft};
use rustix::fs::{AtFlags, Gid, Mode, Uid, fchmod, fchown, fstat, statat};
use rustix::io::Errno;
use std::fs;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

/// Who starts containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// podman, and buildah.
    Podman,
    /// containerd, for Kubernetes.
    Containerd,
    /// docker.
    Docker,
    /// CRI-O.
    CriO,
}

/// What an engine is told.
#[derive(Clone, Debug)]
pub struct Registration {
    /// Who is told.
    pub engine: Engine,
    /// Where its configuration is: `/etc`, or what a user has in its place.
    pub etc: PathBuf,
    /// Our binary.
    pub program: PathBuf,
    /// Whether we are to be used where nobody asks for another.
    pub default: bool,
    /// Whether systemd is to make the cgroups, as far as this is said here.
    pub systemd_cgroup: bool,
}

/// A file that is to be otherwise than it is, or that is as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which.
    pub path: PathBuf,
    /// What is in it, if it is there.
    pub before: Option<String>,
    /// What is to be in it, if it is to be there.
    pub after: Option<String>,
}

impl Change {
    /// To the file `name` below `etc`, which was there before anybody configured anything.
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

    /// Carries it out, at once or not at all.
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
            // Its directory may have been there before, and stays.
            return fs::remove_file(&self.path).map_err(failed("remove"));
        };
        // What is linked to is what is meant.
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let directory = path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(directory).map_err(failed("make the directory of"))?;
        replace(&path, after.as_bytes()).map_err(failed("write"))
    }
}

/// Puts a file in the place of one, with its owner and permissions. It has both before it has the name, so that at no
/// moment it may be read or written by anybody who might not before.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (directory, name) = whole::parent(path)?;
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
        // After the owner, a change of which takes bits away.
        fchmod(draft.file(), Mode::from_raw_mode(before.st_mode))?;
    }
    draft.place(name)
}

/// The mode of a file that replaces another, until it gets that one's.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// The mode of a new file, less what the umask takes away.
const READABLE: Mode = PRIVATE.union(Mode::RGRP).union(Mode::ROTH);

impl Registration {
    /// What is to be written so that the engine knows us.
    ///
    /// # Errors
    ///
    /// If what is there cannot be read, or says otherwise.
    pub fn change(&self) -> Result<Change, Error> {
        let program = self.program.to_str().ok_or_else(|| self.error("the path of husk is no text"))?;
        let quoted = serde_json::to_string(program).map_err(|error| self.error(&error.to_string()))?;
        match self.engine {
            Engine::Podman => self.drop_in(Some(podman(&quoted, self.default))),
            Engine::CriO => self.drop_in(Some(cri_o(&quoted, self.default))),
            Engine::Docker => self.daemon_json(Some(&quoted)),
            Engine::Containerd => containerd::change(self, Some(&quoted)),
        }
    }

    /// What is to be written or removed so that the engine forgets us.
    ///
    /// # Errors
    ///
    /// If what is there cannot be read.
    pub fn undoing(&self) -> Result<Change, Error> {
        match self.engine {
            Engine::Podman | Engine::CriO => self.drop_in(None),
            Engine::Docker => self.daemon_json(None),
            Engine::Containerd => containerd::change(self, None),
        }
    }

    fn drop_in(&self, text: Option<String>) -> Result<Change, Error> {
        let name = match self.engine {
            Engine::Podman => "containers/containers.conf.d/husk.conf",
            _ => "crio/crio.conf.d/50-husk.conf",
        };
        Change::new(&self.etc, name, |_| Ok(text))
    }

    /// Without our keys, and then with them as they are to be.
    fn daemon_json(&self, program: Option<&str>) -> Result<Change, Error> {
        let name = "docker/daemon.json";
        let edit = |before: Option<&str>| {
            let before = before.filter(|text| !text.trim().is_empty()).unwrap_or("{}");
            let mut text = json::without(before, "runtimes", "husk")?;
            let default = json::member(&text, "default-runtime")?;
            match default {
                Some("\"husk\"") => text = json::without_key(&text, "default-runtime")?,
                Some(other) if self.default && program.is_some() => {
                    return Err(format!(
                        "default-runtime is {other}: take it out first, so that nothing is lost"
                    ));
                }
                _ => {}
            }
            if let Some(program) = program {
                if self.default {
                    text = json::with_key(&text, "default-runtime", "\"husk\"")?;
                }
                text = json::with(&text, "runtimes", "husk", &format!("{{ \"path\": {program} }}"))?;
            }
            Ok((!json::is_empty(&text)?).then_some(text))
        };
        let failed = |reason: String| self.error(&format!("{}: {reason}", self.etc.join(name).display()));
        Change::new(&self.etc, name, |before| edit(before).map_err(failed))
    }

    fn error(&self, reason: &str) -> Error {
        Error::Argument { option: "register", reason: reason.to_owned() }
    }
}

const BY: &str = "# Written by 'husk register', which also takes it away ('--undo').\n";

/// A list in a drop-in file takes the place of the one before, so what podman knows itself is here too
/// (containers/common, pkg/config/default.go). What its manual calls `runtime_supports_nocgroups` is read without
/// the last letter (config.go).
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
