//! A cgroup of the program's own, where limits are to hold for all of its processes together.

use crate::profile::Limits;
use husk_cgroup::resources::Memory;
use husk_cgroup::{Cgroup, Error, Layout, Place, Resources};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long is waited for processes that have been killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many there have been.
static MADE: AtomicU64 = AtomicU64::new(0);

/// A cgroup that is gone when this is.
pub(crate) struct Home {
    layout: Layout,
    place: Place,
    cgroup: Cgroup,
    resources: Resources,
}

impl Home {
    /// A cgroup for limits that only a cgroup keeps for all processes together.
    pub(crate) fn of(limits: &Limits) -> Option<Result<Self, Error>> {
        let number = |limit: Option<u64>| limit.map(|limit| i64::try_from(limit).unwrap_or(i64::MAX));
        let (memory, pids_limit) = (number(limits.memory), number(limits.processes));
        if memory.is_none() && pids_limit.is_none() {
            return None;
        }
        // Without swap, which would only make it slower.
        let memory = Memory { limit: memory, swap: memory, ..Memory::default() };
        Some(Self::make(Resources { memory, pids_limit, ..Resources::default() }))
    }

    fn make(resources: Resources) -> Result<Self, Error> {
        let layout = Layout::detect()?;
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("husk-hermetic-{}-{number}", std::process::id());
        let place = layout.place(None, &name)?;
        let cgroup = layout.create(&place, &resources)?;
        let home = Self { layout, place, cgroup, resources };
        // What has no meaning here is what was not asked for.
        home.cgroup.apply_early(&home.resources).map(drop)?;
        home.cgroup.apply_late(&home.resources)?;
        Ok(home)
    }

    /// Moves a process there.
    pub(crate) fn join(&self, pid: u32) -> Result<(), Error> {
        self.cgroup.join(i32::try_from(pid).unwrap_or(i32::MAX))
    }

    /// Whether the kernel has killed one of its processes for want of memory.
    pub(crate) fn has_run_out(&self) -> bool {
        self.cgroup.oom_kills().is_ok_and(|kills| kills != 0)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // Tolerated: one that cannot be removed is empty, and nobody is left to tell.
        self.layout.remove(&self.place, PATIENCE).unwrap_or(());
    }
}
