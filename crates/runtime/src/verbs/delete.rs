//! `delete`: removes all that is left of a container.

use crate::cgroups;
use crate::child::hooks;
use crate::error::Error;
use crate::inspect::state::{self as status, Status};
use crate::store::process;
use crate::store::record::Record;
use crate::store::{Entry, Store};
use crate::verbs::end_creator::end_creator;
use husk_bundle::Warning;

/// Deletes a container that has stopped, or that was created and never started. Calls `warn` with hooks that fail.
///
/// # Errors
///
/// If the container is running.
pub fn delete(store: &Store, id: &str, warn: impl FnMut(&[Warning])) -> Result<(), Error> {
    let entry = store.entry(id)?;
    // A container whose record cannot be read is not known to have stopped.
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

/// Deletes a container in any state. A missing container is not an error. Calls `warn` with hooks that fail.
///
/// # Errors
///
/// If its processes cannot be killed.
pub fn force_delete(store: &Store, id: &str, warn: impl FnMut(&[Warning])) -> Result<(), Error> {
    match store.entry(id) {
        Err(Error::Missing) => Ok(()),
        Err(error) => Err(error),
        Ok(entry) => end(&entry, warn),
    }
}

/// Ends the container's creator, its process and the rest of its cgroup, and removes the container.
fn end(entry: &Entry, warn: impl FnMut(&[Warning])) -> Result<(), Error> {
    match settled(entry)? {
        Some(record) => {
            kill_processes(&record)?;
            forget(entry, &record, warn)
        }
        None => entry.discard(),
    }
}

/// Returns the final record, or `None` if the entry has none. The creator is gone, so no process writes to it any more.
fn settled(entry: &Entry) -> Result<Option<Record>, Error> {
    loop {
        end_creator(entry)?;
        if let Some(record) = entry.known()? {
            return Ok(Some(record));
        }
        // A creator marks the directory before it writes there. So an empty directory may be that of a creator that has
        // not marked it yet; once it is removed, that creator fails.
        if entry.remove_empty()? {
            return Ok(None);
        }
        // A directory that is not empty was marked. If the mark is gone, so is its creator, and the record is final.
        if entry.creator()?.is_none() {
            return entry.known();
        }
    }
}

/// Kills the container's process, waits for its end, and kills the processes that are left in the cgroup.
fn kill_processes(record: &Record) -> Result<(), Error> {
    // Before a process is recorded, the cgroup may hold only processes of others that were there first.
    let Some(process) = record.process.or(record.creating) else { return Ok(()) };
    if let Some(process) = process::open(process)? {
        process::order(&process)?;
        cgroups::let_die(record)?;
        process::wait_patiently(&process)?;
    }
    cgroups::kill_all(record)
}

/// Removes a container whose process is gone, and then runs its poststop hooks, which find nothing of it. This is the
/// specification's order (runtime.md, "Lifecycle", 12 and 13).
pub(crate) fn forget(entry: &Entry, record: &Record, mut warn: impl FnMut(&[Warning])) -> Result<(), Error> {
    // Must happen while the record still names the cgroup and the resctrl group.
    if let Some(stays) = cgroups::leave(record)? {
        warn(&[stays]);
    }
    if record.poststop.is_empty() {
        return entry.discard();
    }
    // `run` and a `delete --force` may get here at the same time; only the one that claims the record runs the hooks.
    let ours = entry.claim()?;
    entry.discard()?;
    if ours {
        hooks::poststop(record, warn);
    }
    Ok(())
}
