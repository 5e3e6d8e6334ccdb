//! Statistics of version 1 cgroups.

use super::parse::{self, Files};
use super::{Amount, Blkio, BlkioEntry, Cpu, CpuUsage, Cpuset, Hugetlb, Memory, Pids, Rdma, Stats};
use crate::error::Error;
use std::collections::BTreeMap;

/// The unit of `cpuacct.stat`: `USER_HZ` is 100 on all architectures that husk supports.
const NANOSECONDS_A_TICK: u64 = 1_000_000_000 / 100;

/// Reads the statistics of cgroups. Each comes with the controllers of its tree, and its files.
pub(crate) fn read<'a>(groups: impl Iterator<Item = (&'a [String], Files<'a>)>) -> Result<Stats, Error> {
    let mut stats = Stats::default();
    for (controllers, files) in groups {
        let files = &files;
        for controller in controllers {
            match controller.as_str() {
                "cpu" => throttling(files, &mut stats.cpu)?,
                "cpuacct" => usage(files, &mut stats.cpu)?,
                "cpuset" => stats.cpuset = cpuset(files)?,
                "memory" => stats.memory = memory(files)?,
                "pids" => stats.pids = pids(files)?,
                "blkio" => stats.blkio = files.blkio()?,
                "hugetlb" => stats.hugetlb = hugetlb(files)?,
                "rdma" => {
                    stats.rdma =
                        Rdma { limit: files.rdma("rdma.max")?, current: files.rdma("rdma.current")? };
                }
                _ => {}
            }
        }
    }
    Ok(stats)
}

/// Numbers that version 1 spreads over several files.
impl Files<'_> {
    /// Returns the CPU time, without the user and kernel mode of each CPU.
    pub fn cpu_usage(&self) -> Result<CpuUsage, Error> {
        let mut usage = CpuUsage { total: self.number("cpuacct.usage")?.unwrap_or(0), ..CpuUsage::default() };
        self.keyed("cpuacct.stat", |key, value| match key {
            "user" => usage.user = value.saturating_mul(NANOSECONDS_A_TICK),
            "system" => usage.kernel = value.saturating_mul(NANOSECONDS_A_TICK),
            _ => {}
        })?;
        let text = self.text("cpuacct.usage_percpu")?.unwrap_or_default();
        let numbers: Option<_> = text.split_whitespace().map(|number| number.parse().ok()).collect();
        usage.percpu = numbers.ok_or_else(|| self.unexpected("cpuacct.usage_percpu", &text))?;
        Ok(usage)
    }

    /// Returns usage and limit of a kind of memory, which is the start of the files' names: `memory.memsw`.
    pub fn amount(&self, kind: &str) -> Result<Amount, Error> {
        let Some(usage) = self.number(&format!("{kind}.usage_in_bytes"))? else {
            return Ok(Amount::default());
        };
        let number = |what: &str| Ok::<_, Error>(self.number(&format!("{kind}.{what}"))?.unwrap_or(0));
        Ok(Amount {
            usage,
            limit: number("limit_in_bytes")?,
            max: number("max_usage_in_bytes")?,
            failcnt: number("failcnt")?,
        })
    }

    /// Returns the numbers of the block devices.
    pub fn blkio(&self) -> Result<Blkio, Error> {
        let mut blkio = Blkio::default();
        for pattern in IO {
            let entries = |what: &str| entries(self, &pattern.replace("{}", what));
            let operations = entries("io_serviced")?;
            if operations.is_empty() && pattern != IO[3] {
                continue;
            }
            blkio.io_serviced_recursive = operations;
            blkio.io_service_bytes_recursive = entries("io_service_bytes")?;
            // Only schedulers count these; files that do not exist read as empty.
            blkio.sectors_recursive = entries("sectors")?;
            blkio.io_service_time_recursive = entries("io_service_time")?;
            blkio.io_wait_time_recursive = entries("io_wait_time")?;
            blkio.io_merged_recursive = entries("io_merged")?;
            blkio.io_queued_recursive = entries("io_queued")?;
            blkio.io_time_recursive = entries("time")?;
            break;
        }
        Ok(blkio)
    }
}

fn throttling(files: &Files<'_>, cpu: &mut Cpu) -> Result<(), Error> {
    files.keyed("cpu.stat", |key, value| match key {
        "nr_periods" => cpu.throttling.periods = value,
        "nr_throttled" => cpu.throttling.throttled_periods = value,
        "throttled_time" => cpu.throttling.throttled_time = value,
        _ => {}
    })
}

