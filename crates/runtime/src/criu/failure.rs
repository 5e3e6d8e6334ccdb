//! Adds the errors of CRIU's log to a failure, because CRIU's answer says little.

use super::settings::Directories;
use super::words;
use crate::error::Error;
use crate::host::files;
use rustix::fs::ResolveFlags;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

/// How much of a log is read, and how many of its errors are quoted.
const MOST_BYTES: u64 = 16 << 20;
const MOST_LINES: usize = 8;

/// A log of CRIU.
pub(crate) struct Log<'l> {
    pub(crate) directories: &'l Directories,
    /// The path of the log's directory, for the message.
    pub(crate) directory: &'l Path,
    pub(crate) name: &'l str,
    /// Whether the container's pids are those of this process's pid namespace.
    pub(crate) shares_pids: bool,
}

/// Adds to a failure of CRIU what the errors of the log mean, or the errors themselves, and the log's path.
pub(crate) fn explain(error: Error, log: &Log<'_>) -> Error {
    let Error::Criu(failure) = error else { return error };
    let (directory, name) = (log.directory, log.name);
    let mut errors = errors(log.directories, name);
    errors.retain(|line| !words::is_harmless(line));
    let mut meanings: Vec<_> =
        errors.iter().filter_map(|line| words::meaning(line, log.shares_pids)).collect();
    meanings.dedup();
    // CRIU adds the first error of the log, which may be a harmless one.
    let bare = failure.split(": Error (").next().unwrap_or_default();
    if !meanings.is_empty() {
        let meanings = meanings.join("; ");
        return Error::Criu(format!("{bare}: {meanings} (see {})", directory.join(name).display()));
    }
    let failure = if words::is_harmless(&failure) { bare } else { &failure };
    // The answer may already contain one of them.
    let new = errors.iter().filter(|line| !failure.contains(*line));
    let quoted: String = new.map(|line| format!("; {line}")).collect();
    Error::Criu(format!("{failure}{quoted} (see {})", directory.join(name).display()))
}

fn errors(directories: &Directories, name: &str) -> Vec<String> {
    // Another user may have put a link there.
    let Ok(file) = files::open_regular(directories.of_log(), name, ResolveFlags::NO_SYMLINKS) else {
        return Vec::new();
    };
    let lines = BufReader::new(file.take(MOST_BYTES)).split(b'\n').map_while(Result::ok);
    let lines = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
    let mut errors: Vec<_> =
        lines.filter_map(|text| text.find("Error (").map(|start| line(&text[start..]))).collect();
    errors.dedup();
    errors.drain(..errors.len().saturating_sub(MOST_LINES));
    errors
}

/// Makes one line of CRIU's text by escaping control characters, which file names of a container may contain.
pub(crate) fn line(text: &str) -> String {
    text.trim()
        .chars()
        .flat_map(|letter| {
            let plain = (!letter.is_control()).then_some(letter);
            plain
                .into_iter()
                .chain(letter.is_control().then(|| letter.escape_default()).into_iter().flatten())
        })
        .collect()
}
