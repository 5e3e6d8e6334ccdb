//! `io.containerd.cgroups.v1.Metrics` (github.com/containerd/cgroups, cgroup1/stats/metrics.proto), from the files of
//! cgroups of version 1. Times are in nanoseconds, amounts in bytes.

use super::Rdma;
use husk_cgroup::stats::{Amount, BlkioEntry, Files};
use husk_cgroup::{CgroupPaths, Error};
use prost::Message;
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

pub(super) const TYPE: &str = "io.containerd.cgroups.v1.Metrics";

/// The controllers that have metrics. Those that may share a directory are next to each other.
const CONTROLLERS: [&str; 7] = ["cpu", "cpuacct", "memory", "pids", "blkio", "hugetlb", "rdma"];

#[derive(Clone, PartialEq, Message)]
pub(super) struct Metrics {
    #[prost(message, repeated, tag = "1")]
    pub(super) hugetlb: Vec<Hugetlb>,
    #[prost(message, optional, tag = "2")]
    pub(super) pids: Option<Pids>,
    #[prost(message, optional, tag = "3")]
    pub(super) cpu: Option<Cpu>,
    #[prost(message, optional, tag = "4")]
    pub(super) memory: Option<Memory>,
    #[prost(message, optional, tag = "5")]
    pub(super) blkio: Option<Blkio>,
    #[prost(message, optional, tag = "6")]
    pub(super) rdma: Option<Rdma>,
    #[prost(message, optional, tag = "9")]
    pub(super) memory_oom_control: Option<OomControl>,
}

