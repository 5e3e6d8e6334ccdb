//! Which file a program's name means.

use crate::Error;
use husk_script::sys::Errno;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Where execvp(3) looks when there is no PATH.
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";

/// Whether a program is named by a path, and so not looked up.
pub(crate) fn is_path(program: &OsStr) -> bool {
    program.as_bytes().contains(&b'/')
}

/// The file that `program`, a name without a slash, means: the first directory of `path` that has
/// it as a file we may execute. A directory that is relative is so to `cwd`, where the child will be
/// when it execs.
///
/// It is looked up here and not by trying each place in the child, so that what the child does is
/// settled before it exists.
///
/// A directory that is relative is so to `cwd`, where the program will be started.
pub(crate) fn find(program: &OsStr, path: Option<OsString>, cwd: Option<&OsStr>) -> Result<OsString, Error> {
    let path = path.map_or_else(|| DEFAULT_PATH.to_owned(), OsString::into_vec);
    let mut reason = Errno::NOENT;
    for directory in path.split(|byte| *byte == b':') {
        // An empty entry means the working directory.
        let directory = if directory.is_empty() { b"." } else { directory };
        let candidate = [directory, b"/", program.as_bytes()].concat();
        // Joining leaves an absolute path as it is.
        let seen_from_here = Path::new(cwd.unwrap_or_default()).join(OsStr::from_bytes(&candidate));
        match accessat(CWD, &seen_from_here, Access::EXEC_OK, AtFlags::empty()) {
            // A directory may be "executable" too.
            Ok(()) if seen_from_here.is_file() => return Ok(OsString::from_vec(candidate)),
            Ok(()) => {}
            // As in execvp(3): "found, but not allowed" is the better reason if none is found.
            Err(Errno::ACCESS) => reason = Errno::ACCESS,
            Err(_) => {}
        }
    }
    Err(Error::about("exec", program, reason))
}

/// Finds a program in the directories of the caller's `PATH`, of which only absolute ones count: `.` and empty entries
/// mean the working directory, and what is there may be somebody else's program. [`Command::new`](crate::Command::new)
/// searches them all, as `execvp` does.
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

    // Cargo runs tests in the directory of their crate, where a relative entry would find the file.
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
