//! Statistics of a version 2 cgroup. Numbers have version 1's meaning, which engines expect: swap is the sum of
//! memory and swap, and times are in nanoseconds.

use super::parse::{self, Files};
use super::{Amount, Blkio, Cpu, Hugetlb, Memory, Pids, Rdma, Stats};
use crate::error::Error;
use crate::files;
use rustix::fd::{AsFd, OwnedFd};
use std::collections::BTreeMap;
use std::path::Path;

pub(crate) fn read(directory: &OwnedFd, path: &Path) -> Result<Stats, Error> {
    let files = &Files { directory, path };
    let mut stats = Stats { cpu: cpu(files)?, ..Stats::default() };
    let controllers = files.text("cgroup.controllers")?.unwrap_or_default();
    count(&mut stats, files, &controllers)?;
    // These files do not need the controllers.
    let has = |name: &str| controllers.split_whitespace().any(|controller| controller == name);
    if !has("memory") {
        stats.memory.psi = files.psi("memory.pressure")?;
    }
    if !has("pids") {
        stats.pids = processes(files)?;
    }
    if !has("io") {
        stats.blkio.psi = files.psi("io.pressure")?;
    }
    Ok(stats)
}

/// Adds the statistics of the controllers that are in this tree and not in one of version 1.
pub(crate) fn add(stats: &mut Stats, directory: &OwnedFd, path: &Path) -> Result<(), Error> {
    let files = &Files { directory, path };
    count(stats, files, &files.text("cgroup.controllers")?.unwrap_or_default())
}

/// Reads the statistics of these controllers.
fn count(stats: &mut Stats, files: &Files<'_>, controllers: &str) -> Result<(), Error> {
    for controller in controllers.split_whitespace() {
        match controller {
            "memory" => stats.memory = memory(files)?,
            "pids" => stats.pids = pids(files)?,
            "io" => stats.blkio = blkio(files)?,
            "hugetlb" => stats.hugetlb = hugetlb(files)?,
            "rdma" => {
                stats.rdma = Rdma { limit: files.rdma("rdma.max")?, current: files.rdma("rdma.current")? };
            }
            _ => {}
        }
    }
    Ok(())
}

/// Reads `cpu.stat`, which exists without the controller too.
fn cpu(files: &Files<'_>) -> Result<Cpu, Error> {
    let mut cpu = Cpu::default();
    files.keyed("cpu.stat", |key, value| match key {
        "usage_usec" => cpu.usage.total = value.saturating_mul(1000),
        "user_usec" => cpu.usage.user = value.saturating_mul(1000),
        "system_usec" => cpu.usage.kernel = value.saturating_mul(1000),
        "nr_periods" => cpu.throttling.periods = value,
        "nr_throttled" => cpu.throttling.throttled_periods = value,
        "throttled_usec" => cpu.throttling.throttled_time = value.saturating_mul(1000),
        _ => {}
    })?;
    cpu.psi = files.psi("cpu.pressure")?;
    Ok(cpu)
}

fn memory(files: &Files<'_>) -> Result<Memory, Error> {
    let mut raw = BTreeMap::new();
    files.keyed("memory.stat", |key, value| {
        raw.insert(key.to_owned(), value);
    })?;
    let usage = amount(files, ["memory.current", "memory.max", "memory.peak"])?.unwrap_or_default();
    let mut swap = Amount::default();
    if let Some(alone) = amount(files, ["memory.swap.current", "memory.swap.max", "memory.swap.peak"])? {
        // The two peaks may be from different times, so the peak of the sum is unknown.
        swap = Amount {
            usage: alone.usage.saturating_add(usage.usage),
            limit: alone.limit.saturating_add(usage.limit),
            max: 0,
            failcnt: 0,
        };
    } else {
        swap.usage = usage.usage;
        swap.limit = usage.limit;
    }
    let cache = raw.get("file").copied().unwrap_or(0);
    Ok(Memory { cache, usage, swap, raw, psi: files.psi("memory.pressure")?, ..Memory::default() })
}

fn amount(files: &Files<'_>, [current, max, peak]: [&str; 3]) -> Result<Option<Amount>, Error> {
    let Some(usage) = files.number(current)? else { return Ok(None) };
    let limit = files.number(max)?.unwrap_or(u64::MAX);
    // The file needs Linux 5.19, or 6.5 for swap.
    let max = files.number(peak)?.unwrap_or(0);
    Ok(Some(Amount { limit, usage, max, failcnt: 0 }))
}

/// Counts the processes, which does not need the controller.
fn processes(files: &Files<'_>) -> Result<Pids, Error> {
    let text = match files::text(files.directory.as_fd(), "cgroup.procs") {
        Err(rustix::io::Errno::OPNOTSUPP) => files.text("cgroup.threads")?,
        _ => files.text("cgroup.procs")?,
    };
    let current = text.map_or(0, |text| text.lines().count());
    Ok(Pids { current: u64::try_from(current).unwrap_or(u64::MAX), limit: 0 })
}

fn pids(files: &Files<'_>) -> Result<Pids, Error> {
    let limit = files.number("pids.max")?.filter(|limit| *limit != u64::MAX).unwrap_or(0);
    Ok(Pids { current: files.number("pids.current")?.unwrap_or(0), limit })
}

fn blkio(files: &Files<'_>) -> Result<Blkio, Error> {
    let mut blkio = Blkio { psi: files.psi("io.pressure")?, ..Blkio::default() };
    let text = files.text("io.stat")?;
    for line in text.unwrap_or_default().lines() {
        let (bytes, operations) = (&mut blkio.io_service_bytes_recursive, &mut blkio.io_serviced_recursive);
        parse::io(line, bytes, operations).ok_or_else(|| files.unexpected("io.stat", line))?;
    }
    Ok(blkio)
}

fn hugetlb(files: &Files<'_>) -> Result<BTreeMap<String, Hugetlb>, Error> {
    let mut sizes = BTreeMap::new();
    for size in files.page_sizes(".current")? {
        // Reservations are preferred where the kernel counts them.
        let usage = match files.number(&format!("hugetlb.{size}.rsvd.current"))? {
            None => files.number(&format!("hugetlb.{size}.current"))?,
            reserved => reserved,
        };
        let mut failcnt = 0;
        files.keyed(&format!("hugetlb.{size}.events"), |key, value| {
            if key == "max" {
                failcnt = value;
            }
        })?;
        sizes.insert(size, Hugetlb { usage: usage.unwrap_or(0), max: 0, failcnt });
    }
    Ok(sizes)
}
