//! Converts resources to files of a version 2 cgroup.
//!
//! Zero counts as unset wherever runc treats it so: engines write it for values that they leave open.

use crate::controller::{Controller, Controllers};
use crate::error::{Error, LimitWarning};
use crate::resources::{BlockIo, Cpu, HugepageLimit, Memory, Rdma, Resources, Throttle};
use crate::settings::convert::{cpu_weight, io_weight, pids_max, swap_alone};
use crate::settings::{Missing, Phase, Setting, WriteMode};
use std::collections::BTreeMap;

/// The warning for fields that only version 1 supports.
const VERSION_1_ONLY: &str = "has no counterpart in cgroup version 2 and is ignored";

/// Returns all settings, in the order in which they are written.
pub(crate) fn settings(resources: &Resources) -> Result<(Vec<Setting>, Vec<LimitWarning>), Error> {
    let mut settings = Vec::with_capacity(8);
    let mut warnings = ignored(resources);
    cpuset(&resources.cpu, &mut settings);
    cpu(&resources.cpu, &mut settings);
    block_io(&resources.block_io, &mut settings);
    memory(&resources.memory, &mut settings)?;
    hugepages(&resources.hugepage_limits, "max", &mut settings);
    rdma(&resources.rdma, &mut settings);
    pids(resources.pids_limit, &mut settings);
    // "unified" is last: it names the kernel's own files and so overrides the other fields.
    unified(&resources.unified, &mut settings)?;
    without_weight_of_idle(&mut settings, &mut warnings);
    Ok((settings, warnings))
}

/// Removes weights if the group is idle, because the kernel rejects weights of idle groups
/// (kernel/sched/fair.c, `sched_group_set_shares`).
fn without_weight_of_idle(settings: &mut Vec<Setting>, warnings: &mut Vec<LimitWarning>) {
    let idle = settings.iter().rfind(|setting| setting.file == "cpu.idle");
    if idle.is_some_and(|idle| idle.value.trim() == "1") {
        let is_weight = |setting: &mut Setting| ["cpu.weight", "cpu.weight.nice"].contains(&&*setting.file);
        let weights = settings.extract_if(.., is_weight);
        let text = "is ignored: unable to apply both a weight and cpu.idle";
        warnings.extend(weights.map(|weight| LimitWarning::new(weight.field, text)));
    }
}

/// Returns the controllers that the resources need.
pub(crate) fn controllers(resources: &Resources) -> Controllers {
    let Resources {
        devices: _,
        network: _,
        memory,
        cpu,
        pids_limit,
        block_io,
        hugepage_limits,
        rdma,
        unified,
    } = resources;
    let Cpu { cpus, mems, realtime_period: _, realtime_runtime: _, shares, quota, period, burst, idle } = cpu;
    let asked = [
        (Controller::Memory, *memory != Memory::default()),
        (
            Controller::Cpu,
            shares.is_some() || quota.is_some() || period.is_some() || burst.is_some() || idle.is_some(),
        ),
        (Controller::Cpuset, cpus.is_some() || mems.is_some()),
        (Controller::Pids, pids_limit.is_some()),
        (Controller::Io, *block_io != BlockIo::default()),
        (Controller::Hugetlb, !hugepage_limits.is_empty()),
        (Controller::Rdma, !rdma.is_empty()),
    ];
    let asked = asked.into_iter().filter(|(_, asked)| *asked).map(|(controller, _)| controller);
    asked
        .chain(unified.keys().filter_map(|file| Controller::of_file(file)))
        .fold(Controllers::EMPTY, Controllers::with)
}

fn ignored(resources: &Resources) -> Vec<LimitWarning> {
    let Resources { memory, cpu, block_io, network, .. } = resources;
    let asked = [
        ("linux.resources.memory.swappiness", memory.swappiness.is_some()),
        ("linux.resources.memory.disableOOMKiller", memory.disable_oom_killer),
        ("linux.resources.cpu.realtimeRuntime", cpu.realtime_runtime.is_some_and(|runtime| runtime != 0)),
        ("linux.resources.cpu.realtimePeriod", cpu.realtime_period.is_some_and(|period| period != 0)),
        ("linux.resources.blockIO.leafWeight", block_io.leaf_weight.is_some_and(|weight| weight != 0)),
        ("linux.resources.network.classID", network.class_id.is_some_and(|id| id != 0)),
        ("linux.resources.network.priorities", !network.priorities.is_empty()),
    ];
    let asked = asked.into_iter().filter(|(_, asked)| *asked);
    asked.map(|(field, _)| LimitWarning::new(field, VERSION_1_ONLY)).collect()
}

