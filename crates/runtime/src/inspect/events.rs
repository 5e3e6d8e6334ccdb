//! `events`: reports a container's resource usage and when it runs out of memory.

use crate::cgroups;
use crate::error::Error;
use crate::inspect::state::{self as status, Status};
use crate::store::Store;
use crate::store::process;
use crate::store::record::Record;
use husk_cgroup::{Cgroup, CgroupPaths, OomEvent, OomWatch, Stats};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use serde::Serialize;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// A report about a container, with runc's field names.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Event {
    /// The container's resource usage.
    Stats {
        /// The container's id.
        id: String,
        data: Box<Used>,
    },
    /// The kernel killed a process because the container's memory limit was reached.
    Oom {
        /// The container's id.
        id: String,
    },
}

/// A container's resource usage.
#[derive(Clone, Debug, Serialize)]
pub struct Used {
    /// The counters of its cgroup.
    #[serde(flatten)]
    pub cgroup: Stats,
    pub intel_rdt: Resctrl,
    /// Always `None`, because husk makes no network interfaces.
    pub network_interfaces: Option<()>,
}

/// A container's resctrl group.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Resctrl {
    /// The contents of the group's `schemata`. `None` without a group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schemata: Option<String>,
}

/// Returns the container's current resource usage.
///
/// # Errors
///
/// If it has no live process, or no cgroup.
pub fn stats(store: &Store, id: &str) -> Result<Event, Error> {
    let entry = store.entry(id)?;
    let record = entry.read()?;
    if matches!(status::of(&entry, &record)?, Status::Stopped | Status::Creating) {
        return Err(not_running(id));
    }
    used(&record, &cgroups::of(&record)?)
}

fn not_running(id: &str) -> Error {
    Error::Argument { option: "events", reason: format!("container with id {id} is not running") }
}

fn used(record: &Record, cgroup: &Cgroup) -> Result<Event, Error> {
    let group = record.resctrl.as_ref().map(|membership| membership.group.join("schemata"));
    // Tolerated: a group may have been removed.
    let schemata = group.and_then(|file| fs::read_to_string(file).ok());
    let data = Used { cgroup: cgroup.stats()?, intel_rdt: Resctrl { schemata }, network_interfaces: None };
    Ok(Event::Stats { id: record.id.clone(), data: Box::new(data) })
}

/// Reports resource usage at every `interval`, and each time that memory runs out, until the container ends.
///
/// # Errors
///
/// If it has already ended, cannot be watched, or `tell` fails.
pub fn events(
    store: &Store,
    id: &str,
    interval: Duration,
    mut tell: impl FnMut(&Event) -> io::Result<()>,
) -> Result<(), Error> {
    let entry = store.entry(id)?;
    let record = entry.read()?;
    if matches!(status::of(&entry, &record)?, Status::Stopped | Status::Creating) {
        return Err(not_running(id));
    }
    let first = record.process.map_or(Ok(None), process::open)?.ok_or_else(|| not_running(id))?;
    let mut tell = |event: &Event| tell(event).map_err(|reason| Error::kernel("report an event", reason));
    let cgroup = cgroups::of(&record)?;
    let mut watch = cgroups::paths(&record)?.watch_oom()?;
    let mut is_watched = true;
    let mut next = Instant::now() + interval;
    loop {
        let left = next.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).ok();
        let mut events = [PollFd::new(&first, PollFlags::IN), PollFd::new(&watch, watch.flags())];
        let polled = if is_watched { &mut events[..] } else { &mut events[..1] };
        retry_on_intr(|| poll(polled, left.as_ref()))
            .map_err(|errno| Error::kernel("wait for events", errno))?;
        let ended = !events[0].revents().is_empty();
        match watch.check()? {
            OomEvent::Nothing => {}
            OomEvent::OutOfMemory => tell(&Event::Oom { id: record.id.clone() })?,
            // The container's processes may have been moved elsewhere.
            OomEvent::Gone => is_watched = false,
        }
        if ended {
            return Ok(());
        }
        if Instant::now() >= next {
            match used(&record, &cgroup) {
                // The container has ended and been deleted in the meantime.
                Err(_) if status::of(&entry, &record).is_ok_and(|status| status == Status::Stopped) => {
                    return Ok(());
                }
                event => tell(&event?)?,
            }
            next = Instant::now() + interval;
        }
    }
}

/// Returns a descriptor to poll that becomes ready when the container runs out of memory.
///
/// # Errors
///
/// If the container has no cgroup, or its cgroup has no memory controller.
pub fn watch_memory(store: &Store, id: &str) -> Result<OomWatch, Error> {
    Ok(cgroups::paths(&store.entry(id)?.read()?)?.watch_oom()?)
}

/// Returns the paths of the container's cgroup, to read its files. Does not check whether the container runs.
///
/// # Errors
///
/// If the container has no cgroup.
pub fn cgroup_paths(store: &Store, id: &str) -> Result<CgroupPaths, Error> {
    cgroups::paths(&store.entry(id)?.read()?).cloned()
}
