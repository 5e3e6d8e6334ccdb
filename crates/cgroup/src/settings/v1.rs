//! Converts resources to files of version 1 cgroups.
//!
//! Zero counts as unset wherever runc treats it so, as in `v2.rs`.

use crate::error::{Error, LimitWarning};
use crate::resources::{BlockIo, Cpu, Memory, Network, Resources, Throttle};
use crate::settings::v2::{hugepages, pids, rdma, said};
use crate::settings::{Missing, Setting, WriteMode};

/// A controller, and a setting that is written in its cgroup.
pub(crate) type Owned = (&'static str, Setting);

/// Returns all settings, in the order in which they are written.
pub(crate) fn settings(resources: &Resources) -> Result<(Vec<Owned>, Vec<LimitWarning>), Error> {
    if let Some(file) = resources.unified.keys().next() {
        let field = format!("linux.resources.unified.{file}");
        return Err(Error::invalid(field, "invalid configuration: cannot use unified on cgroup v1"));
    }
    let mut settings = Vec::with_capacity(8);
    let mut of = |controller, make: &dyn Fn(&mut Vec<Setting>)| {
        let mut its = Vec::new();
        make(&mut its);
        settings.extend(its.into_iter().map(|setting| (controller, setting)));
    };
    of("cpuset", &|its| cpuset(&resources.cpu, its));
    of("cpu", &|its| cpu(&resources.cpu, its));
    of("pids", &|its| pids(resources.pids_limit, its));
    of("blkio", &|its| block_io(&resources.block_io, its));
    of("hugetlb", &|its| hugepages(&resources.hugepage_limits, "limit_in_bytes", its));
    of("net_cls", &|its| net_cls(&resources.network, its));
    of("net_prio", &|its| net_prio(&resources.network, its));
    of("rdma", &|its| rdma(&resources.rdma, its));
    let mut its = Vec::new();
    memory(&resources.memory, &mut its)?;
    settings.extend(its.into_iter().map(|setting| ("memory", setting)));
    Ok((settings, Vec::new()))
}

fn cpuset(cpu: &Cpu, settings: &mut Vec<Setting>) {
    // In a hierarchy mounted with `noprefix` the file names have no prefix.
    let mut push = |field, file: &'static str, plain, value: &str| {
        let missing = Missing::Instead(plain, value.to_owned());
        settings.push(Setting::early(field, file, value).missing(missing));
    };
    if let Some(cpus) = said(&cpu.cpus) {
        push("linux.resources.cpu.cpus", "cpuset.cpus", "cpus", cpus);
    }
    if let Some(mems) = said(&cpu.mems) {
        push("linux.resources.cpu.mems", "cpuset.mems", "mems", mems);
    }
}

fn cpu(cpu: &Cpu, settings: &mut Vec<Setting>) {
    // The kernel may reject a period or burst with the old quota and accept it with the new one.
    let after = |other: bool| if other { WriteMode::Retry } else { WriteMode::Once };
    let quota = cpu.quota.filter(|quota| *quota != 0);
    if let Some(shares) = cpu.shares.filter(|shares| *shares != 0) {
        let setting = Setting::early("linux.resources.cpu.shares", "cpu.shares", shares);
        settings.push(setting.manner(WriteMode::Verify));
    }
    if let Some(period) = cpu.period.filter(|period| *period != 0) {
        let setting = Setting::late("linux.resources.cpu.period", "cpu.cfs_period_us", period);
        settings.push(setting.manner(after(quota.is_some())));
    }
    if let Some(burst) = cpu.burst {
        let missing = Missing::Warn("is ignored: this kernel does not support it");
        let setting = Setting::late("linux.resources.cpu.burst", "cpu.cfs_burst_us", burst);
        settings.push(setting.missing(missing).manner(after(quota.is_some())));
    }
    if let Some(quota) = quota {
        settings.push(Setting::late("linux.resources.cpu.quota", "cpu.cfs_quota_us", quota));
    }
    if let Some(idle) = cpu.idle {
        settings.push(Setting::late("linux.resources.cpu.idle", "cpu.idle", idle));
    }
    let runtime = cpu.realtime_runtime.filter(|runtime| *runtime != 0);
    if let Some(period) = cpu.realtime_period.filter(|period| *period != 0) {
        let setting = Setting::early("linux.resources.cpu.realtimePeriod", "cpu.rt_period_us", period);
        settings.push(setting.manner(after(runtime.is_some())));
    }
    if let Some(runtime) = runtime {
        settings.push(Setting::early("linux.resources.cpu.realtimeRuntime", "cpu.rt_runtime_us", runtime));
    }
}

