//! Resource usage of a cgroup's processes.
//!
//! One structure serves both versions. Engines parse it, so meaning and names are those of runc's `events`.
//! Times are in nanoseconds, amounts in bytes. A limit of `u64::MAX` means unlimited, except for processes,
//! where 0 does.

mod parse;
pub(crate) mod version_1;
pub(crate) mod version_2;

pub use parse::Files;
pub(crate) use version_1::read as version_1;
pub(crate) use version_2::{add as add_version_2, read as version_2};

use serde::Serialize;
use std::collections::BTreeMap;

/// The statistics of all controllers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    pub cpu: Cpu,
    /// CPUs and memory nodes that processes may use; version 1 only.
    pub cpuset: Cpuset,
    pub memory: Memory,
    pub pids: Pids,
    pub blkio: Blkio,
    /// Huge pages, by page size.
    pub hugetlb: BTreeMap<String, Hugetlb>,
    /// RDMA devices. Not serialised, because runc's `events` omits them.
    #[serde(skip)]
    pub rdma: Rdma,
}

/// Returns whether Go would omit the value from JSON.
fn absent<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The CPU time that processes used, how often they were throttled, and how long they stalled.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cpu {
    #[serde(skip_serializing_if = "absent")]
    pub usage: CpuUsage,
    #[serde(skip_serializing_if = "absent")]
    pub throttling: Throttling,
    #[serde(skip_serializing_if = "absent")]
    pub psi: Option<Psi>,
}

/// The CPU time that processes have used, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CpuUsage {
    #[serde(skip_serializing_if = "absent")]
    pub total: u64,
    /// The time on each CPU; version 1 only.
    #[serde(skip_serializing_if = "absent")]
    pub percpu: Vec<u64>,
    /// The time on each CPU in kernel mode; version 1 only.
    #[serde(skip_serializing_if = "absent")]
    pub percpu_kernel: Vec<u64>,
    /// The time on each CPU in user mode; version 1 only.
    #[serde(skip_serializing_if = "absent")]
    pub percpu_user: Vec<u64>,
    /// The time in kernel mode.
    pub kernel: u64,
    /// The time in user mode.
    pub user: u64,
}

/// How often processes were throttled by the CPU quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Throttling {
    /// The number of periods.
    #[serde(skip_serializing_if = "absent")]
    pub periods: u64,
    /// The number of periods in which the quota ran out.
    #[serde(skip_serializing_if = "absent")]
    pub throttled_periods: u64,
    /// The total time throttled.
    #[serde(skip_serializing_if = "absent")]
    pub throttled_time: u64,
}

/// Pressure stall information (Documentation/accounting/psi.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Psi {
    /// The time in which at least one process was stalled.
    #[serde(skip_serializing_if = "absent")]
    pub some: Pressure,
    /// The time in which all processes were stalled.
    #[serde(skip_serializing_if = "absent")]
    pub full: Pressure,
}

/// The share of time spent stalled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Pressure {
    /// The share of the last ten seconds, in percent.
    pub avg10: f64,
    /// The share of the last minute, in percent.
    pub avg60: f64,
    /// The share of the last five minutes, in percent.
    pub avg300: f64,
    /// The time since the cgroup was created, in microseconds.
    pub total: u64,
}

/// CPUs and memory nodes that processes may use, from version 1's files.
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

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Memory {
    /// The page cache.
    #[serde(skip_serializing_if = "absent")]
    pub cache: u64,
    #[serde(skip_serializing_if = "absent")]
    pub usage: Amount,
    /// The sum of memory and swap.
    #[serde(skip_serializing_if = "absent")]
    pub swap: Amount,
    /// Kernel memory; version 1 only.
    #[serde(skip_serializing_if = "absent")]
    pub kernel: Amount,
    /// TCP buffers in kernel memory; version 1 only.
    #[serde(rename = "kernelTCP", skip_serializing_if = "absent")]
    pub kernel_tcp: Amount,
    /// All values of `memory.stat`.
    #[serde(skip_serializing_if = "absent")]
    pub raw: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "absent")]
    pub psi: Option<Psi>,
}

