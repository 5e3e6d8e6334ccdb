//! `pause` and `resume`: freeze and thaw the processes of a container.

use crate::cgroups;
use crate::error::Error;
use crate::inspect::state::{self as status, Status};
use crate::store::Store;
use std::time::Duration;

/// How long the processes may take to freeze. One that waits for a device does not freeze until it is done.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Freezes all processes of a container, and returns when they are frozen.
///
/// # Errors
///
/// `container not running` if there is none to freeze, or an error if one does not freeze in time; then all are thawed.
pub fn pause(store: &Store, id: &str) -> Result<(), Error> {
    let entry = store.entry(id)?;
    entry.lock()?;
    let record = entry.read()?;
    match status::of(&entry, &record)? {
        Status::Created | Status::Running => Ok(cgroups::of(&record)?.freeze(PATIENCE)?),
        _ => Err(Error::State("container not running")),
    }
}

/// Thaws all processes of a container.
///
/// # Errors
///
/// `container not paused` if they are not frozen.
pub fn resume(store: &Store, id: &str) -> Result<(), Error> {
    let entry = store.entry(id)?;
    entry.lock()?;
    let record = entry.read()?;
    match status::of(&entry, &record)? {
        Status::Paused => Ok(cgroups::of(&record)?.thaw()?),
        _ => Err(Error::State("container not paused")),
    }
}
