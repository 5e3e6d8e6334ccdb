//! What a group of processes may use: plain data, in the words of the OCI specification.
//!
//! An `Option` is there where nothing said is something else than zero said: an update changes what
//! it names and leaves alone what it does not. What a number means to a kernel is not decided here
//! but in `settings/v2.rs` and `settings/v1.rs`.

use crate::devices::Rule;
use std::collections::BTreeMap;

/// `linux.resources`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// `devices`, in their order. They are looked at when a cgroup is made and never by an update,
    /// which would undo what a hook has allowed since.
    pub devices: Vec<Rule>,
    /// `memory`.
    pub memory: Memory,
    /// `cpu`.
    pub cpu: Cpu,
    /// `pids.limit`: -1 is no limit, and 0 is one.
    pub pids_limit: Option<i64>,
    /// `blockIO`.
    pub block_io: BlockIo,
    /// `hugepageLimits`.
    pub hugepage_limits: Vec<HugepageLimit>,
    /// `network`.
    pub network: Network,
    /// `rdma`, by the device's name.
    pub rdma: BTreeMap<String, Rdma>,
    /// `unified`: files of a version 2 cgroup, and what is written to them after all else.
    pub unified: BTreeMap<String, String>,
}

/// `linux.resources.memory`, in bytes; -1 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// `limit`.
    pub limit: Option<i64>,
    /// `reservation`.
    pub reservation: Option<i64>,
    /// `swap`: of memory and swap together.
    pub swap: Option<i64>,
    /// `swappiness`.
    pub swappiness: Option<u64>,
    /// `disableOOMKiller`.
    pub disable_oom_killer: bool,
    /// `checkBeforeUpdate`: a limit below what is in use is refused.
    pub check_before_update: bool,
}

/// `linux.resources.cpu`, times in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// `shares`.
    pub shares: Option<u64>,
    /// `quota`: -1 is no limit.
    pub quota: Option<i64>,
    /// `period`.
    pub period: Option<u64>,
    /// `burst`.
    pub burst: Option<u64>,
    /// `idle`.
    pub idle: Option<i64>,
    /// `realtimeRuntime`.
    pub realtime_runtime: Option<i64>,
    /// `realtimePeriod`.
    pub realtime_period: Option<u64>,
    /// `cpus`, a list.
    pub cpus: Option<String>,
    /// `mems`, a list.
    pub mems: Option<String>,
}

/// `linux.resources.blockIO`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockIo {
    /// `weight`.
    pub weight: Option<u16>,
    /// `leafWeight`.
    pub leaf_weight: Option<u16>,
    /// `weightDevice`.
    pub weight_devices: Vec<WeightDevice>,
    /// `throttleReadBpsDevice`.
    pub read_bytes: Vec<Throttle>,
    /// `throttleWriteBpsDevice`.
    pub write_bytes: Vec<Throttle>,
    /// `throttleReadIOPSDevice`.
    pub read_operations: Vec<Throttle>,
    /// `throttleWriteIOPSDevice`.
    pub write_operations: Vec<Throttle>,
}

/// One of `weightDevice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightDevice {
    /// `major`.
    pub major: i64,
    /// `minor`.
    pub minor: i64,
    /// `weight`.
    pub weight: Option<u16>,
    /// `leafWeight`.
    pub leaf_weight: Option<u16>,
}

/// One of `throttle*Device`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// `major`.
    pub major: i64,
    /// `minor`.
    pub minor: i64,
    /// `rate`, a second.
    pub rate: u64,
}

/// One of `linux.resources.hugepageLimits`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HugepageLimit {
    /// `pageSize`: `2MB`.
    pub page_size: String,
    /// `limit`, in bytes.
    pub limit: u64,
}

/// `linux.resources.network`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// `classID`.
    pub class_id: Option<u32>,
    /// `priorities`: the name of an interface and its priority.
    pub priorities: Vec<(String, u32)>,
}

/// One of `linux.resources.rdma`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rdma {
    /// `hcaHandles`.
    pub hca_handles: Option<u32>,
    /// `hcaObjects`.
    pub hca_objects: Option<u32>,
}

impl Resources {
    /// What of it is set in those controllers of version 1 that are wanted.
    pub(crate) fn only(&self, wanted: impl Fn(&str) -> bool) -> Self {
        let mut only = self.clone();
        let Cpu { cpus, mems, .. } = &self.cpu;
        if !wanted("cpu") {
            only.cpu = Cpu { cpus: cpus.clone(), mems: mems.clone(), ..Cpu::default() };
        }
        if !wanted("cpuset") {
            (only.cpu.cpus, only.cpu.mems) = (None, None);
        }
        if !wanted("memory") {
            only.memory = Memory::default();
        }
        if !wanted("pids") {
            only.pids_limit = None;
        }
        if !wanted("blkio") {
            only.block_io = BlockIo::default();
        }
        if !wanted("hugetlb") {
            only.hugepage_limits.clear();
        }
        if !wanted("net_cls") {
            only.network.class_id = None;
        }
        if !wanted("net_prio") {
            only.network.priorities.clear();
        }
        if !wanted("rdma") {
            only.rdma.clear();
        }
        only
    }

    /// Whether memory is limited, so that processes may be killed for using it.
    #[must_use]
    pub fn limits_memory(&self) -> bool {
        self.memory != Memory::default() || self.unified.keys().any(|file| file.starts_with("memory."))
    }

    /// Whether there is a limit among them that needs a cgroup. Device rules do not count: without
    /// privileges they cannot be had, and without privileges there are no devices to be opened.
    #[must_use]
    pub fn has_limits(&self) -> bool {
        let Self { devices: _, memory, cpu, pids_limit, block_io, hugepage_limits, network, rdma, unified } =
            self;
        *memory != Memory::default()
            || *cpu != Cpu::default()
            || pids_limit.is_some()
            || *block_io != BlockIo::default()
            || !hugepage_limits.is_empty()
            || *network != Network::default()
            || !rdma.is_empty()
            || !unified.is_empty()
    }
}