/// Usage and limit of one kind of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Amount {
    pub limit: u64,
    /// The current usage.
    #[serde(skip_serializing_if = "absent")]
    pub usage: u64,
    /// The highest usage so far.
    #[serde(skip_serializing_if = "absent")]
    pub max: u64,
    /// How often the limit was reached; version 1 only.
    pub failcnt: u64,
}

/// The number of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Pids {
    #[serde(skip_serializing_if = "absent")]
    pub current: u64,
    /// The limit; 0 means unlimited.
    #[serde(skip_serializing_if = "absent")]
    pub limit: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Blkio {
    /// The number of bytes transferred.
    #[serde(skip_serializing_if = "absent")]
    pub io_service_bytes_recursive: Vec<BlkioEntry>,
    /// The number of completed operations.
    #[serde(skip_serializing_if = "absent")]
    pub io_serviced_recursive: Vec<BlkioEntry>,
    /// Queued operations. This and the fields below need version 1 and a scheduler that counts them.
    #[serde(rename = "ioQueueRecursive", skip_serializing_if = "absent")]
    pub io_queued_recursive: Vec<BlkioEntry>,
    /// Time between dispatch and completion.
    #[serde(skip_serializing_if = "absent")]
    pub io_service_time_recursive: Vec<BlkioEntry>,
    /// Time in queues.
    #[serde(skip_serializing_if = "absent")]
    pub io_wait_time_recursive: Vec<BlkioEntry>,
    /// Operations that were merged into others.
    #[serde(skip_serializing_if = "absent")]
    pub io_merged_recursive: Vec<BlkioEntry>,
    /// Time that the device was allocated to the cgroup.
    #[serde(skip_serializing_if = "absent")]
    pub io_time_recursive: Vec<BlkioEntry>,
    /// The number of sectors transferred.
    #[serde(skip_serializing_if = "absent")]
    pub sectors_recursive: Vec<BlkioEntry>,
    #[serde(skip_serializing_if = "absent")]
    pub psi: Option<Psi>,
}

/// A statistic of a block device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BlkioEntry {
    #[serde(skip_serializing_if = "absent")]
    pub major: u64,
    #[serde(skip_serializing_if = "absent")]
    pub minor: u64,
    /// The operation: `Read` or `Write`, or with version 1 also `Sync`, `Async`, `Discard` or `Total`.
    #[serde(skip_serializing_if = "absent")]
    pub op: String,
    #[serde(skip_serializing_if = "absent")]
    pub value: u64,
}

/// Huge pages of one size, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Hugetlb {
    /// The current usage.
    #[serde(skip_serializing_if = "absent")]
    pub usage: u64,
    /// The highest usage so far; version 1 only.
    #[serde(skip_serializing_if = "absent")]
    pub max: u64,
    /// How often the limit was reached.
    pub failcnt: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rdma {
    /// The limits; `u32::MAX` means unlimited.
    pub limit: Vec<RdmaEntry>,
    /// The current usage.
    pub current: Vec<RdmaEntry>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RdmaEntry {
    pub device: String,
    pub hca_handles: u32,
    pub hca_objects: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_stats_print_as_in_runc() {
        let json = serde_json::to_string(&Stats::default()).unwrap();
        let expected = concat!(
            r#"{"cpu":{},"cpuset":{"cpu_exclusive":0,"mem_hardwall":0,"mem_exclusive":0,"memory_migrate":0,"#,
            r#""memory_spread_page":0,"memory_spread_slab":0,"memory_pressure":0,"sched_load_balance":0,"#,
            r#""sched_relax_domain_level":0},"memory":{},"pids":{},"blkio":{},"hugetlb":{}}"#
        );
        assert_eq!(json, expected);
    }

    #[test]
    fn field_names_match_runc() {
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
