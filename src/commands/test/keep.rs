//! `--keep`: copies what the program wrote to a directory.

use super::writable::written;
use anyhow::{Context as _, Result, bail};
use husk_hermetic::{Ended, KeepDirectory, Kept, Profile};
use std::path::{self, Path, PathBuf};
use std::{fs, io};

/// The directory of `--keep`.
pub(super) struct Keep {
    path: PathBuf,
    directory: KeepDirectory,
}

/// Opens the directory before the program starts.
pub(super) fn open(path: PathBuf, profile: &Profile) -> Result<Keep> {
    let option = || format!("--keep {}", path.display());
    let place = fs::canonicalize(&path).or_else(|_| beside(&path)).with_context(option)?;
    let within = written(profile).with_context(option)?;
    if let Some(within) = within.iter().find(|within| place.starts_with(within)) {
        bail!(
            "{}: is in {}, where the program could change it; choose another directory",
            option(),
            within.display()
        );
    }
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
        let noun = if files == 1 { "file" } else { "files" };
        Ok(match skipped {
            0 => format!("kept {files} {noun} in {path}"),
            _ => format!(
                "kept {files} {noun} in {path}, and skipped {skipped} (devices, sockets, pipes, unreadable files)"
            ),
        })
    }
}
