//! Freezes a container for a checkpoint, shortly before CRIU would.
//!
//! CRIU asks the kernel to freeze the cgroup and looks once whether it has. Usually that takes longer, and then CRIU
//! sleeps for 100 ms (criu/seize.c, `freeze_processes`). husk waits for the kernel's event instead, and CRIU finds the
//! processes frozen. But CRIU then also leaves them frozen, so husk thaws them.

use super::recorded::{find, is_frozen};
use crate::error::Error;
use crate::store::record::Record;
use husk_cgroup::Cgroup;
use std::time::Duration;

/// A container's cgroup that husk freezes and thaws again.
pub(crate) struct TemporaryFreeze {
    cgroup: Cgroup,
    is_frozen: bool,
}

impl TemporaryFreeze {
    /// Returns the cgroup, which is not frozen yet. A paused container has been frozen by others, so it has `None`. So
    /// has one in version 1: CRIU would record it as paused, and some modes of `restore` would pause it.
    pub(crate) fn of(record: &Record) -> Result<Option<Self>, Error> {
        let is_version_1 = record.cgroup.as_ref().is_some_and(|kept| kept.place.path("freezer").is_some());
        if is_version_1 || is_frozen(record) {
            return Ok(None);
        }
        Ok(find(record)?.map(|cgroup| Self { cgroup, is_frozen: false }))
    }

    /// Freezes the processes, and returns when they are frozen.
    pub(crate) fn freeze(&mut self, patience: Duration) -> Result<(), Error> {
        self.cgroup.freeze(patience)?;
        self.is_frozen = true;
        Ok(())
    }

    /// Thaws the processes, if they were frozen and still exist.
    pub(crate) fn thaw(self) -> Result<(), Error> {
        if !self.is_frozen {
            return Ok(());
        }
        match self.cgroup.thaw() {
            // Tolerated: systemd removes the cgroup with the last process.
            Err(husk_cgroup::Error::NoFreezer(_)) => Ok(()),
            thawed => Ok(thawed?),
        }
    }
}
