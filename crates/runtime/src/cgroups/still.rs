//! Freezes a container's processes shortly before CRIU does.
//!
//! CRIU asks the kernel to freeze the cgroup and looks once whether it is done. It rarely is, and then CRIU sleeps for
//! 100 ms (criu/seize.c, `freeze_processes`). husk instead waits for the kernel's event, and CRIU finds the processes
//! frozen. But then it also leaves them frozen, so husk thaws them.

use super::recorded::{find, is_frozen};
use crate::error::Error;
use crate::store::record::Record;
use husk_cgroup::Cgroup;
use std::time::Duration;

/// The cgroup of a container that is to be still while CRIU saves it.
pub(crate) struct Still {
    cgroup: Cgroup,
    is_frozen: bool,
}

impl Still {
    /// Finds what to freeze. `None` for a container that is paused or has no cgroup. Also `None` in version 1: CRIU
    /// would write into the images that the container was paused, and `restore` in some modes would pause it.
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
