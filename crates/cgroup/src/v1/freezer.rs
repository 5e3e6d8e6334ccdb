//! Version 1's freezer, which has no events and sometimes gives up half-way.

use super::group::Group;
use crate::error::Error;
use crate::files;
use crate::files::walk::{Visitor, walk};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::path::Path;
use std::time::{Duration, Instant};

const STATE: &str = "freezer.state";

/// How long processes are let run for a moment when they do not stop: one that waits for another that
/// is stopped already, in a way that the freezer cannot interrupt, stops only after that one has gone on.
const BREATH: Duration = Duration::from_millis(10);

/// After how many tries.
const TRIES: u32 = 50;

fn failed(act: &'static str, path: &Path) -> impl Fn(Errno) -> Error {
    move |source| Error::Act { act, path: path.to_owned(), source }
}

pub(super) fn freeze(group: &Group, patience: Duration) -> Result<(), Error> {
    let frozen = try_freeze(group, patience);
    if frozen.is_err() {
        // Tolerated: what is told is why it could not be frozen.
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
        // Written again each time: the kernel goes on with what is left.
        write("FROZEN")?;
        match state(&group.directory, &group.path)? {
            Some(State::Frozen) => return Ok(()),
            Some(State::Freezing) => {}
            None | Some(State::Thawed) => return Err(Error::NoFreezer(group.path.clone())),
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

/// Lets all go on, in cgroups below too, which may have been frozen by themselves.
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

/// Whether this very cgroup has been frozen. One that is stopped because one above is frozen is not:
/// it is not the one to thaw.
pub(crate) fn is_frozen(directory: &OwnedFd, path: &Path) -> Result<bool, Error> {
    if !matches!(state(directory, path)?, Some(State::Frozen | State::Freezing)) {
        return Ok(false);
    }
    let mut room = [0; 16];
    match files::short(directory.as_fd(), "freezer.self_freezing", &mut room) {
        Ok(text) => Ok(text == "1"),
        // Before Linux 3.9 there is no such file.
        Err(Errno::NOENT) => Ok(true),
        Err(Errno::NODEV) => Ok(false),
        Err(errno) => Err(failed("read freezer.self_freezing of", path)(errno)),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Thawed,
    Freezing,
    Frozen,
}

/// The state, unless the cgroup is gone.
fn state(directory: &OwnedFd, path: &Path) -> Result<Option<State>, Error> {
    let mut room = [0; 16];
    match files::short(directory.as_fd(), STATE, &mut room) {
        Ok("THAWED") => Ok(Some(State::Thawed)),
        Ok("FREEZING") => Ok(Some(State::Freezing)),
        Ok("FROZEN") => Ok(Some(State::Frozen)),
        Ok(text) => Err(Error::Unexpected { path: path.join(STATE), text: text.to_owned() }),
        Err(Errno::NOENT | Errno::NODEV) => Ok(None),
        Err(errno) => Err(failed("read freezer.state of", path)(errno)),
    }
}
