//! Version 1's freezer, which sends no events and sometimes stops half-way.

use super::group::Group;
use crate::error::Error;
use crate::files;
use crate::files::walk::{Visitor, walk};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::path::Path;
use std::time::{Duration, Instant};

const STATE: &str = "freezer.state";

/// How long the processes run again if some of them do not stop. A process may wait uninterruptibly for one that is
/// already frozen; it stops only after that one has run again.
const BREATH: Duration = Duration::from_millis(10);

/// The number of failed tries before the processes run again.
const TRIES: u32 = 50;

fn failed(act: &'static str, path: &Path) -> impl Fn(Errno) -> Error {
    move |errno| Error::Act { act, path: path.to_owned(), errno }
}

pub(super) fn freeze(group: &Group, patience: Duration) -> Result<(), Error> {
    let frozen = try_freeze(group, patience);
    if frozen.is_err() {
        // Tolerated: the caller gets the error of freezing.
        drop(thaw(group));
    }
    frozen
}

fn try_freeze(group: &Group, patience: Duration) -> Result<(), Error> {
    let end = Instant::now() + patience;
    let write =
        |state| files::put(group.directory.as_fd(), STATE, state).map_err(failed("freeze", &group.path));
    for tries in 1_u32.. {
        if tries.is_multiple_of(TRIES) {
            write("THAWED")?;
            std::thread::sleep(BREATH);
        }
        // Writes again each time, because the kernel then freezes the remaining processes.
        write("FROZEN")?;
        match state(&group.directory, &group.path)? {
            Some(FreezerState::Frozen) => return Ok(()),
            Some(FreezerState::Freezing) => {}
            None | Some(FreezerState::Thawed) => return Err(Error::NoFreezer(group.path.clone())),
        }
        if Instant::now() >= end {
            break;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    Err(Error::Deadline {
        act: "freeze",
        path: group.path.clone(),
        seconds: patience.as_secs(),
        pids: crate::files::procs::all(&group.directory)
            .map_err(failed("list the processes of", &group.path))?,
    })
}

/// Thaws the cgroup and all below it, which may have been frozen on their own.
pub(super) fn thaw(group: &Group) -> Result<(), Error> {
    walk(group.directory.as_fd(), &mut Thaw).map_err(failed("thaw", &group.path))
}

struct Thaw;

impl Visitor for Thaw {
    fn enter(&mut self, directory: BorrowedFd<'_>) -> Result<Vec<String>, Errno> {
        match files::put(directory, STATE, "THAWED") {
            Ok(()) => files::directories(directory),
            Err(Errno::NOENT | Errno::NODEV) => Ok(Vec::new()),
            Err(errno) => Err(errno),
        }
    }

    fn leave(&mut self, _: BorrowedFd<'_>, _: &str) -> Result<(), Errno> {
        Ok(())
    }
}

/// Returns whether this cgroup itself has been frozen. A cgroup that is stopped because of a frozen ancestor
/// does not count: thawing it would not help.
pub(crate) fn is_frozen(directory: &OwnedFd, path: &Path) -> Result<bool, Error> {
    if !matches!(state(directory, path)?, Some(FreezerState::Frozen | FreezerState::Freezing)) {
        return Ok(false);
    }
    let mut room = [0; 16];
    match files::short(directory.as_fd(), "freezer.self_freezing", &mut room) {
        Ok(text) => Ok(text == "1"),
        // Linux before 3.9 does not have this file.
        Err(Errno::NOENT) => Ok(true),
        Err(Errno::NODEV) => Ok(false),
        Err(errno) => Err(failed("read freezer.self_freezing of", path)(errno)),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FreezerState {
    Thawed,
    Freezing,
    Frozen,
}

/// Returns the state, or `None` if the cgroup is gone.
fn state(directory: &OwnedFd, path: &Path) -> Result<Option<FreezerState>, Error> {
    let mut room = [0; 16];
    match files::short(directory.as_fd(), STATE, &mut room) {
        Ok("THAWED") => Ok(Some(FreezerState::Thawed)),
        Ok("FREEZING") => Ok(Some(FreezerState::Freezing)),
        Ok("FROZEN") => Ok(Some(FreezerState::Frozen)),
        Ok(text) => Err(Error::Unexpected { path: path.join(STATE), text: text.to_owned() }),
        Err(Errno::NOENT | Errno::NODEV) => Ok(None),
        Err(errno) => Err(failed("read freezer.state of", path)(errno)),
    }
}