/// Huge pages of one size.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Hugetlb {
    #[prost(uint64, tag = "1")]
    pub(super) usage: u64,
    #[prost(uint64, tag = "2")]
    pub(super) max: u64,
    #[prost(uint64, tag = "3")]
    pub(super) failcnt: u64,
    #[prost(string, tag = "4")]
    pub(super) pagesize: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct Pids {
    #[prost(uint64, tag = "1")]
    pub(super) current: u64,
    /// 0 means unlimited.
    #[prost(uint64, tag = "2")]
    pub(super) limit: u64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Cpu {
    #[prost(message, optional, tag = "1")]
    pub(super) usage: Option<CpuUsage>,
    #[prost(message, optional, tag = "2")]
    pub(super) throttling: Option<Throttling>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct CpuUsage {
    #[prost(uint64, tag = "1")]
    pub(super) total: u64,
    #[prost(uint64, tag = "2")]
    pub(super) kernel: u64,
    #[prost(uint64, tag = "3")]
    pub(super) user: u64,
    #[prost(uint64, repeated, tag = "4")]
    pub(super) per_cpu: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct Throttling {
    #[prost(uint64, tag = "1")]
    pub(super) periods: u64,
    #[prost(uint64, tag = "2")]
    pub(super) throttled_periods: u64,
    #[prost(uint64, tag = "3")]
    pub(super) throttled_time: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct Memory {
    #[prost(uint64, tag = "1")]
    pub(super) cache: u64,
    #[prost(uint64, tag = "2")]
    pub(super) rss: u64,
    #[prost(uint64, tag = "3")]
    pub(super) rss_huge: u64,
    #[prost(uint64, tag = "4")]
    pub(super) mapped_file: u64,
    #[prost(uint64, tag = "5")]
    pub(super) dirty: u64,
    #[prost(uint64, tag = "6")]
    pub(super) writeback: u64,
    #[prost(uint64, tag = "7")]
    pub(super) pg_pg_in: u64,
    #[prost(uint64, tag = "8")]
    pub(super) pg_pg_out: u64,
    #[prost(uint64, tag = "9")]
    pub(super) pg_fault: u64,
    #[prost(uint64, tag = "10")]
    pub(super) pg_maj_fault: u64,
    #[prost(uint64, tag = "11")]
    pub(super) inactive_anon: u64,
    #[prost(uint64, tag = "12")]
    pub(super) active_anon: u64,
    #[prost(uint64, tag = "13")]
    pub(super) inactive_file: u64,
    #[prost(uint64, tag = "14")]
    pub(super) active_file: u64,
    #[prost(uint64, tag = "15")]
    pub(super) unevictable: u64,
    #[prost(uint64, tag = "16")]
    pub(super) hierarchical_memory_limit: u64,
    #[prost(uint64, tag = "17")]
    pub(super) hierarchical_swap_limit: u64,
    #[prost(uint64, tag = "18")]
    pub(super) total_cache: u64,
    #[prost(uint64, tag = "19")]
    pub(super) total_rss: u64,
    #[prost(uint64, tag = "20")]
    pub(super) total_rss_huge: u64,
    #[prost(uint64, tag = "21")]
    pub(super) total_mapped_file: u64,
    #[prost(uint64, tag = "22")]
    pub(super) total_dirty: u64,
    #[prost(uint64, tag = "23")]
    pub(super) total_writeback: u64,
    #[prost(uint64, tag = "24")]
    pub(super) total_pg_pg_in: u64,
    #[prost(uint64, tag = "25")]
    pub(super) total_pg_pg_out: u64,
    #[prost(uint64, tag = "26")]
    pub(super) total_pg_fault: u64,
    #[prost(uint64, tag = "27")]
    pub(super) total_pg_maj_fault: u64,
    #[prost(uint64, tag = "28")]
    pub(super) total_inactive_anon: u64,
    #[prost(uint64, tag = "29")]
    pub(super) total_active_anon: u64,
    #[prost(uint64, tag = "30")]
    pub(super) total_inactive_file: u64,
    #[prost(uint64, tag = "31")]
    pub(super) total_active_file: u64,
    #[prost(uint64, tag = "32")]
    pub(super) total_unevictable: u64,
    #[prost(message, optional, tag = "33")]
    pub(super) usage: Option<MemoryEntry>,
    #[prost(message, optional, tag = "34")]
    pub(super) swap: Option<MemoryEntry>,
    #[prost(message, optional, tag = "35")]
    pub(super) kernel: Option<MemoryEntry>,
    #[prost(message, optional, tag = "36")]
    pub(super) kernel_tcp: Option<MemoryEntry>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct MemoryEntry {
    #[prost(uint64, tag = "1")]
    pub(super) limit: u64,
    #[prost(uint64, tag = "2")]
    pub(super) usage: u64,
    #[prost(uint64, tag = "3")]
    pub(super) max: u64,
    #[prost(uint64, tag = "4")]
    pub(super) failcnt: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct OomControl {
    #[prost(uint64, tag = "1")]
    pub(super) oom_kill_disable: u64,
    #[prost(uint64, tag = "2")]
    pub(super) under_oom: u64,
    #[prost(uint64, tag = "3")]
    pub(super) oom_kill: u64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Blkio {
    #[prost(message, repeated, tag = "1")]
    pub(super) io_service_bytes_recursive: Vec<Block>,
    #[prost(message, repeated, tag = "2")]
    pub(super) io_serviced_recursive: Vec<Block>,
    #[prost(message, repeated, tag = "3")]
    pub(super) io_queued_recursive: Vec<Block>,
    #[prost(message, repeated, tag = "4")]
    pub(super) io_service_time_recursive: Vec<Block>,
    #[prost(message, repeated, tag = "5")]
    pub(super) io_wait_time_recursive: Vec<Block>,
    #[prost(message, repeated, tag = "6")]
    pub(super) io_merged_recursive: Vec<Block>,
    #[prost(message, repeated, tag = "7")]
    pub(super) io_time_recursive: Vec<Block>,
    #[prost(message, repeated, tag = "8")]
    pub(super) sectors_recursive: Vec<Block>,
}

/// A number of one block device.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Block {
    #[prost(string, tag = "1")]
    pub(super) op: String,
    /// The path of the device; empty if it is unknown.
    #[prost(string, tag = "2")]
    pub(super) device: String,
    #[prost(uint64, tag = "3")]
    pub(super) major: u64,
    #[prost(uint64, tag = "4")]
    pub(super) minor: u64,
    #[prost(uint64, tag = "5")]
    pub(super) value: u64,
}

/// Reads the metrics of these cgroups; `None` if they are gone.
pub(super) fn read(paths: &CgroupPaths) -> Result<Option<Metrics>, Error> {
    let mut cpu = Cpu { usage: Some(CpuUsage::default()), throttling: Some(Throttling::default()) };
    let mut metrics = Metrics::default();
    let mut is_there = false;
    let mut last: Option<(&Path, OwnedFd)> = None;
    for controller in CONTROLLERS {
        let Some(path) = paths.path(controller) else { continue };
        if last.as_ref().is_none_or(|(known, _)| *known != path) {
            last = paths.open(controller)?.map(|directory| (path, directory));
        }
        let Some((_, directory)) = &last else { continue };
        let files = &Files::new(directory, path);
        is_there = true;
        match controller {
            "cpu" => cpu.throttling = Some(throttling(files)?),
            "cpuacct" => cpu.usage = Some(usage(files)?),
            "memory" => {
                metrics.memory = Some(memory(files)?);
                metrics.memory_oom_control = Some(oom_control(files)?);
            }
            "pids" => metrics.pids = Some(pids(files)?),
            "blkio" => metrics.blkio = Some(blkio(files)?),
            "hugetlb" => metrics.hugetlb = hugetlb(files)?,
            _ => metrics.rdma = Some(Rdma::read(files)?),
        }
    }
    metrics.cpu = Some(cpu);
    Ok(is_there.then_some(metrics))
}

fn throttling(files: &Files<'_>) -> Result<Throttling, Error> {
    let mut throttling = Throttling::default();
    files.keyed("cpu.stat", |key, value| match key {
        "nr_periods" => throttling.periods = value,
        "nr_throttled" => throttling.throttled_periods = value,
        "throttled_time" => throttling.throttled_time = value,
        _ => {}
    })?;
    Ok(throttling)
}

fn usage(files: &Files<'_>) -> Result<CpuUsage, Error> {
    let usage = files.cpu_usage()?;
    Ok(CpuUsage { total: usage.total, kernel: usage.kernel, user: usage.user, per_cpu: usage.percpu })
}

fn memory(files: &Files<'_>) -> Result<Memory, Error> {
    let entry = |kind: &str| {
        let Amount { limit, usage, max, failcnt } = files.amount(kind)?;
        Ok::<_, Error>(Some(MemoryEntry { limit, usage, max, failcnt }))
    };
    let mut memory = Memory {
        usage: entry("memory")?,
        swap: entry("memory.memsw")?,
        kernel: entry("memory.kmem")?,
        kernel_tcp: entry("memory.kmem.tcp")?,
        ..Memory::default()
    };
    files.keyed("memory.stat", |key, value| memory.set(key, value))?;
    Ok(memory)
}

impl Memory {
    /// Sets the field that a line of `memory.stat` belongs to. Lines without a field in the message are ignored.
    fn set(&mut self, key: &str, value: u64) {
        let field = match key {
            "cache" => &mut self.cache,
            "rss" => &mut self.rss,
            "rss_huge" => &mut self.rss_huge,
            "mapped_file" => &mut self.mapped_file,
            "dirty" => &mut self.dirty,
            "writeback" => &mut self.writeback,
            "pgpgin" => &mut self.pg_pg_in,
            "pgpgout" => &mut self.pg_pg_out,
            "pgfault" => &mut self.pg_fault,
            "pgmajfault" => &mut self.pg_maj_fault,
            "inactive_anon" => &mut self.inactive_anon,
            "active_anon" => &mut self.active_anon,
            "inactive_file" => &mut self.inactive_file,
            "active_file" => &mut self.active_file,
            "unevictable" => &mut self.unevictable,
            "hierarchical_memory_limit" => &mut self.hierarchical_memory_limit,
            "hierarchical_memsw_limit" => &mut self.hierarchical_swap_limit,
            "total_cache" => &mut self.total_cache,
            "total_rss" => &mut self.total_rss,
            "total_rss_huge" => &mut self.total_rss_huge,
            "total_mapped_file" => &mut self.total_mapped_file,
            "total_dirty" => &mut self.total_dirty,
            "total_writeback" => &mut self.total_writeback,
            "total_pgpgin" => &mut self.total_pg_pg_in,
            "total_pgpgout" => &mut self.total_pg_pg_out,
            "total_pgfault" => &mut self.total_pg_fault,
            "total_pgmajfault" => &mut self.total_pg_maj_fault,
            "total_inactive_anon" => &mut self.total_inactive_anon,
            "total_active_anon" => &mut self.total_active_anon,
            "total_inactive_file" => &mut self.total_inactive_file,
            "total_active_file" => &mut self.total_active_file,
            "total_unevictable" => &mut self.total_unevictable,
            _ => return,
        };
        *field = value;
    }
}

fn oom_control(files: &Files<'_>) -> Result<OomControl, Error> {
    let mut control = OomControl::default();
    files.keyed("memory.oom_control", |key, value| match key {
        "oom_kill_disable" => control.oom_kill_disable = value,
        "under_oom" => control.under_oom = value,
        "oom_kill" => control.oom_kill = value,
        _ => {}
    })?;
    Ok(control)
}

fn pids(files: &Files<'_>) -> Result<Pids, Error> {
    let limit = files.number("pids.max")?.filter(|limit| *limit != u64::MAX).unwrap_or(0);
    Ok(Pids { current: files.number("pids.current")?.unwrap_or(0), limit })
}

fn blkio(files: &Files<'_>) -> Result<Blkio, Error> {
    let blkio = files.blkio()?;
    // Every device that has other numbers has a number of operations. Without any, saves the list of devices.
    let devices = match blkio.io_serviced_recursive.is_empty() {
        true => BTreeMap::new(),
        // Tolerated: the names only make the numbers easier to read.
        false => devices(&fs::read_to_string("/proc/partitions").unwrap_or_default()),
    };
    let blocks = |entries: Vec<BlkioEntry>| entries.into_iter().map(|entry| block(entry, &devices)).collect();
    Ok(Blkio {
        io_service_bytes_recursive: blocks(blkio.io_service_bytes_recursive),
        io_serviced_recursive: blocks(blkio.io_serviced_recursive),
        io_queued_recursive: blocks(blkio.io_queued_recursive),
        io_service_time_recursive: blocks(blkio.io_service_time_recursive),
        io_wait_time_recursive: blocks(blkio.io_wait_time_recursive),
        io_merged_recursive: blocks(blkio.io_merged_recursive),
        io_time_recursive: blocks(blkio.io_time_recursive),
        sectors_recursive: blocks(blkio.sectors_recursive),
    })
}

fn block(entry: BlkioEntry, devices: &BTreeMap<(u64, u64), String>) -> Block {
    let BlkioEntry { major, minor, op, value } = entry;
    Block { op, device: devices.get(&(major, minor)).cloned().unwrap_or_default(), major, minor, value }
}

/// Parses `/proc/partitions`: the path of each block device, by its numbers.
fn devices(partitions: &str) -> BTreeMap<(u64, u64), String> {
    let device = |line: &str| {
        let mut words = line.split_whitespace();
        let (major, minor) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(((major, minor), format!("/dev/{}", words.nth(1)?)))
    };
    partitions.lines().filter_map(device).collect()
}

fn hugetlb(files: &Files<'_>) -> Result<Vec<Hugetlb>, Error> {
    let mut pages = Vec::new();
    for pagesize in files.page_sizes(".usage_in_bytes")? {
        let number =
            |what: &str| Ok::<_, Error>(files.number(&format!("hugetlb.{pagesize}.{what}"))?.unwrap_or(0));
        let (usage, max, failcnt) =
            (number("usage_in_bytes")?, number("max_usage_in_bytes")?, number("failcnt")?);
        pages.push(Hugetlb { usage, max, failcnt, pagesize });
    }
    Ok(pages)
}
