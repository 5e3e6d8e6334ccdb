//! `io.containerd.cgroups.v2.Metrics` (github.com/containerd/cgroups, cgroup2/stats/metrics.proto), from the files of a
//! cgroup of version 2. A limit of `u64::MAX` means unlimited.

use super::Rdma;
use husk_cgroup::stats::{Files, Pressure, Psi};
use husk_cgroup::{CgroupPaths, Error};
use prost::Message;

pub(super) const TYPE: &str = "io.containerd.cgroups.v2.Metrics";

#[derive(Clone, PartialEq, Message)]
pub(super) struct Metrics {
    #[prost(message, optional, tag = "1")]
    pub(super) pids: Option<Pids>,
    #[prost(message, optional, tag = "2")]
    pub(super) cpu: Option<Cpu>,
    #[prost(message, optional, tag = "4")]
    pub(super) memory: Option<Memory>,
    #[prost(message, optional, tag = "5")]
    pub(super) rdma: Option<Rdma>,
    #[prost(message, optional, tag = "6")]
    pub(super) io: Option<Io>,
    #[prost(message, repeated, tag = "7")]
    pub(super) hugetlb: Vec<Hugetlb>,
    #[prost(message, optional, tag = "8")]
    pub(super) memory_events: Option<MemoryEvents>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct PsiData {
    #[prost(double, tag = "1")]
    pub(super) avg10: f64,
    #[prost(double, tag = "2")]
    pub(super) avg60: f64,
    #[prost(double, tag = "3")]
    pub(super) avg300: f64,
    /// In microseconds.
    #[prost(uint64, tag = "4")]
    pub(super) total: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct PsiStats {
    #[prost(message, optional, tag = "1")]
    pub(super) some: Option<PsiData>,
    #[prost(message, optional, tag = "2")]
    pub(super) full: Option<PsiData>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct Pids {
    #[prost(uint64, tag = "1")]
    pub(super) current: u64,
    #[prost(uint64, tag = "2")]
    pub(super) limit: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Cpu {
    #[prost(uint64, tag = "1")]
    pub(super) usage_usec: u64,
    #[prost(uint64, tag = "2")]
    pub(super) user_usec: u64,
    #[prost(uint64, tag = "3")]
    pub(super) system_usec: u64,
    #[prost(uint64, tag = "4")]
    pub(super) nr_periods: u64,
    #[prost(uint64, tag = "5")]
    pub(super) nr_throttled: u64,
    #[prost(uint64, tag = "6")]
    pub(super) throttled_usec: u64,
    #[prost(message, optional, tag = "7")]
    pub(super) psi: Option<PsiStats>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Memory {
    #[prost(uint64, tag = "1")]
    pub(super) anon: u64,
    #[prost(uint64, tag = "2")]
    pub(super) file: u64,
    #[prost(uint64, tag = "3")]
    pub(super) kernel_stack: u64,
    #[prost(uint64, tag = "4")]
    pub(super) slab: u64,
    #[prost(uint64, tag = "5")]
    pub(super) sock: u64,
    #[prost(uint64, tag = "6")]
    pub(super) shmem: u64,
    #[prost(uint64, tag = "7")]
    pub(super) file_mapped: u64,
    #[prost(uint64, tag = "8")]
    pub(super) file_dirty: u64,
    #[prost(uint64, tag = "9")]
    pub(super) file_writeback: u64,
    #[prost(uint64, tag = "10")]
    pub(super) anon_thp: u64,
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
    pub(super) slab_reclaimable: u64,
    #[prost(uint64, tag = "17")]
    pub(super) slab_unreclaimable: u64,
    #[prost(uint64, tag = "18")]
    pub(super) pgfault: u64,
    #[prost(uint64, tag = "19")]
    pub(super) pgmajfault: u64,
    #[prost(uint64, tag = "20")]
    pub(super) workingset_refault: u64,
    #[prost(uint64, tag = "21")]
    pub(super) workingset_activate: u64,
    #[prost(uint64, tag = "22")]
    pub(super) workingset_nodereclaim: u64,
    #[prost(uint64, tag = "23")]
    pub(super) pgrefill: u64,
    #[prost(uint64, tag = "24")]
    pub(super) pgscan: u64,
    #[prost(uint64, tag = "25")]
    pub(super) pgsteal: u64,
    #[prost(uint64, tag = "26")]
    pub(super) pgactivate: u64,
    #[prost(uint64, tag = "27")]
    pub(super) pgdeactivate: u64,
    #[prost(uint64, tag = "28")]
    pub(super) pglazyfree: u64,
    #[prost(uint64, tag = "29")]
    pub(super) pglazyfreed: u64,
    #[prost(uint64, tag = "30")]
    pub(super) thp_fault_alloc: u64,
    #[prost(uint64, tag = "31")]
    pub(super) thp_collapse_alloc: u64,
    #[prost(uint64, tag = "32")]
    pub(super) usage: u64,
    #[prost(uint64, tag = "33")]
    pub(super) usage_limit: u64,
    #[prost(uint64, tag = "34")]
    pub(super) swap_usage: u64,
    #[prost(uint64, tag = "35")]
    pub(super) swap_limit: u64,
    #[prost(uint64, tag = "36")]
    pub(super) max_usage: u64,
    #[prost(uint64, tag = "37")]
    pub(super) swap_max_usage: u64,
    #[prost(message, optional, tag = "38")]
    pub(super) psi: Option<PsiStats>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct MemoryEvents {
    #[prost(uint64, tag = "1")]
    pub(super) low: u64,
    #[prost(uint64, tag = "2")]
    pub(super) high: u64,
    #[prost(uint64, tag = "3")]
    pub(super) max: u64,
    #[prost(uint64, tag = "4")]
    pub(super) oom: u64,
    #[prost(uint64, tag = "5")]
    pub(super) oom_kill: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Io {
    #[prost(message, repeated, tag = "1")]
    pub(super) usage: Vec<IoEntry>,
    #[prost(message, optional, tag = "2")]
    pub(super) psi: Option<PsiStats>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct IoEntry {
    #[prost(uint64, tag = "1")]
    pub(super) major: u64,
    #[prost(uint64, tag = "2")]
    pub(super) minor: u64,
    #[prost(uint64, tag = "3")]
    pub(super) rbytes: u64,
    #[prost(uint64, tag = "4")]
    pub(super) wbytes: u64,
    #[prost(uint64, tag = "5")]
    pub(super) rios: u64,
    #[prost(uint64, tag = "6")]
    pub(super) wios: u64,
}

/// Huge pages of one size, in bytes.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Hugetlb {
    #[prost(uint64, tag = "1")]
    pub(super) current: u64,
    #[prost(uint64, tag = "2")]
    pub(super) max: u64,
    #[prost(string, tag = "3")]
    pub(super) pagesize: String,
}

/// Reads the metrics of these cgroups; `None` if the cgroup is gone.
pub(super) fn read(paths: &CgroupPaths) -> Result<Option<Metrics>, Error> {
    let (Some(path), Some(directory)) = (paths.path(""), paths.open("")?) else { return Ok(None) };
    let files = &Files::new(&directory, path);
    let Some(controllers) = files.text("cgroup.controllers")? else { return Ok(None) };
    let has = |name: &str| controllers.split_whitespace().any(|controller| controller == name);
    // The kernel counts CPU time and pressure without the controllers too.
    let mut metrics = Metrics {
        pids: Some(Pids::default()),
        cpu: Some(cpu(files)?),
        memory: Some(Memory { psi: psi(files, "memory.pressure")?, ..Memory::default() }),
        rdma: Some(Rdma::default()),
        io: Some(Io { usage: Vec::new(), psi: psi(files, "io.pressure")? }),
        ..Metrics::default()
    };
    if has("pids") {
        metrics.pids =
            Some(Pids { current: number(files, "pids.current")?, limit: number(files, "pids.max")? });
    }
    if let (true, Some(memory)) = (has("memory"), &mut metrics.memory) {
        memory.count(files)?;
        metrics.memory_events = Some(memory_events(files)?);
    }
    if has("rdma") {
        metrics.rdma = Some(Rdma::read(files)?);
    }
    if let (true, Some(io)) = (has("io"), &mut metrics.io) {
        io.usage = files.text("io.stat")?.unwrap_or_default().lines().filter_map(io_entry).collect();
    }
    if has("hugetlb") {
        metrics.hugetlb = hugetlb(files)?;
    }
    Ok(Some(metrics))
}

/// Returns the number in a file; 0 if the file does not exist.
fn number(files: &Files<'_>, name: &str) -> Result<u64, Error> {
    Ok(files.number(name)?.unwrap_or(0))
}

fn psi(files: &Files<'_>, name: &str) -> Result<Option<PsiStats>, Error> {
    let data = |pressure: Pressure| {
        let Pressure { avg10, avg60, avg300, total } = pressure;
        Some(PsiData { avg10, avg60, avg300, total })
    };
    Ok(files.psi(name)?.map(|Psi { some, full }| PsiStats { some: data(some), full: data(full) }))
}

fn cpu(files: &Files<'_>) -> Result<Cpu, Error> {
    let mut cpu = Cpu { psi: psi(files, "cpu.pressure")?, ..Cpu::default() };
    files.keyed("cpu.stat", |key, value| match key {
        "usage_usec" => cpu.usage_usec = value,
        "user_usec" => cpu.user_usec = value,
        "system_usec" => cpu.system_usec = value,
        "nr_periods" => cpu.nr_periods = value,
        "nr_throttled" => cpu.nr_throttled = value,
        "throttled_usec" => cpu.throttled_usec = value,
        _ => {}
    })?;
    Ok(cpu)
}

impl Memory {
    fn count(&mut self, files: &Files<'_>) -> Result<(), Error> {
        files.keyed("memory.stat", |key, value| self.set(key, value))?;
        self.usage = number(files, "memory.current")?;
        self.usage_limit = number(files, "memory.max")?;
        // The peaks need Linux 5.19, and 6.5 for swap.
        self.max_usage = number(files, "memory.peak")?;
        self.swap_usage = number(files, "memory.swap.current")?;
        self.swap_limit = number(files, "memory.swap.max")?;
        self.swap_max_usage = number(files, "memory.swap.peak")?;
        Ok(())
    }

    /// Sets the field that a line of `memory.stat` belongs to. Lines without a field in the message are ignored.
    fn set(&mut self, key: &str, value: u64) {
        let field = match key {
            "anon" => &mut self.anon,
            "file" => &mut self.file,
            "kernel_stack" => &mut self.kernel_stack,
            "slab" => &mut self.slab,
            "sock" => &mut self.sock,
            "shmem" => &mut self.shmem,
            "file_mapped" => &mut self.file_mapped,
            "file_dirty" => &mut self.file_dirty,
            "file_writeback" => &mut self.file_writeback,
            "anon_thp" => &mut self.anon_thp,
            "inactive_anon" => &mut self.inactive_anon,
            "active_anon" => &mut self.active_anon,
            "inactive_file" => &mut self.inactive_file,
            "active_file" => &mut self.active_file,
            "unevictable" => &mut self.unevictable,
            "slab_reclaimable" => &mut self.slab_reclaimable,
            "slab_unreclaimable" => &mut self.slab_unreclaimable,
            "pgfault" => &mut self.pgfault,
            "pgmajfault" => &mut self.pgmajfault,
            "workingset_refault" => &mut self.workingset_refault,
            "workingset_activate" => &mut self.workingset_activate,
            "workingset_nodereclaim" => &mut self.workingset_nodereclaim,
            "pgrefill" => &mut self.pgrefill,
            "pgscan" => &mut self.pgscan,
            "pgsteal" => &mut self.pgsteal,
            "pgactivate" => &mut self.pgactivate,
            "pgdeactivate" => &mut self.pgdeactivate,
            "pglazyfree" => &mut self.pglazyfree,
            "pglazyfreed" => &mut self.pglazyfreed,
            "thp_fault_alloc" => &mut self.thp_fault_alloc,
            "thp_collapse_alloc" => &mut self.thp_collapse_alloc,
            _ => return,
        };
        *field = value;
    }
}

fn memory_events(files: &Files<'_>) -> Result<MemoryEvents, Error> {
    let mut events = MemoryEvents::default();
    files.keyed("memory.events", |key, value| match key {
        "low" => events.low = value,
        "high" => events.high = value,
        "max" => events.max = value,
        "oom" => events.oom = value,
        "oom_kill" => events.oom_kill = value,
        _ => {}
    })?;
    Ok(events)
}

/// Parses a line of `io.stat`. `None` for a removed device, whose line names no numbers.
fn io_entry(line: &str) -> Option<IoEntry> {
    let mut words = line.split_ascii_whitespace();
    let (major, minor) = words.next()?.split_once(':')?;
    let mut entry = IoEntry { major: major.parse().ok()?, minor: minor.parse().ok()?, ..IoEntry::default() };
    for (key, value) in words.filter_map(|word| word.split_once('=')) {
        let field = match key {
            "rbytes" => &mut entry.rbytes,
            "wbytes" => &mut entry.wbytes,
            "rios" => &mut entry.rios,
            "wios" => &mut entry.wios,
            _ => continue,
        };
        *field = value.parse().ok()?;
    }
    Some(entry)
}

fn hugetlb(files: &Files<'_>) -> Result<Vec<Hugetlb>, Error> {
    let mut pages = Vec::new();
    for pagesize in files.page_sizes(".current")? {
        let current = number(files, &format!("hugetlb.{pagesize}.current"))?;
        let max = number(files, &format!("hugetlb.{pagesize}.max"))?;
        pages.push(Hugetlb { current, max, pagesize });
    }
    Ok(pages)
}
