//! `events`: reports a container's resource usage and when it runs out of memory.

use crate::cgroups;
use crate::error::Error;
use crate::inspect::state::{self as status, Status};
use crate::store::Store;
use crate::store::process;
use crate::store::record::Record;
use husk_cgroup::{Cgroup, Stats};
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
    let watch = cgroup.watch_oom()?;
    let mut kills = cgroup.oom_kills()?;
    let mut next = Instant::now() + interval;
    loop {
        let left = next.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).ok();
        let mut events = [PollFd::new(&watch, watch.flags()), PollFd::new(&first, PollFlags::IN)];
        retry_on_intr(|| poll(&mut events, left.as_ref()))
            .map_err(|errno| Error::kernel("wait for events", errno))?;
        let [news, ended] = events.map(|event| !event.revents().is_empty());
        if news {
            watch.take().map_err(|errno| Error::kernel("read the event of the memory limit", errno))?;
        }
        let now = cgroup.oom_kills().unwrap_or(kills);
        if news && !ended && matches!(cgroup, Cgroup::V1(_)) {
            // Version 1 reports this before it kills, and only once (mem_cgroup_oom_notify).
            tell(&Event::Oom { id: record.id.clone() })?;
            kills = kills.saturating_add(1).max(now);
        } else if now > kills {
            // `watch` also fires when a limit is reached or the cgroup is removed, so only the count of kills is
            // reliable.
            tell(&Event::Oom { id: record.id.clone() })?;
            kills = now;
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
