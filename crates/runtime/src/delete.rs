//! `delete`: nothing is left of a container.

use crate::error::Error;
use crate::kill;
use crate::status::{self, Status};
use crate::store::{Entry, Store};
use husk_spawn::Signal;
use husk_spawn::sys::signal::pidfd_send_signal;
use husk_spawn::sys::{Errno, Fd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;

/// Deletes a container that has stopped, or that was created and never started.
///
/// # Errors
///
/// If it runs.
pub fn delete(store: &Store, id: &str) -> Result<(), Error> {
    let entry = store.entry(id)?;
    let status = match entry.read() {
        Ok(record) => status::of(&entry, &record),
        // What cannot be read cannot be known to have stopped.
        Err(error) => return Err(error),
    };
    match status {
        Status::Stopped => entry.remove(),
        Status::Created => end(&entry),
        status => Err(Error::NotStopped { id: id.to_owned(), status }),
    }
}

/// Deletes a container whatever it does. One that is not there is no error.
///
/// # Errors
///
/// If its process cannot be killed.
pub fn force_delete(store: &Store, id: &str) -> Result<(), Error> {
    match store.entry(id) {
        Err(Error::Missing) => Ok(()),
        Err(error) => Err(error),
        Ok(entry) => end(&entry),
    }
}

/// Kills the process, waits until it is gone, and forgets the container.
fn end(entry: &Entry) -> Result<(), Error> {
    // A record that cannot be read names no process.
    let process = entry.read().ok().and_then(|record| record.process).and_then(kill::open);
    if let Some(process) = process {
        match pidfd_send_signal(Fd::of(&process), Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(errno) => return Err(Error::kernel("kill the container's process", errno)),
        }
        let mut ended = [PollFd::new(&process, PollFlags::IN)];
        retry_on_intr(|| poll(&mut ended, None))
            .map_err(|errno| Error::kernel("wait for the container's process", errno))?;
    }
    entry.remove()
}