fn memory(memory: &Memory, settings: &mut Vec<Setting>) -> Result<(), Error> {
    let said = |bytes: Option<i64>| bytes.filter(|bytes| *bytes != 0);
    let limit = said(memory.limit);
    // The memory limit may never exceed the limit of memory and swap together. When both are raised, the first
    // is rejected until the second is raised; when lowered, it goes first.
    let manner = if limit.is_some() { WriteMode::Retry } else { WriteMode::Once };
    if let Some(limit) = limit {
        let setting = Setting::late("linux.resources.memory.limit", "memory.limit_in_bytes", limit);
        settings.push(setting.manner(manner));
    }
    const SWAP: (&str, &str) = ("linux.resources.memory.swap", "memory.memsw.limit_in_bytes");
    match (limit, said(memory.swap)) {
        (_, Some(swap)) => settings.push(Setting::late(SWAP.0, SWAP.1, swap)),
        (Some(-1), None) => settings.push(Setting::late(SWAP.0, SWAP.1, -1).missing(Missing::Ignore)),
        _ => {}
    }
    if let Some(reservation) = said(memory.reservation) {
        let field = "linux.resources.memory.reservation";
        settings.push(Setting::early(field, "memory.soft_limit_in_bytes", reservation));
    }
    if memory.disable_oom_killer {
        settings.push(Setting::late("linux.resources.memory.disableOOMKiller", "memory.oom_control", 1));
    }
    match memory.swappiness {
        // -1, which means unset in engines that use signed numbers.
        None | Some(u64::MAX) => {}
        Some(swappiness @ ..=100) => {
            settings.push(Setting::early(
                "linux.resources.memory.swappiness",
                "memory.swappiness",
                swappiness,
            ));
        }
        Some(swappiness) => {
            let reason = format!("invalid memory swappiness value: {swappiness} (valid range is 0-100)");
            return Err(Error::invalid("linux.resources.memory.swappiness", reason));
        }
    }
    Ok(())
}

fn block_io(block_io: &BlockIo, settings: &mut Vec<Setting>) {
    // The file has another name where only the BFQ scheduler supports weights.
    let either = |field: String, file: &'static str, bfq, value: String| {
        Setting::early(field, file, value.clone()).missing(Missing::Instead(bfq, value))
    };
    let said = |weight: Option<u16>| weight.filter(|weight| *weight != 0);
    if let Some(weight) = said(block_io.weight) {
        let field = "linux.resources.blockIO.weight".to_owned();
        settings.push(either(field, "blkio.weight", "blkio.bfq.weight", weight.to_string()));
    }
    if let Some(weight) = said(block_io.leaf_weight) {
        settings.push(Setting::early("linux.resources.blockIO.leafWeight", "blkio.leaf_weight", weight));
    }
    for (index, device) in block_io.weight_devices.iter().enumerate() {
        let field = format!("linux.resources.blockIO.weightDevice[{index}]");
        let value = |weight| format!("{}:{} {weight}", device.major, device.minor);
        if let Some(weight) = said(device.weight) {
            let files = ("blkio.weight_device", "blkio.bfq.weight_device");
            settings.push(either(field.clone(), files.0, files.1, value(weight)));
        }
        if let Some(weight) = said(device.leaf_weight) {
            settings.push(Setting::early(field, "blkio.leaf_weight_device", value(weight)));
        }
    }
    let throttles = [
        ("throttleReadBpsDevice", "blkio.throttle.read_bps_device", &block_io.read_bytes),
        ("throttleWriteBpsDevice", "blkio.throttle.write_bps_device", &block_io.write_bytes),
        ("throttleReadIOPSDevice", "blkio.throttle.read_iops_device", &block_io.read_operations),
        ("throttleWriteIOPSDevice", "blkio.throttle.write_iops_device", &block_io.write_operations),
    ];
    for (name, file, devices) in throttles {
        for (index, Throttle { major, minor, rate }) in devices.iter().enumerate() {
            let field = format!("linux.resources.blockIO.{name}[{index}]");
            settings.push(Setting::late(field, file, format_args!("{major}:{minor} {rate}")));
        }
    }
}

fn net_cls(network: &Network, settings: &mut Vec<Setting>) {
    if let Some(class) = network.class_id.filter(|class| *class != 0) {
        settings.push(Setting::early("linux.resources.network.classID", "net_cls.classid", class));
    }
}

