//! The run that several husks are part of, because cargo or nextest starts one for each test binary or test.

use super::options::Test;
use crate::image::store_path;
use anyhow::{Context as _, Result, ensure};
use husk_hermetic::Run;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};

/// A run. It ends with the process that has started all of its husks.
#[derive(Debug)]
pub(crate) struct SharedRun {
    directory: PathBuf,
    process: u32,
    /// Digests of the process and of the settings' file.
    names: Vec<String>,
    /// The arguments of the husk that keeps services, except their names.
    arguments: Vec<OsString>,
}

impl SharedRun {
    /// Returns the run of this husk; `None` if it is a run of its own.
    pub(super) fn of(test: &Test, path: &Path, text: &str) -> Result<Option<Self>> {
        // Cargo and nextest set these. A shell does not, and may run for days.
        if ["CARGO_PKG_NAME", "NEXTEST_RUN_ID"].iter().all(|name| env::var_os(name).is_none()) {
            return Ok(None);
        }
        let mut process = Process::of(parent_id())?;
        if process.name == "rustdoc" {
            // Cargo has started it for the tests in the documentation of one package.
            process = Process::of(process.parent)?;
        }
        let path = fs::canonicalize(path).with_context(|| path.display().to_string())?;
        let names =
            [process.id.to_string(), process.started.clone(), path.display().to_string(), text.to_owned()];
        let mut arguments = ["test", "--config"].map(OsString::from).to_vec();
        arguments.push(path.into());
        arguments.extend(test.rare.strict.then(|| "--strict".into()));
        let directory = store_path()?.join("runs");
        Ok(Some(Self { directory, process: process.id, names: names.to_vec(), arguments }))
    }

    /// Returns the same with the services that are shared.
    pub(super) fn with<'n>(&self, services: impl Iterator<Item = &'n str>) -> Run {
        let services = services.collect::<Vec<_>>().join(",");
        let names = self.names.iter().map(String::as_str).chain([services.as_str()]);
        let name = format!("{}-{:016x}", self.process, digest(names));
        let arguments = self.arguments.iter().cloned();
        let own = ["--keep-services".into(), services.into(), "--".into(), "services".into()];
        Run {
            directory: self.directory.clone(),
            process: self.process,
            name,
            arguments: arguments.chain(own).collect(),
        }
    }
}

/// Returns a digest of texts in this order.
fn digest<'n>(names: impl Iterator<Item = &'n str>) -> u64 {
    let numbered: Vec<_> = names.enumerate().map(|(place, name)| format!("{place}:{name}")).collect();
    husk_hermetic::digest(numbered.iter().map(String::as_str))
}

/// A process, from `/proc/PID/stat`.
struct Process {
    id: u32,
    name: String,
    parent: u32,
    /// When it was started, which with the id identifies it.
    started: String,
}

impl Process {
    fn of(id: u32) -> Result<Self> {
        ensure!(id != 0, "per = \"run\": the process that has started husk is in another pid namespace");
        let path = format!("/proc/{id}/stat");
        let text = fs::read_to_string(&path).with_context(|| path.clone())?;
        Self::read(id, &text).with_context(|| format!("{path}: is not as proc_pid_stat(5) says"))
    }

    fn read(id: u32, text: &str) -> Option<Self> {
        // The name is in parentheses, and may contain some.
        let (before, after) = text.rsplit_once(") ")?;
        let (_, name) = before.split_once('(')?;
        let fields: Vec<_> = after.split_ascii_whitespace().collect();
        let (parent, started) = (fields.get(1)?.parse().ok()?, (*fields.get(19)?).to_owned());
        Some(Self { id, name: name.to_owned(), parent, started })
    }
}

#[cfg(test)]
mod tests {
    use super::Process;

    #[test]
    fn name_of_a_process_may_contain_anything() {
        let own = Process::of(std::process::id()).unwrap();
        assert_eq!(own.parent, std::os::unix::process::parent_id());
        let fields = "S 7 5 5 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 123456 0";
        let read = Process::read(9, &format!("9 (a) b (c) {fields}")).unwrap();
        assert_eq!((read.name.as_str(), read.parent, read.started.as_str()), ("a) b (c", 7, "123456"));
        assert!(Process::read(9, "9 (a").is_none() && Process::read(9, "9 (a) S 1").is_none());
    }
}
