//! Freezes and thaws the processes of a version 2 cgroup.

use super::Cgroup;
use crate::error::Error;
use crate::files::{self, events};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::path::Path;
use std::time::Duration;

pub(crate) fn freeze(cgroup: &Cgroup, patience: Duration) -> Result<(), Error> {
    let frozen = try_freeze(cgroup, patience);
    if frozen.is_err() {
        // Tolerated: the caller gets the error of freezing.
        drop(thaw(cgroup));
    }
    frozen
}

fn try_freeze(cgroup: &Cgroup, patience: Duration) -> Result<(), Error> {
    write(cgroup, "1")?;
    let frozen = events::wait(cgroup.directory(), "frozen", 1, patience);
    if frozen.map_err(cgroup.failed("freeze"))? {
        return Ok(());
    }
    let path = cgroup.path().to_owned();
    Err(Error::Deadline { act: "freeze", path, seconds: patience.as_secs(), pids: cgroup.pids()? })
}

pub(crate) fn thaw(cgroup: &Cgroup) -> Result<(), Error> {
    write(cgroup, "0")
}

fn write(cgroup: &Cgroup, state: &str) -> Result<(), Error> {
    match files::put(cgroup.directory(), "cgroup.freeze", state) {
        Err(Errno::NOENT) => Err(Error::NoFreezer(cgroup.path().to_owned())),
        written => written.map_err(cgroup.failed(if state == "1" { "freeze" } else { "thaw" })),
    }
}

/// Returns whether the processes are frozen, through this cgroup or an ancestor.
pub(crate) fn is_frozen(directory: &OwnedFd, path: &Path) -> Result<bool, Error> {
    let mut room = [0; 128];
    match files::short(directory.as_fd(), "cgroup.events", &mut room) {
        Ok(text) => Ok(files::keyed(text, "frozen") == Some(1)),
        Err(Errno::NOENT | Errno::NODEV) => Ok(false),
        Err(errno) => Err(Error::Act { act: "read cgroup.events of", path: path.to_owned(), errno }),
    }
}

/// Returns whether this cgroup itself has been told to freeze.
pub(crate) fn is_asked(cgroup: &Cgroup) -> Result<bool, Error> {
    let mut room = [0; 16];
    match files::short(cgroup.directory(), "cgroup.freeze", &mut room) {
        Ok(text) => Ok(text == "1"),
        Err(Errno::NOENT | Errno::NODEV) => Ok(false),
        Err(errno) => Err(cgroup.failed("read cgroup.freeze of")(errno)),
    }
}
