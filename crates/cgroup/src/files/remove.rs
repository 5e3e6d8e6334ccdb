//! Removes cgroups by descriptor, the deepest first.
//!
//! rmdir removes a cgroup with all its files, unless it has child cgroups or processes. A killed process stays
//! in its cgroup until it has exited. Version 2 reports that through poll; version 1 has no events, so this
//! tries again.

use crate::error::Error;
use crate::files::walk::{Visitor, walk};
use crate::files::{self, events, procs};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest pause between two tries where poll cannot wait.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Removes the cgroup `name`, which must have no child cgroups. Succeeds if it does not exist.
pub(crate) fn remove_one(above: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    match unlinkat(above, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    }
}

/// Removes a new cgroup after a later step failed. Errors are ignored: the caller reports the failed step, and
/// a process that has joined meanwhile may stay.
pub(crate) fn undo(above: BorrowedFd<'_>, path: &Path) {
    if unlinkat(above, path, AtFlags::REMOVEDIR).is_err() {
        // Tolerated: see above.
    }
}

/// Removes the cgroup `name` in `above` and all below it. `path` is for messages.
pub(crate) fn tree(above: BorrowedFd<'_>, name: &str, path: &Path, patience: Duration) -> Result<(), Error> {
    let failed = |errno| Error::Act { act: "remove the cgroup", path: path.to_owned(), errno };
    // Usually the cgroup is empty, and this is enough.
    match remove_one(above, name) {
        Err(Errno::BUSY | Errno::NOTEMPTY) => {}
        removed => return removed.map_err(failed),
    }
    let end = Instant::now() + patience;
    let mut pause = Duration::from_millis(1);
    loop {
        let directory = match files::open_directory(above, name) {
            Ok(directory) => directory,
            Err(Errno::NOENT | Errno::NODEV) => return Ok(()),
            Err(errno) => return Err(failed(errno)),
        };
        match below(&directory).and_then(|()| remove_one(above, name)) {
            Err(Errno::BUSY | Errno::NOTEMPTY) => {}
            removed => return removed.map_err(failed),
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let pids = procs::all(&directory).map_err(failed)?;
            let seconds = patience.as_secs();
            return Err(Error::Deadline { act: "remove the cgroup", path: path.to_owned(), seconds, pids });
        }
        await_change(&directory, left, &mut pause).map_err(failed)?;
    }
}

/// Removes all cgroups below `directory`, the deepest first, and skips busy ones.
fn below(directory: &OwnedFd) -> Result<(), Errno> {
    let mut removal = Removal { busy: None };
    walk(directory.as_fd(), &mut removal)?;
    removal.busy.map_or(Ok(()), Err)
}

struct Removal {
    /// Why a cgroup was skipped.
    busy: Option<Errno>,
}

impl Visitor for Removal {
    /// Removes the children that have none of their own, and returns the others.
    fn enter(&mut self, directory: BorrowedFd<'_>) -> Result<Vec<String>, Errno> {
        let mut left = Vec::new();
        files::each_directory(directory, |name| match remove_one(directory, name) {
            Err(Errno::BUSY | Errno::NOTEMPTY) => {
                left.push(name.to_owned());
                Ok(())
            }
            removed => removed,
        })?;
        Ok(left)
    }

    fn leave(&mut self, above: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
        match remove_one(above, name) {
            Err(errno @ (Errno::BUSY | Errno::NOTEMPTY)) => self.busy = Some(errno),
            removed => removed?,
        }
        Ok(())
    }
}

/// Waits until another try may succeed.
fn await_change(directory: &OwnedFd, left: Duration, pause: &mut Duration) -> Result<(), Errno> {
    let is_version_2 = files::open(directory.as_fd(), "cgroup.events", rustix::fs::OFlags::PATH).is_ok();
    if is_version_2 && !events::wait(directory.as_fd(), "populated", 0, Duration::ZERO)? {
        events::wait(directory.as_fd(), "populated", 0, left)?;
    } else {
        // Version 1, or a process whose exit the kernel has not finished.
        std::thread::sleep((*pause).min(left));
        *pause = (*pause * 2).min(LONGEST_PAUSE);
    }
    Ok(())
}
