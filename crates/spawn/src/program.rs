//! Which file a command's program is.

use crate::Error;
use husk_script::sys::Errno;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Where execvp(3) looks when there is no PATH.
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";

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