fn cpuset(cpu: &Cpu, settings: &mut Vec<Setting>) {
    if let Some(cpus) = said(&cpu.cpus) {
        settings.push(Setting::early("linux.resources.cpu.cpus", "cpuset.cpus", cpus));
    }
    if let Some(mems) = said(&cpu.mems) {
        settings.push(Setting::early("linux.resources.cpu.mems", "cpuset.mems", mems));
    }
}

fn cpu(cpu: &Cpu, settings: &mut Vec<Setting>) {
    if let Some(idle) = cpu.idle {
        settings.push(Setting::late("linux.resources.cpu.idle", "cpu.idle", idle));
    }
    if let Some(shares) = cpu.shares.filter(|shares| *shares != 0) {
        settings.push(Setting::early("linux.resources.cpu.shares", "cpu.weight", cpu_weight(shares)));
    }
    let quota = cpu.quota.filter(|quota| *quota != 0);
    let period = cpu.period.filter(|period| *period != 0);
    if let Some(burst) = cpu.burst {
        // The kernel rejects a burst above the quota. Whether burst or quota must be written first depends on
        // the new values.
        let manner = if quota.is_some() { WriteMode::Retry } else { WriteMode::Once };
        settings.push(Setting::late("linux.resources.cpu.burst", "cpu.max.burst", burst).manner(manner));
    }
    if quota.is_some() || period.is_some() {
        let field = if quota.is_some() { "linux.resources.cpu.quota" } else { "linux.resources.cpu.period" };
        let quota =
            quota.filter(|quota| *quota > 0).map_or_else(|| "max".to_owned(), |quota| quota.to_string());
        // The kernel's default (cgroup-v2.rst, "cpu.max"). It is written explicitly, so that an update without
        // a period does not depend on the old period.
        let period = period.unwrap_or(100_000);
        settings.push(Setting::late(field, "cpu.max", format_args!("{quota} {period}")));
    }
}

fn block_io(block_io: &BlockIo, settings: &mut Vec<Setting>) {
    if let Some(weight) = block_io.weight.filter(|weight| *weight != 0) {
        let otherwise = Missing::Instead("io.weight", io_weight(weight).to_string());
        let field = "linux.resources.blockIO.weight";
        settings.push(Setting::early(field, "io.bfq.weight", weight).missing(otherwise));
    }
    for (index, device) in block_io.weight_devices.iter().enumerate() {
        let field = format!("linux.resources.blockIO.weightDevice[{index}]");
        if let Some(weight) = device.weight.filter(|weight| *weight != 0) {
            let value = format_args!("{}:{} {weight}", device.major, device.minor);
            let otherwise = Missing::Warn("is ignored: this kernel does not have the BFQ scheduler");
            settings.push(Setting::early(field, "io.bfq.weight", value).missing(otherwise));
        }
    }
    let throttles = [
        ("throttleReadBpsDevice", "rbps", &block_io.read_bytes),
        ("throttleWriteBpsDevice", "wbps", &block_io.write_bytes),
        ("throttleReadIOPSDevice", "riops", &block_io.read_operations),
        ("throttleWriteIOPSDevice", "wiops", &block_io.write_operations),
    ];
    for (name, key, devices) in throttles {
        for (index, Throttle { major, minor, rate }) in devices.iter().enumerate() {
            let field = format!("linux.resources.blockIO.{name}[{index}]");
            // In version 1, zero removed a limit.
            let rate = if *rate == 0 { "max".to_owned() } else { rate.to_string() };
            settings.push(Setting::late(field, "io.max", format_args!("{major}:{minor} {key}={rate}")));
        }
    }
}

