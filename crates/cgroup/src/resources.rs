//! Resource limits as plain data. Fields have the OCI specification's names in snake case; a comment gives the
//! specification's name if it differs.
//!
//! A field is an `Option` if leaving it out differs from zero: an update leaves unset fields as they are.
//! `settings/v2.rs` and `settings/v1.rs` translate the numbers for the kernel.

use crate::devices::Rule;
use std::collections::BTreeMap;

/// `linux.resources`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// `devices`, in order. They are applied when a cgroup is created. An update ignores them: it would undo
    /// what a hook has allowed since.
    pub devices: Vec<Rule>,
    pub memory: Memory,
    pub cpu: Cpu,
    /// `pids.limit`: -1 means unlimited; 0 is a limit.
    pub pids_limit: Option<i64>,
    pub block_io: BlockIo,
    pub hugepage_limits: Vec<HugepageLimit>,
    pub network: Network,
    /// `rdma`, by the device's name.
    pub rdma: BTreeMap<String, Rdma>,
    /// `unified`: files of a version 2 cgroup and their values, written after everything else.
    pub unified: BTreeMap<String, String>,
}

/// `linux.resources.memory`, in bytes; -1 means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub limit: Option<i64>,
    pub reservation: Option<i64>,
    /// `swap`: the sum of memory and swap.
    pub swap: Option<i64>,
    pub swappiness: Option<u64>,
    /// `disableOOMKiller`.
    pub disable_oom_killer: bool,
    /// `checkBeforeUpdate`: an update rejects a limit below the current usage.
    pub check_before_update: bool,
}

/// `linux.resources.cpu`, with times in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    pub shares: Option<u64>,
    /// `quota`: -1 means unlimited.
    pub quota: Option<i64>,
    pub period: Option<u64>,
    pub burst: Option<u64>,
    pub idle: Option<i64>,
    pub realtime_runtime: Option<i64>,
    pub realtime_period: Option<u64>,
    /// `cpus`: a list such as `0-3,5`.
    pub cpus: Option<String>,
    /// `mems`: a list such as `0-1`.
    pub mems: Option<String>,
}

/// `linux.resources.blockIO`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockIo {
    pub weight: Option<u16>,
    pub leaf_weight: Option<u16>,
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

/// An entry of `weightDevice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightDevice {
    pub major: i64,
    pub minor: i64,
    pub weight: Option<u16>,
    pub leaf_weight: Option<u16>,
}

/// An entry of `throttle*Device`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    pub major: i64,
    pub minor: i64,
    /// `rate`, per second.
    pub rate: u64,
}

/// An entry of `linux.resources.hugepageLimits`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HugepageLimit {
    /// `pageSize`, such as `2MB`.
    pub page_size: String,
    /// `limit`, in bytes.
    pub limit: u64,
}

/// `linux.resources.network`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    pub class_id: Option<u32>,
    /// `priorities`: pairs of interface name and priority.
    pub priorities: Vec<(String, u32)>,
}

/// An entry of `linux.resources.rdma`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rdma {
    pub hca_handles: Option<u32>,
    pub hca_objects: Option<u32>,
}

impl Resources {
    /// Returns a copy with only the settings of version 1 controllers for which `wanted` is true.
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

    /// Returns whether memory is limited, so that the OOM killer may kill processes.
    #[must_use]
    pub fn limits_memory(&self) -> bool {
        self.memory != Memory::default() || self.unified.keys().any(|file| file.starts_with("memory."))
    }

    /// Returns whether any limit needs a cgroup. Device rules do not count: an unprivileged caller can neither
    /// set them nor open devices.
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
