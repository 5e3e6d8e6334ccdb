//! `pause` and `resume`: a container's processes are stopped, and go on.

use crate::cgroups;
use crate::error::Error;
use crate::inspect::state::{self as status, Status};
use crate::store::Store;
use std::time::Duration;

/// How long processes may take to stop: one that waits for a device does not before it is done.
const PATIENCE: Duration = Duration::from_secs(10);

/// Stops all processes of a container, and returns when they have stopped.
///
/// # Errors
///
/// `container not running` if there is none to stop, or if one does not stop in time; then all go on.
pub fn pause(store: &Store, id: &str) -> Result<(), Error> {
    let entry = store.entry(id)?;
    entry.lock()?;
    let record = entry.read()?;
    match status::of(&entry, &record)? {
        Status::Created | Status::Running => Ok(cgroups::of(&record)?.freeze(PATIENCE)?),
        _ => Err(Error::State("container not running")),
    }
}

/// Lets them go on.
///
/// # Errors
///
/// `container not paused` if they are not stopped.
pub fn resume(store: &Store, id: &str) -> Result<(), Error> {
    let entry = store.entry(id)?;
    entry.lock()?;
    let record = entry.read()?;
    match status::of(&entry, &record)? {
        Status::Paused => Ok(cgroups::of(&record)?.thaw()?),
        _ => Err(Error::State("container not paused")),
    }
}
