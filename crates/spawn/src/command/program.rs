//! Looks up programs in PATH.

use crate::Error;
use husk_script::sys::Errno;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The directories that execvp(3) searches without PATH.
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";

/// Whether a program is given as a path and so not looked up.
pub(crate) fn is_path(program: &OsStr) -> bool {
    program.as_bytes().contains(&b'/')
}

/// Finds `program`, a name without a slash, in the first directory of `path` that has it as an executable
/// file. A relative directory is relative to `cwd`, the child's working directory at exec.
///
/// The lookup is done here rather than by trial in the child, so that the list is complete before the child
/// exists.
pub(crate) fn find(program: &OsStr, path: Option<OsString>, cwd: Option<&OsStr>) -> Result<OsString, Error> {
    let path = path.map_or_else(|| DEFAULT_PATH.to_owned(), OsString::into_vec);
    let mut reason = Errno::NOENT;
    for directory in path.split(|byte| *byte == b':') {
        // An empty entry means the working directory.
        let directory = if directory.is_empty() { b"." } else { directory };
        let candidate = [directory, b"/", program.as_bytes()].concat();
        // `join` leaves an absolute path unchanged.
        let seen_from_here = Path::new(cwd.unwrap_or_default()).join(OsStr::from_bytes(&candidate));
        match accessat(CWD, &seen_from_here, Access::EXEC_OK, AtFlags::empty()) {
            // Directories may have execute permission too.
            Ok(()) if seen_from_here.is_file() => return Ok(OsString::from_vec(candidate)),
            Ok(()) => {}
            // As in execvp(3), EACCES is the better reason if no file is found.
            Err(Errno::ACCESS) => reason = Errno::ACCESS,
            Err(_) => {}
        }
    }
    Err(Error::about("exec", program, reason))
}

/// Finds a program in the absolute directories of the caller's `PATH`. Relative ones are skipped: `.` and
/// empty entries mean the working directory, where another user may have put a program.
/// [`Command::new`](crate::Command::new) searches all of them, as `execvp` does.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    find_in(env::var_os("PATH").as_deref().unwrap_or(OsStr::from_bytes(DEFAULT_PATH)), name)
}

fn find_in(path: &OsStr, name: &str) -> Option<PathBuf> {
    let directories = env::split_paths(path).filter(|directory| directory.is_absolute());
    let mut candidates = directories.map(|directory| directory.join(name));
    candidates.find(|path| accessat(CWD, path, Access::EXEC_OK, AtFlags::empty()).is_ok() && path.is_file())
}

#[cfg(test)]
mod tests {
    use super::find_in;
    use std::ffi::OsStr;

    // Cargo runs tests in their crate's directory, where a relative entry would find the file.
    #[test]
    fn only_absolute_directories_are_searched() {
        let find = |path: &str| find_in(OsStr::new(path), "sh");
        assert_eq!(find("/no/such:/bin"), Some("/bin/sh".into()));
        let up = "../".repeat(32);
        for path in ["", ".", ":", "bin", &format!("{up}bin:{up}usr/bin")] {
            assert_eq!(find(path), None, "{path}");
        }
    }
}