fn net_prio(network: &Network, settings: &mut Vec<Setting>) {
    for (index, (interface, priority)) in network.priorities.iter().enumerate() {
        let field = format!("linux.resources.network.priorities[{index}]");
        settings.push(Setting::early(field, "net_prio.ifpriomap", format_args!("{interface} {priority}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::{HugepageLimit, WeightDevice};

    fn lines(resources: &Resources) -> String {
        let (settings, _) = settings(resources).unwrap();
        let lines: Vec<_> =
            settings.iter().map(|(controller, setting)| format!("{controller}: {setting}")).collect();
        lines.join("\n")
    }

    #[test]
    fn every_field_is_written_to_its_file() {
        let throttle = |rate| vec![Throttle { major: 8, minor: 0, rate }];
        let resources = Resources {
            memory: Memory {
                limit: Some(1 << 20),
                reservation: Some(4096),
                swap: Some(3 << 20),
                swappiness: Some(0),
                disable_oom_killer: true,
                check_before_update: false,
            },
            cpu: Cpu {
                shares: Some(1024),
                quota: Some(50_000),
                period: Some(200_000),
                burst: Some(1000),
                idle: Some(1),
                realtime_runtime: Some(5),
                realtime_period: Some(6),
                cpus: Some("0-1".to_owned()),
                mems: Some("0".to_owned()),
            },
            pids_limit: Some(-1),
            block_io: BlockIo {
                weight: Some(500),
                leaf_weight: Some(300),
                weight_devices: vec![WeightDevice {
                    major: 8,
                    minor: 16,
                    weight: Some(200),
                    leaf_weight: Some(100),
                }],
                read_bytes: throttle(1),
                write_bytes: throttle(2),
                read_operations: throttle(3),
                write_operations: throttle(0),
            },
            hugepage_limits: vec![HugepageLimit { page_size: "2MB".to_owned(), limit: 4 }],
            network: Network { class_id: Some(0x10_0001), priorities: vec![("eth0".to_owned(), 5)] },
            ..Resources::default()
        };
        let expected = "\
cpuset: Early cpuset.cpus = 0-1 or cpus = 0-1
cpuset: Early cpuset.mems = 0 or mems = 0
cpu: Early cpu.shares = 1024, read back
cpu: Late cpu.cfs_period_us = 200000, again at the end
cpu: Late cpu.cfs_burst_us = 1000 or a warning, again at the end
cpu: Late cpu.cfs_quota_us = 50000
cpu: Late cpu.idle = 1
cpu: Early cpu.rt_period_us = 6, again at the end
cpu: Early cpu.rt_runtime_us = 5
pids: Late pids.max = max
blkio: Early blkio.weight = 500 or blkio.bfq.weight = 500
blkio: Early blkio.leaf_weight = 300
blkio: Early blkio.weight_device = 8:16 200 or blkio.bfq.weight_device = 8:16 200
blkio: Early blkio.leaf_weight_device = 8:16 100
blkio: Late blkio.throttle.read_bps_device = 8:0 1
blkio: Late blkio.throttle.write_bps_device = 8:0 2
blkio: Late blkio.throttle.read_iops_device = 8:0 3
blkio: Late blkio.throttle.write_iops_device = 8:0 0
hugetlb: Early hugetlb.2MB.limit_in_bytes = 4
hugetlb: Early hugetlb.2MB.rsvd.limit_in_bytes = 4 if there
net_cls: Early net_cls.classid = 1048577
net_prio: Early net_prio.ifpriomap = eth0 5
memory: Late memory.limit_in_bytes = 1048576, again at the end
memory: Late memory.memsw.limit_in_bytes = 3145728
memory: Early memory.soft_limit_in_bytes = 4096
memory: Late memory.oom_control = 1
memory: Early memory.swappiness = 0";
        assert_eq!(lines(&resources), expected);
    }

    #[test]
    fn field_unsupported_by_version_1_is_refused() {
        let unified = [("memory.high".to_owned(), "1".to_owned())].into();
        let error = settings(&Resources { unified, ..Resources::default() }).unwrap_err();
        let expected =
            "linux.resources.unified.memory.high: invalid configuration: cannot use unified on cgroup v1";
        assert_eq!(error.to_string(), expected);
        let memory = Memory { swappiness: Some(101), ..Memory::default() };
        let error = settings(&Resources { memory, ..Resources::default() }).unwrap_err();
        assert!(error.to_string().contains("101 (valid range is 0-100)"), "{error}");
    }
}
