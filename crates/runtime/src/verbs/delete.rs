//! `delete`: nothing is left of a container.

use crate::cgroups;
use crate::child::hooks;
use crate::error::Error;
use crate::inspect::state::{self as status, Status};
use crate::store::process;
use crate::store::record::Record;
use crate::store::{Entry, Store};
use crate::verbs::dismiss::dismiss;
use husk_bundle::Warning;

/// Deletes a container that has stopped, or that was created and never started. `warn` hears of hooks
/// that fail.
///
/// # Errors
///
/// If it runs.
pub fn delete(store: &Store, id: &str, warn: impl FnMut(&[Warning])) -> Result<(), Error> {
    let entry = store.entry(id)?;
    // What cannot be read cannot be known to have stopped.
    let record = entry.read()?;
    match status::of(&entry, &record)? {
        Status::Stopped => {
            cgroups::kill_rest(&record)?;
            forget(&entry, &record, warn)
        }
        Status::Created => end(&entry, warn),
        status => Err(Error::NotStopped { id: id.to_owned(), status: status.name() }),
    }
}

/// Deletes a container whatever it does. One that is not there is no error. `warn` hears of hooks that
/// fail.
///
/// # Errors
///
/// If its process cannot be killed.
pub fn force_delete(store: &Store, id: &str, warn: impl FnMut(&[Warning])) -> Result<(), Error> {
    match store.entry(id) {
        Err(Error::Missing) => Ok(()),
        Err(error) => Err(error),
        Ok(entry) => end(&entry, warn),
    }
}

/// Ends whoever creates the container, its process, and whoever is left in the cgroup, and forgets the container.
fn end(entry: &Entry, warn: impl FnMut(&[Warning])) -> Result<(), Error> {
    match settled(entry)? {
        Some(record) => {
            kill_processes(&record)?;
            forget(entry, &record, warn)
        }
        None => entry.discard(),
    }
}

/// The record when nobody writes to it any more, because nobody creates the container any more. Nothing, if there is none.
fn settled(entry: &Entry) -> Result<Option<Record>, Error> {
    loop {
        dismiss(entry)?;
        if let Some(record) = entry.known()? {
            return Ok(Some(record));
        }
        // A creator marks the directory before it writes there. So an empty one may be that of a creator which has not
        // come to that; it finds no directory then.
        if entry.remove_empty()? {
            return Ok(None);
        }
        // What is not empty was marked. If the mark is gone by now, so is its creator, and the record is final.
        if entry.creator()?.is_none() {
            return entry.known();
        }
    }
}

/// Kills the container's process, waits until it is gone, and kills the processes that are left in the cgroup.
fn kill_processes(record: &Record) -> Result<(), Error> {
    // Until one is known, what is in its cgroup may be somebody else's, who was there first.
    let Some(process) = record.process.or(record.creating) else { return Ok(()) };
    if let Some(process) = process::open(process)? {
        process::order(&process)?;
        cgroups::let_die(record)?;
        process::wait_patiently(&process)?;
    }
    cgroups::kill_all(record)
}

/// Forgets a container whose process is gone, and then runs the hooks for that, as the specification
/// has it (runtime.md, "Lifecycle", 12 and 13): they find nothing of it any more.
pub(crate) fn forget(entry: &Entry, record: &Record, mut warn: impl FnMut(&[Warning])) -> Result<(), Error> {
    // While it is still written down what that is.
    if let Some(stays) = cgroups::leave(record)? {
        warn(&[stays]);
    }
    if record.poststop.is_empty() {
        return entry.discard();
    }
    // Of two who delete it, as `run` and somebody's `delete --force` may, one runs them.
    let ours = entry.claim()?;
    entry.discard()?;
    if ours {
        hooks::poststop(record, warn);
    }
    Ok(())
}
