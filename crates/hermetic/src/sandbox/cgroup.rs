//! A cgroup for each program whose limits must hold for all of its processes together.

use crate::profile::Limits;
use husk_cgroup::resources::Memory;
use husk_cgroup::{Cgroup, CgroupPaths, Error, Layout, Resources};
use husk_script::sys::tolerate;
use std::fmt::{self, Display, Formatter};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, process};

/// How long to wait for processes that have been killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many cgroups this process has made.
static MADE: AtomicU64 = AtomicU64::new(0);

/// Runs the sweep before the first cgroup is made.
static SWEPT: Once = Once::new();

/// A cgroup that is removed on drop.
pub(crate) struct SandboxCgroup {
    layout: Layout,
    place: CgroupPaths,
    cgroup: Cgroup,
    resources: Resources,
}

impl SandboxCgroup {
    /// Makes a cgroup if the program needs one in any case, or for limits that only a cgroup can keep. Those apply to all
    /// processes together, or are a process limit where nothing else limits processes.
    pub(crate) fn of(limits: &Limits, is_unlimited: bool, is_needed: bool) -> Option<Result<Self, Error>> {
        let number = |limit: Option<u64>| limit.map(|limit| i64::try_from(limit).unwrap_or(i64::MAX));
        let processes = if is_unlimited { Some(limits.most_processes()) } else { limits.processes };
        let (memory, pids_limit) = (number(limits.memory), number(processes));
        if memory.is_none() && pids_limit.is_none() && !is_needed {
            return None;
        }
        // No swap, which would only slow the program down.
        let memory = Memory { limit: memory, swap: memory, ..Memory::default() };
        Some(Self::make(Resources { memory, pids_limit, ..Resources::default() }))
    }

    fn make(resources: Resources) -> Result<Self, Error> {
        let layout = Layout::detect()?;
        let owner = Owner::this();
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let place = layout.place(None, &format!("{PREFIX}{owner}-{number}"))?;
        SWEPT.call_once(|| sweep(&layout, &place, owner));
        let cgroup = layout.create(&place, &resources)?;
        let home = Self { layout, place, cgroup, resources };
        // The warnings are dropped: they concern settings without effect here, and none of those was asked for.
        home.cgroup.apply_early(&home.resources).map(drop)?;
        home.cgroup.apply_late(&home.resources)?;
        Ok(home)
    }

    /// Moves a process into the cgroup.
    pub(crate) fn join(&self, pid: u32) -> Result<(), Error> {
        self.cgroup.join(i32::try_from(pid).unwrap_or(i32::MAX))
    }

    /// Returns whether the kernel has killed one of its processes because memory ran out.
    pub(crate) fn has_run_out(&self) -> bool {
        self.cgroup.oom_kills().is_ok_and(|kills| kills != 0)
    }
}

impl Drop for SandboxCgroup {
    fn drop(&mut self) {
        tolerate(self.layout.remove(&self.place, PATIENCE), "the next run tries to remove it again");
    }
}

/// Returns whether this process sees the whole tree of cgroups.
pub(crate) fn is_in_first_namespace() -> bool {
    /// The inode of the first cgroup namespace (include/linux/proc_ns.h, `PROC_CGROUP_INIT_INO`).
    const FIRST: u64 = 0xeffffffb;
    fs::metadata("/proc/self/ns/cgroup").is_ok_and(|found| found.ino() == FIRST)
}

/// The prefix of the cgroups' names.
const PREFIX: &str = "husk-hermetic-";

/// Removes cgroups whose owners were killed before they could do so. Their programs ended with them.
fn sweep(layout: &Layout, place: &CgroupPaths, owner: Owner) {
    // Errors are ignored, also below: such a cgroup is harmless, and the next run tries again.
    for name in layout.beside(place).unwrap_or_default() {
        let known = name.strip_prefix(PREFIX).and_then(Owner::read);
        if known.is_some_and(|known| known.is_gone(owner)) {
            let left = layout.place(None, &name);
            let removed = left.and_then(|left| layout.remove(&left, Duration::ZERO));
            tolerate(removed, "the next run tries to remove it again");
        }
    }
}

/// The process that made a cgroup, as encoded in its name. A pid alone could have been reused, or belong to another pid
/// namespace that has cgroups here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    /// The inode of its pid namespace.
    namespace: u64,
    pid: u32,
    /// Its start time, in ticks since boot.
    start: u64,
}

impl Owner {
    fn this() -> Self {
        let namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino());
        let pid = process::id();
        Self { namespace, pid, start: start(pid).unwrap_or_default() }
    }

    /// Parses a cgroup's name without the prefix.
    fn read(name: &str) -> Option<Self> {
        let mut parts = name.split('-');
        let namespace = parts.next()?.parse().ok()?;
        let pid = parts.next()?.parse().ok()?;
        let start = parts.next()?.parse().ok()?;
        parts.next()?.parse::<u64>().ok()?;
        parts.next().is_none().then_some(Self { namespace, pid, start })
    }

    /// Returns whether it has ended, as far as `ours`, which is this process, can see.
    fn is_gone(self, ours: Self) -> bool {
        // Without a procfs of our pid namespace this is unknown.
        let is_visible = ours.namespace != 0 && ours.start != 0 && self.namespace == ours.namespace;
        is_visible && start(self.pid) != Some(self.start)
    }
}

impl Display for Owner {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.namespace, self.pid, self.start)
    }
}

/// Returns a process's start time (proc_pid_stat(5)). The preceding name may contain any character.
fn start(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::Owner;

    #[test]
    fn cgroup_name_identifies_its_owner() {
        let ours = Owner::this();
        assert_eq!(Owner::read(&format!("{ours}-7")), Some(ours));
        for other in ["", "1-2-3", "1-2-3-x", "1-2-3-4-5", "1-x-3-4"] {
            assert_eq!(Owner::read(other), None, "{other}");
        }
    }

    #[test]
    fn owner_is_gone_only_after_it_has_ended() {
        let ours = Owner::this();
        assert!(!ours.is_gone(ours));
        // Another process has this pid.
        assert!(Owner { start: ours.start - 1, ..ours }.is_gone(ours));
        // It may run in a pid namespace that we cannot see.
        assert!(!Owner { namespace: 1, ..ours }.is_gone(ours));
    }
}