fn usage(files: &Files<'_>, cpu: &mut Cpu) -> Result<(), Error> {
    cpu.usage = files.cpu_usage()?;
    let usage = &mut cpu.usage;
    // The header "cpu user system", then a line for each CPU.
    let text = files.text("cpuacct.usage_all")?.unwrap_or_default();
    for line in text.lines().skip(1) {
        let mut words = line.split(' ').skip(1).map(|number| number.parse().ok());
        let (Some(Some(user)), Some(Some(kernel))) = (words.next(), words.next()) else {
            return Err(files.unexpected("cpuacct.usage_all", line));
        };
        usage.percpu_user.push(user);
        usage.percpu_kernel.push(kernel);
    }
    Ok(())
}

fn cpuset(files: &Files<'_>) -> Result<Cpuset, Error> {
    let list = |name: &str| {
        let text = files.text(name)?.unwrap_or_default();
        parse::list(&text).ok_or_else(|| files.unexpected(name, &text))
    };
    let number = |name: &str| Ok::<_, Error>(files.number(name)?.unwrap_or(0));
    let level = files.text("cpuset.sched_relax_domain_level")?.unwrap_or_default();
    Ok(Cpuset {
        cpus: list("cpuset.cpus")?,
        cpu_exclusive: number("cpuset.cpu_exclusive")?,
        mems: list("cpuset.mems")?,
        mem_hardwall: number("cpuset.mem_hardwall")?,
        mem_exclusive: number("cpuset.mem_exclusive")?,
        memory_migrate: number("cpuset.memory_migrate")?,
        memory_spread_page: number("cpuset.memory_spread_page")?,
        memory_spread_slab: number("cpuset.memory_spread_slab")?,
        memory_pressure: number("cpuset.memory_pressure")?,
        sched_load_balance: number("cpuset.sched_load_balance")?,
        sched_relax_domain_level: level.trim().parse().unwrap_or(0),
    })
}

fn memory(files: &Files<'_>) -> Result<Memory, Error> {
    let mut raw = BTreeMap::new();
    files.keyed("memory.stat", |key, value| {
        raw.insert(key.to_owned(), value);
    })?;
    Ok(Memory {
        cache: raw.get("cache").copied().unwrap_or(0),
        usage: files.amount("memory")?,
        swap: files.amount("memory.memsw")?,
        kernel: files.amount("memory.kmem")?,
        kernel_tcp: files.amount("memory.kmem.tcp")?,
        raw,
        psi: None,
    })
}

fn pids(files: &Files<'_>) -> Result<Pids, Error> {
    let limit = files.number("pids.max")?.filter(|limit| *limit != u64::MAX).unwrap_or(0);
    Ok(Pids { current: files.number("pids.current")?.unwrap_or(0), limit })
}

/// File names of the schedulers and the throttle, in order of preference. The first that has entries supplies
/// operations and bytes.
const IO: [&str; 4] =
    ["blkio.bfq.{}_recursive", "blkio.{}_recursive", "blkio.throttle.{}_recursive", "blkio.throttle.{}"];

fn entries(files: &Files<'_>, name: &str) -> Result<Vec<BlkioEntry>, Error> {
    let text = files.text(name)?.unwrap_or_default();
    let mut entries = Vec::new();
    for line in text.lines() {
        entries.extend(parse::blkio(line).ok_or_else(|| files.unexpected(name, line))?);
    }
    Ok(entries)
}

fn hugetlb(files: &Files<'_>) -> Result<BTreeMap<String, Hugetlb>, Error> {
    let mut sizes = BTreeMap::new();
    for size in files.page_sizes(".usage_in_bytes")? {
        // Reservations are preferred where the kernel counts them.
        let reserved = format!("hugetlb.{size}.rsvd");
        let kind = match files.number(&format!("{reserved}.usage_in_bytes"))? {
            Some(_) => reserved,
            None => format!("hugetlb.{size}"),
        };
        let number = |what: &str| Ok::<_, Error>(files.number(&format!("{kind}.{what}"))?.unwrap_or(0));
        let hugetlb = Hugetlb {
            usage: number("usage_in_bytes")?,
            max: number("max_usage_in_bytes")?,
            failcnt: number("failcnt")?,
        };
        sizes.insert(size, hugetlb);
    }
    Ok(sizes)
}