fn memory(memory: &Memory, settings: &mut Vec<Setting>) -> Result<(), Error> {
    if let Some(reservation) = bytes(memory.reservation) {
        settings.push(Setting::early("linux.resources.memory.reservation", "memory.low", reservation));
    }
    if let Some(swap) = swap_alone(memory.limit, memory.swap)? {
        let value = if swap == -1 { "max".to_owned() } else { swap.to_string() };
        // Without swap there is nothing to limit, and "unlimited" has no effect.
        let missing = if swap <= 0 { Missing::Ignore } else { Missing::Error };
        let setting = Setting::late("linux.resources.memory.swap", "memory.swap.max", value);
        settings.push(setting.missing(missing));
    }
    if let Some(limit) = bytes(memory.limit) {
        settings.push(Setting::late("linux.resources.memory.limit", "memory.max", limit));
    }
    Ok(())
}

/// Limits huge pages; `what` is the end of the file's name. Also limits reservations where the kernel supports
/// it: a page fault beyond the first limit kills the process.
pub(crate) fn hugepages(limits: &[HugepageLimit], what: &str, settings: &mut Vec<Setting>) {
    for (index, HugepageLimit { page_size, limit }) in limits.iter().enumerate() {
        let field = format!("linux.resources.hugepageLimits[{index}]");
        settings.push(Setting::early(field.clone(), format!("hugetlb.{page_size}.{what}"), limit));
        let reserved = Setting::early(field, format!("hugetlb.{page_size}.rsvd.{what}"), limit);
        settings.push(reserved.missing(Missing::Ignore));
    }
}

/// Limits RDMA devices, in the same way in both versions.
pub(crate) fn rdma(devices: &BTreeMap<String, Rdma>, settings: &mut Vec<Setting>) {
    for (device, Rdma { hca_handles, hca_objects }) in devices {
        let mut value = device.clone();
        let limits = [("hca_handle", hca_handles), ("hca_object", hca_objects)];
        for (key, limit) in limits.into_iter().filter_map(|(key, limit)| Some((key, (*limit)?))) {
            value.push_str(&format!(" {key}={limit}"));
        }
        settings.push(Setting::early(format!("linux.resources.rdma.{device}"), "rdma.max", value));
    }
}

/// Limits the number of processes, in the same way in both versions.
pub(crate) fn pids(limit: Option<i64>, settings: &mut Vec<Setting>) {
    if let Some(limit) = limit {
        settings.push(Setting::late("linux.resources.pids.limit", "pids.max", pids_max(limit)));
    }
}

fn unified(files: &BTreeMap<String, String>, settings: &mut Vec<Setting>) -> Result<(), Error> {
    for (file, value) in files {
        let field = unified_field(file)?;
        settings.push(Setting::new(phase_of(file), field, file.clone(), value));
    }
    Ok(())
}

/// Returns when a `unified` entry is written. The file's name decides, because the user chooses the file.
fn phase_of(file: &str) -> Phase {
    const EARLY: &[&str] = &[
        "blkio.bfq.weight",
        "blkio.leaf_weight",
        "blkio.weight",
        "cpu.rt_",
        "cpu.shares",
        "cpu.weight",
        "cpuset.",
        "hugetlb.",
        "io.bfq.weight",
        "io.weight",
        "memory.low",
        "memory.min",
        "net_",
        "rdma.",
    ];
    const ALSO_EARLY: &[&str] = &["memory.oom.group", "memory.soft_limit_in_bytes", "memory.swappiness"];
    let early = EARLY.iter().any(|start| file.starts_with(start)) || ALSO_EARLY.contains(&file);
    if early { Phase::Early } else { Phase::Late }
}

/// Returns the field of a `unified` entry, or an error if it may not be set.
pub(crate) fn unified_field(file: &str) -> Result<String, Error> {
    let field = format!("linux.resources.unified.{file}");
    if file.contains(['/', '\0']) {
        return Err(Error::invalid(field, "must be a file name (no slashes)"));
    }
    match file.split_once('.') {
        None | Some(("", _) | (_, "")) => {
            Err(Error::invalid(field, "must be in the form CONTROLLER.PARAMETER"))
        }
        Some(("cgroup", parameter)) if !LIMITS_OF_CGROUPS.contains(&parameter) => Err(Error::invalid(
            field,
            "of the cgroup.* files only cgroup.max.depth and cgroup.max.descendants can be set: \
             the others move, stop or kill processes, or hand the cgroup on",
        )),
        Some(_) => Ok(field),
    }
}

