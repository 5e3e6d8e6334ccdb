//! `--keep`: copies what the program wrote to a directory.

use super::writable::written;
use anyhow::{Context as _, Result, bail};
use husk_hermetic::{Ended, KeepDirectory, Kept, Profile, Tested};
use std::collections::BTreeSet;
use std::path::{self, Path, PathBuf};
use std::{fs, io, iter};

/// The directory of `--keep`.
pub(super) struct Keep {
    path: PathBuf,
    directory: KeepDirectory,
}

/// The directory of `--keep` with a directory for each of several tests.
pub(super) struct KeepEach {
    path: PathBuf,
    /// The tests whose files have been looked at, and the names of their directories.
    seen: BTreeSet<String>,
    names: BTreeSet<String>,
    kept: Kept,
    /// The first error. After it, nothing more is copied.
    result: Result<()>,
}

/// Rejects a directory that the program could change.
pub(super) fn refuse(path: &Path, profile: &Profile) -> Result<()> {
    let option = || format!("--keep {}", path.display());
    let place = fs::canonicalize(path).or_else(|_| beside(path)).with_context(option)?;
    let within = written(profile).with_context(option)?;
    if let Some(within) = within.iter().find(|within| place.starts_with(within)) {
        bail!(
            "{}: is in {}, where the program could change it; choose another directory",
            option(),
            within.display()
        );
    }
    Ok(())
}

/// Opens the directory before the program starts.
pub(super) fn open(path: PathBuf, profile: &Profile) -> Result<Keep> {
    refuse(&path, profile)?;
    let option = || format!("--keep {}", path.display());
    let directory = KeepDirectory::open(&path).with_context(option)?;
    Ok(Keep { path, directory })
}

/// Returns the path of a directory that does not exist yet.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let path = path::absolute(path)?;
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    Ok(fs::canonicalize(path.parent().unwrap_or(&path))?.join(name))
}

impl Keep {
    /// Copies the files of a program that has ended. Returns a line that says what was copied.
    pub(super) fn keep(&self, ended: &Ended) -> Result<String> {
        let path = self.path.display();
        let files =
            ended.files.as_ref().with_context(|| format!("--keep {path}: the program has not started"))?;
        let Kept { files, skipped } =
            files.keep(&self.directory).with_context(|| format!("--keep {path}"))?;
        Ok(told(Kept { files, skipped }, &self.path))
    }
}

impl KeepEach {
    /// Opens the directory before the first test starts.
    pub(super) fn open(path: PathBuf, profile: &Profile) -> Result<Self> {
        let Keep { path, .. } = open(path, profile)?;
        let (seen, names) = Default::default();
        Ok(Self { path, seen, names, kept: Kept::default(), result: Ok(()) })
    }

    /// Copies the files of a test that has ended, and of all that ran in its sandbox, to a directory of its name.
    pub(super) fn keep(&mut self, tested: &Tested) {
        let unit = tested.unit.as_ref().unwrap_or(&tested.name);
        let Some(files) = tested.attempts.last().and_then(|last| last.ended.files.as_ref()) else { return };
        if self.result.is_err() || !self.seen.insert(unit.clone()) {
            return;
        }
        let name = self.name(unit);
        let path = self.path.join(name);
        let kept = KeepDirectory::open(&path).and_then(|directory| files.keep(&directory));
        match kept.with_context(|| format!("--keep {}", path.display())) {
            Ok(Kept { files, skipped }) => {
                self.kept.files += files;
                self.kept.skipped += skipped;
            }
            Err(error) => self.result = Err(error),
        }
    }

    /// Returns the name of a test's directory, which no other test has. Slashes become underscores.
    fn name(&mut self, unit: &str) -> String {
        /// Leaves space for a number (path_resolution(7)).
        const MOST_BYTES: usize = 200;
        let mut name: String = unit.chars().map(|char| if char == '/' { '_' } else { char }).collect();
        name.truncate(name.floor_char_boundary(MOST_BYTES));
        if name.is_empty() || name.starts_with('.') {
            name.insert(0, '_');
        }
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let names = iter::once(name.clone()).chain(numbered);
        let name = names.into_iter().find(|name| !self.names.contains(name)).unwrap_or_default();
        self.names.insert(name.clone());
        name
    }

    /// Returns a line that says what was copied.
    pub(super) fn finish(self) -> Result<String> {
        self.result?;
        Ok(told(self.kept, &self.path))
    }
}

/// Returns a line that says what was copied.
fn told(Kept { files, skipped }: Kept, path: &Path) -> String {
    let (path, noun) = (path.display(), if files == 1 { "file" } else { "files" });
    match skipped {
        0 => format!("kept {files} {noun} in {path}"),
        _ => format!(
            "kept {files} {noun} in {path}, and skipped {skipped} (devices, sockets, pipes, unreadable files)"
        ),
    }
}
