//! What the processes of a cgroup use.
//!
//! One structure for both versions, in the meaning and with the names of runc's `events`: engines read
//! it. Times are nanoseconds, amounts bytes; a limit of `u64::MAX` is none, but for processes, where
//! none is 0.

mod parse;
pub(crate) mod version_1;
pub(crate) mod version_2;

pub(crate) use parse::Files;
pub(crate) use version_1::read as version_1;
pub(crate) use version_2::{add as add_version_2, read as version_2};

use crate::error::Error;
use crate::files;
use serde::Serialize;
use std::collections::BTreeMap;

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    /// Processor time.
    pub cpu: Cpu,
    /// Where processes may run; version 1 only.
    pub cpuset: Cpuset,
    /// Memory and swap.
    pub memory: Memory,
    /// Processes.
    pub pids: Pids,
    /// Block devices.
    pub blkio: Blkio,
    /// Huge pages, by their size.
    pub hugetlb: BTreeMap<String, Hugetlb>,
    /// RDMA devices. runc's `events` leave them out, so they are not serialised.
    #[serde(skip)]
    pub rdma: Rdma,
}

/// Whether a value is what Go leaves out of JSON.
fn absent<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The sizes of huge pages that a cgroup has files for, which all end with `end`.
fn page_sizes(files: &Files<'_>, end: &str) -> Result<Vec<String>, Error> {
    let mut sizes = Vec::new();
    let listed = files::each_file(files.directory, |name| {
        let size = name.strip_prefix("hugetlb.").and_then(|name| name.strip_suffix(end));
        sizes.extend(size.filter(|size| !size.contains('.')).map(ToOwned::to_owned));
    });
    listed.map_err(|source| Error::Act { act: "list", path: files.path.to_owned(), source })?;
    sizes.sort_unstable();
    Ok(sizes)
}

/// Processor time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cpu {
    /// What was used.
    #[serde(skip_serializing_if = "absent")]
    pub usage: CpuUsage,
    /// What was refused.
    #[serde(skip_serializing_if = "absent")]
    pub throttling: Throttling,
    /// How long was waited.
    #[serde(skip_serializing_if = "absent")]
    pub psi: Option<Psi>,
}

/// Processor time that was used.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CpuUsage {
    /// All.
    #[serde(skip_serializing_if = "absent")]
    pub total: u64,
    /// By processor; version 1 only, as the next two.
    #[serde(skip_serializing_if = "absent")]
    pub percpu: Vec<u64>,
    /// By processor, in the kernel.
    #[serde(skip_serializing_if = "absent")]
    pub percpu_kernel: Vec<u64>,
    /// By processor, in programs.
    #[serde(skip_serializing_if = "absent")]
    pub percpu_user: Vec<u64>,
    /// In the kernel.
    pub kernel: u64,
    /// In programs.
    pub user: u64,
}

/// How often a quota was at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Throttling {
    /// Periods there were.
    #[serde(skip_serializing_if = "absent")]
    pub periods: u64,
    /// Those in which the quota did not suffice.
    #[serde(skip_serializing_if = "absent")]
    pub throttled_periods: u64,
    /// For how long.
    #[serde(skip_serializing_if = "absent")]
    pub throttled_time: u64,
}

/// Pressure (Documentation/accounting/psi.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Psi {
    /// When at least one process waited.
    #[serde(skip_serializing_if = "absent")]
    pub some: Pressure,
    /// When all did.
    #[serde(skip_serializing_if = "absent")]
    pub full: Pressure,
}

/// A share of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Pressure {
    /// Of the last ten seconds, in percent.
    pub avg10: f64,
    /// Of the last minute.
    pub avg60: f64,
    /// Of the last five minutes.
    pub avg300: f64,
    /// Microseconds since the cgroup was made.
    pub total: u64,
}

/// Where processes may run, by version 1's files.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[expect(missing_docs, reason = "named as the kernel's files are, see cpusets.rst")]
pub struct Cpuset {
    #[serde(skip_serializing_if = "absent")]
    pub cpus: Vec<u16>,
    pub cpu_exclusive: u64,
    #[serde(skip_serializing_if = "absent")]
    pub mems: Vec<u16>,
    pub mem_hardwall: u64,
    pub mem_exclusive: u64,
    pub memory_migrate: u64,
    pub memory_spread_page: u64,
    pub memory_spread_slab: u64,
    pub memory_pressure: u64,
    pub sched_load_balance: u64,
    pub sched_relax_domain_level: i64,
}

/// Memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Memory {
    /// The page cache.
    #[serde(skip_serializing_if = "absent")]
    pub cache: u64,
    /// Memory.
    #[serde(skip_serializing_if = "absent")]
    pub usage: Amount,
    /// Memory and swap together.
    #[serde(skip_serializing_if = "absent")]
    pub swap: Amount,
    /// The kernel's own; version 1 only.
    #[serde(skip_serializing_if = "absent")]
    pub kernel: Amount,
    /// What of that is TCP's; version 1 only.
    #[serde(rename = "kernelTCP", skip_serializing_if = "absent")]
    pub kernel_tcp: Amount,
    /// `memory.stat` as it is.
    #[serde(skip_serializing_if = "absent")]
    pub raw: BTreeMap<String, u64>,
    /// How long was waited.
    #[serde(skip_serializing_if = "absent")]
    pub psi: Option<Psi>,
}