/// The `cgroup.*` files that are limits. The others manage cgroups. `cgroup.procs` would move any process of
/// the host into this cgroup. `cgroup.type` changes which types the siblings may have. `cgroup.freeze` and
/// `cgroup.kill` would stop or kill a container that is being created.
const LIMITS_OF_CGROUPS: [&str; 2] = ["max.depth", "max.descendants"];

/// Returns the list, unless it is missing or empty.
pub(crate) fn said(list: &Option<String>) -> Option<&str> {
    list.as_deref().filter(|list| !list.is_empty())
}

/// Formats bytes for files of version 2; `None` if unset.
fn bytes(bytes: Option<i64>) -> Option<String> {
    match bytes {
        None | Some(0) => None,
        Some(-1) => Some("max".to_owned()),
        Some(bytes) => Some(bytes.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::WeightDevice;

    fn lines(resources: &Resources) -> Vec<String> {
        settings(resources).unwrap().0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_field_is_written_to_its_file() {
        let throttle = |rate| vec![Throttle { major: 8, minor: 0, rate }];
        let resources = Resources {
            memory: Memory {
                limit: Some(1 << 20),
                reservation: Some(4096),
                swap: Some(3 << 20),
                ..Memory::default()
            },
            cpu: Cpu {
                shares: Some(1024),
                quota: Some(50_000),
                period: Some(200_000),
                burst: Some(1000),
                idle: Some(0),
                cpus: Some("0-1".to_owned()),
                mems: Some("0".to_owned()),
                ..Cpu::default()
            },
            pids_limit: Some(0),
            block_io: BlockIo {
                weight: Some(500),
                weight_devices: vec![WeightDevice {
                    major: 8,
                    minor: 16,
                    weight: Some(200),
                    leaf_weight: None,
                }],
                read_bytes: throttle(1),
                write_bytes: throttle(2),
                read_operations: throttle(3),
                write_operations: throttle(0),
                ..BlockIo::default()
            },
            hugepage_limits: vec![HugepageLimit { page_size: "2MB".to_owned(), limit: u64::MAX }],
            rdma: [("mlx5_1".to_owned(), Rdma { hca_handles: Some(3), hca_objects: Some(7) })].into(),
            unified: [("memory.high".to_owned(), "5".to_owned()), ("io.max".to_owned(), "a\nb".to_owned())]
                .into(),
            ..Resources::default()
        };
        let expected = "\
Early cpuset.cpus = 0-1
Early cpuset.mems = 0
Late cpu.idle = 0
Early cpu.weight = 100
Late cpu.max.burst = 1000, again at the end
Late cpu.max = 50000 200000
Early io.bfq.weight = 500 or io.weight = 4950
Early io.bfq.weight = 8:16 200 or a warning
Late io.max = 8:0 rbps=1
Late io.max = 8:0 wbps=2
Late io.max = 8:0 riops=3
Late io.max = 8:0 wiops=max
Early memory.low = 4096
Late memory.swap.max = 2097152
Late memory.max = 1048576
Early hugetlb.2MB.max = 18446744073709551615
Early hugetlb.2MB.rsvd.max = 18446744073709551615 if there
Early rdma.max = mlx5_1 hca_handle=3 hca_object=7
Late pids.max = 1
Late io.max = a|b
Late memory.high = 5";
        assert_eq!(lines(&resources).join("\n"), expected);
        let needed = "cpu cpuset hugetlb io memory pids rdma";
        assert_eq!(controllers(&resources).to_string(), needed);
    }

    #[test]
    fn unset_resources_write_nothing() {
        assert_eq!(lines(&Resources::default()), [""; 0]);
        let zeros = Resources {
            memory: Memory { limit: Some(0), reservation: Some(0), swap: Some(0), ..Memory::default() },
            cpu: Cpu { shares: Some(0), quota: Some(0), period: Some(0), ..Cpu::default() },
            block_io: BlockIo { weight: Some(0), ..BlockIo::default() },
            ..Resources::default()
        };
        assert_eq!(lines(&zeros), [""; 0]);
    }

    #[test]
    fn unlimited_is_written_as_max() {
        let resources = Resources {
            memory: Memory { limit: Some(-1), ..Memory::default() },
            cpu: Cpu { quota: Some(-1), ..Cpu::default() },
            pids_limit: Some(-1),
            ..Resources::default()
        };
        let expected = [
            "Late cpu.max = max 100000",
            "Late memory.swap.max = max if there",
            "Late memory.max = max",
            "Late pids.max = max",
        ];
        assert_eq!(lines(&resources), expected);
    }

    #[test]
    fn only_limits_of_the_cgroup_core_are_written() {
        for file in ["cgroup.max.depth", "cgroup.max.descendants", "cpuset.cpus.partition"] {
            assert_eq!(unified_field(file).unwrap(), format!("linux.resources.unified.{file}"));
        }
        let refused = [
            "cgroup.procs",
            "cgroup.threads",
            "cgroup.type",
            "cgroup.subtree_control",
            "cgroup.freeze",
            "cgroup.kill",
            "cgroup.pressure",
            "cgroup.max",
            "cgroup.max.depth.x",
            "../cgroup.procs",
            "cgroup.",
            ".procs",
            "cgroup",
        ];
        for file in refused {
            let resources =
                Resources { unified: [(file.to_owned(), "1".to_owned())].into(), ..Resources::default() };
            let error = settings(&resources).unwrap_err().to_string();
            assert!(error.starts_with(&format!("linux.resources.unified.{file}: ")), "{error}");
        }
    }

    #[test]
    fn field_unsupported_by_version_2_is_a_warning() {
        let resources = Resources {
            memory: Memory { swappiness: Some(0), disable_oom_killer: true, ..Memory::default() },
            ..Resources::default()
        };
        let warnings: Vec<_> = settings(&resources).unwrap().1.iter().map(ToString::to_string).collect();
        let expected = [
            "linux.resources.memory.swappiness: has no counterpart in cgroup version 2 and is ignored",
            "linux.resources.memory.disableOOMKiller: has no counterpart in cgroup version 2 and is ignored",
        ];
        assert_eq!(warnings, expected);
    }

    #[test]
    fn weight_of_an_idle_cgroup_is_ignored_with_a_warning() {
        let unified = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(file, value)| ((*file).to_owned(), (*value).to_owned())).collect()
        };
        let both = Cpu { idle: Some(1), shares: Some(200), ..Cpu::default() };
        let table = [
            (Resources { cpu: both.clone(), ..Resources::default() }, "linux.resources.cpu.shares"),
            (
                Resources {
                    unified: unified(&[("cpu.idle", "1"), ("cpu.weight", "8")]),
                    ..Resources::default()
                },
                "linux.resources.unified.cpu.weight",
            ),
        ];
        for (resources, field) in table {
            let (settings, warnings) = settings(&resources).unwrap();
            assert_eq!(settings.iter().map(|setting| &*setting.file).collect::<Vec<_>>(), ["cpu.idle"]);
            assert_eq!(warnings.iter().map(|warning| warning.field.to_string()).collect::<Vec<_>>(), [field]);
        }
        // `unified` overrides the field: the group is not idle, so the weight stays.
        let cpu = Resources { cpu: both, unified: unified(&[("cpu.idle", "0")]), ..Resources::default() };
        assert_eq!(settings(&cpu).unwrap().0.len(), 3);
    }

    #[test]
    fn unified_key_must_be_a_file_name() {
        let refused = [
            ("../memory.max", "must be a file name (no slashes)"),
            ("memory", "must be in the form CONTROLLER.PARAMETER"),
            ("..", "must be in the form CONTROLLER.PARAMETER"),
        ];
        for (file, reason) in refused {
            let unified = [(file.to_owned(), "1".to_owned())].into();
            let error = settings(&Resources { unified, ..Resources::default() }).unwrap_err();
            assert_eq!(error.to_string(), format!("linux.resources.unified.{file}: {reason}"));
        }
    }
}
