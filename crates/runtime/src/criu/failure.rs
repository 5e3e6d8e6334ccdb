//! What CRIU has written down of a failure, which its answer says little of.

use super::settings::Directories;
use crate::error::Error;
use crate::host::files;
use rustix::fs::ResolveFlags;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

/// As much is looked at of a log, and as much told of it.
const MOST_BYTES: u64 = 16 << 20;
const MOST_LINES: usize = 8;

/// A failure with the lines of the log that tell of errors, and where there is more.
pub(crate) fn explain(error: Error, directories: &Directories, directory: &Path, name: &str) -> Error {
    let Error::Criu(failure) = error else { return error };
    let errors = errors(directories, name);
    // The first may be what CRIU has answered.
    let new = errors.iter().filter(|line| !failure.contains(*line));
    let quoted: String = new.map(|line| format!("; {line}")).collect();
    Error::Criu(format!("{failure}{quoted} (see {})", directory.join(name).display()))
}

fn errors(directories: &Directories, name: &str) -> Vec<String> {
    // A link would lead to what others have written.
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

/// Text of CRIU's on one line: names of a container's may stand in it.
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