/// Memory of some kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Amount {
    /// The most there may be.
    pub limit: u64,
    /// What there is.
    #[serde(skip_serializing_if = "absent")]
    pub usage: u64,
    /// The most there was.
    #[serde(skip_serializing_if = "absent")]
    pub max: u64,
    /// How often the limit was met; version 1 only.
    pub failcnt: u64,
}

/// Processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Pids {
    /// How many there are.
    #[serde(skip_serializing_if = "absent")]
    pub current: u64,
    /// How many there may be.
    #[serde(skip_serializing_if = "absent")]
    pub limit: u64,
}

/// Block devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Blkio {
    /// Bytes.
    #[serde(skip_serializing_if = "absent")]
    pub io_service_bytes_recursive: Vec<BlkioEntry>,
    /// Operations.
    #[serde(skip_serializing_if = "absent")]
    pub io_serviced_recursive: Vec<BlkioEntry>,
    /// Operations that wait; version 1 with a scheduler that counts, as what follows.
    #[serde(rename = "ioQueueRecursive", skip_serializing_if = "absent")]
    pub io_queued_recursive: Vec<BlkioEntry>,
    /// Time between sending and end.
    #[serde(skip_serializing_if = "absent")]
    pub io_service_time_recursive: Vec<BlkioEntry>,
    /// Time in queues.
    #[serde(skip_serializing_if = "absent")]
    pub io_wait_time_recursive: Vec<BlkioEntry>,
    /// Operations that became part of others.
    #[serde(skip_serializing_if = "absent")]
    pub io_merged_recursive: Vec<BlkioEntry>,
    /// Time of the device.
    #[serde(skip_serializing_if = "absent")]
    pub io_time_recursive: Vec<BlkioEntry>,
    /// Sectors.
    #[serde(skip_serializing_if = "absent")]
    pub sectors_recursive: Vec<BlkioEntry>,
    /// How long was waited.
    #[serde(skip_serializing_if = "absent")]
    pub psi: Option<Psi>,
}

/// A number about a block device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BlkioEntry {
    /// Its major number.
    #[serde(skip_serializing_if = "absent")]
    pub major: u64,
    /// Its minor number.
    #[serde(skip_serializing_if = "absent")]
    pub minor: u64,
    /// `Read`, `Write`, and in version 1 more.
    #[serde(skip_serializing_if = "absent")]
    pub op: String,
    /// The number.
    #[serde(skip_serializing_if = "absent")]
    pub value: u64,
}

/// Huge pages of one size, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Hugetlb {
    /// What there is.
    #[serde(skip_serializing_if = "absent")]
    pub usage: u64,
    /// The most there was; version 1 only.
    #[serde(skip_serializing_if = "absent")]
    pub max: u64,
    /// How often the limit was met.
    pub failcnt: u64,
}

/// RDMA devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rdma {
    /// What there may be; `u32::MAX` is no limit.
    pub limit: Vec<RdmaEntry>,
    /// What there is.
    pub current: Vec<RdmaEntry>,
}

/// One RDMA device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RdmaEntry {
    /// Its name.
    pub device: String,
    /// Handles.
    pub hca_handles: u32,
    /// Objects.
    pub hca_objects: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_used_reads_as_runc_prints_it() {
        let json = serde_json::to_string(&Stats::default()).unwrap();
        let expected = concat!(
            r#"{"cpu":{},"cpuset":{"cpu_exclusive":0,"mem_hardwall":0,"mem_exclusive":0,"memory_migrate":0,"#,
            r#""memory_spread_page":0,"memory_spread_slab":0,"memory_pressure":0,"sched_load_balance":0,"#,
            r#""sched_relax_domain_level":0},"memory":{},"pids":{},"blkio":{},"hugetlb":{}}"#
        );
        assert_eq!(json, expected);
    }

    #[test]
    fn names_are_those_of_runc() {
        let stats = Stats {
            cpu: Cpu {
                usage: CpuUsage { total: 3, kernel: 1, user: 2, ..CpuUsage::default() },
                throttling: Throttling { periods: 1, throttled_periods: 2, throttled_time: 3 },
                psi: None,
            },
            memory: Memory { kernel_tcp: Amount { limit: 1, ..Amount::default() }, ..Memory::default() },
            blkio: Blkio {
                io_service_bytes_recursive: vec![BlkioEntry {
                    major: 8,
                    minor: 0,
                    op: "Read".to_owned(),
                    value: 4096,
                }],
                io_queued_recursive: vec![BlkioEntry { value: 1, ..BlkioEntry::default() }],
                ..Blkio::default()
            },
            ..Stats::default()
        };
        let json = serde_json::to_value(&stats).unwrap();
        assert_eq!(
            json["cpu"].to_string(),
            r#"{"throttling":{"periods":1,"throttledPeriods":2,"throttledTime":3},"usage":{"kernel":1,"total":3,"user":2}}"#
        );
        assert_eq!(json["memory"].to_string(), r#"{"kernelTCP":{"failcnt":0,"limit":1}}"#);
        assert_eq!(
            json["blkio"].to_string(),
            r#"{"ioQueueRecursive":[{"value":1}],"ioServiceBytesRecursive":[{"major":8,"op":"Read","value":4096}]}"#
        );
    }
}
