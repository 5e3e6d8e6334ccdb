//! `events`: what a container uses, and that its memory has run out.

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

/// What is told of a container, with runc's names.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Event {
    /// What it uses.
    Stats {
        /// Its name.
        id: String,
        /// What it uses.
        data: Box<Used>,
    },
    /// The kernel ran out of its memory.
    Oom {
        /// Its name.
        id: String,
    },
}

/// What a container uses.
#[derive(Clone, Debug, Serialize)]
pub struct Used {
    /// By its cgroup.
    #[serde(flatten)]
    pub cgroup: Stats,
    /// Of resctrl.
    pub intel_rdt: Resctrl,
    /// Of the network, which the runtime makes none of.
    pub network_interfaces: Option<()>,
}

/// What a container has of resctrl.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Resctrl {
    /// Its group's shares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schemata: Option<String>,
}

/// What a container uses now.
///
/// # Errors
///
/// If it has ended.
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
    // Tolerated: a group that is gone has none.
    let schemata = group.and_then(|file| fs::read_to_string(file).ok());
    let data = Used { cgroup: cgroup.stats()?, intel_rdt: Resctrl { schemata }, network_interfaces: None };
    Ok(Event::Stats { id: record.id.clone(), data: Box::new(data) })
}

/// Tells what a container uses, at every `interval`, and each time that its memory runs out, until it ends.
///
/// # Errors
///
/// If it has ended before, cannot be watched, or nobody listens.
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
    let mut tell =
        |event: &Event| tell(event).map_err(|reason| Error::Kernel { act: "tell of an event", reason });
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
            watch.take().map_err(|errno| Error::kernel("hear of the memory", errno))?;
        }
        let now = cgroup.oom_kills().unwrap_or(kills);
        if news && !ended && matches!(cgroup, Cgroup::V1(_)) {
            // Version 1 says so before it kills, and does not say it again (mem_cgroup_oom_notify).
            tell(&Event::Oom { id: record.id.clone() })?;
            kills = kills.saturating_add(1).max(now);
        } else if now > kills {
            // A limit that was met is news too, and so is the end of the cgroup.
            tell(&Event::Oom { id: record.id.clone() })?;
            kills = now;
        }
        if ended {
            return Ok(());
        }
        if Instant::now() >= next {
            match used(&record, &cgroup) {
                // It has ended and been deleted since we looked.
                Err(_) if status::of(&entry, &record).is_ok_and(|status| status == Status::Stopped) => {
                    return Ok(());
                }
                event => tell(&event?)?,
            }
            next = Instant::now() + interval;
        }
    }
}
