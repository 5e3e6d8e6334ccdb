//! Tests version 1 like version 2, in every tree that is mounted.

use crate::support::{PATIENCE, Reader, V1, need};
use husk_cgroup::resources::{Cpu, HugepageLimit, Memory};
use husk_cgroup::{Error, OomEvent, OomWatch, Resources};
use rustix::event::{PollFd, Timespec, poll};
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

fn limits() -> Resources {
    Resources {
        pids_limit: Some(7),
        cpu: Cpu { shares: Some(512), quota: Some(40_000), period: Some(80_000), ..Cpu::default() },
        memory: Memory { limit: Some(64 << 20), swap: Some(96 << 20), ..Memory::default() },
        ..Resources::default()
    }
}

fn has_limits(v1: &V1) -> Option<()> {
    v1.has("pids")?;
    v1.has("cpu")?;
    v1.has("memory")
}

#[test]
fn limits_are_written_and_read_back() {
    let v1 = need!(V1::new(), "needs cgroup version 1 and root");
    need!(has_limits(&v1), "needs pids, cpu and memory in version 1");
    let resources = limits();
    let cgroup = v1.layout.create(&v1.place, &resources).unwrap();
    cgroup.apply_early(&resources).unwrap();
    assert_eq!(v1.read("cpu", "cpu.shares"), "512");
    assert_eq!(v1.read("pids", "pids.max"), "max", "not before the process is set up");
    cgroup.apply_late(&resources).unwrap();
    assert_eq!(v1.read("pids", "pids.max"), "7");
    assert_eq!(v1.read("cpu", "cpu.cfs_quota_us"), "40000");
    assert_eq!(v1.read("cpu", "cpu.cfs_period_us"), "80000");
    assert_eq!(v1.read("memory", "memory.limit_in_bytes"), (64 << 20).to_string());
    assert_eq!(v1.read("memory", "memory.memsw.limit_in_bytes"), (96 << 20).to_string());
    let stats = cgroup.stats().unwrap();
    assert_eq!(stats.pids.limit, 7);
    assert_eq!(stats.memory.usage.limit, 64 << 20);
    assert_eq!(stats.memory.swap.limit, 96 << 20);
}

#[test]
fn memory_and_swap_are_raised_and_lowered_together() {
    let v1 = need!(V1::new(), "needs cgroup version 1 and root");
    need!(v1.has("memory"), "needs memory in version 1");
    let cgroup = v1.layout.create(&v1.place, &Resources::default()).unwrap();
    for (limit, swap) in [(32, 48), (64, 96), (8, 16), (64, 64), (16, 128)] {
        let memory = Memory { limit: Some(limit << 20), swap: Some(swap << 20), ..Memory::default() };
        cgroup.update(&Resources { memory, ..Resources::default() }).unwrap();
        assert_eq!(v1.read("memory", "memory.limit_in_bytes"), (limit << 20).to_string());
        assert_eq!(v1.read("memory", "memory.memsw.limit_in_bytes"), (swap << 20).to_string());
    }
    let memory = Memory { limit: Some(-1), ..Memory::default() };
    cgroup.update(&Resources { memory, ..Resources::default() }).unwrap();
    assert!(v1.read("memory", "memory.memsw.limit_in_bytes").parse::<u64>().unwrap() > 1 << 60);
    // No order of writes allows a memory limit above the limit of memory and swap.
    let memory = Memory { limit: Some(64 << 20), swap: Some(32 << 20), ..Memory::default() };
    let error = cgroup.update(&Resources { memory, ..Resources::default() }).unwrap_err().to_string();
    assert!(error.starts_with("linux.resources.memory."), "{error}");
}

#[test]
fn new_quota_and_period_replace_an_incompatible_pair() {
    let v1 = need!(V1::new(), "needs cgroup version 1 and root");
    need!(v1.has("cpu"), "needs cpu in version 1");
    let cgroup = v1.layout.create(&v1.place, &Resources::default()).unwrap();
    for (quota, period) in [(500_000, 500_000), (1000, 1000), (900_000, 1_000_000)] {
        let cpu = Cpu { quota: Some(quota), period: Some(period), ..Cpu::default() };
        cgroup.update(&Resources { cpu, ..Resources::default() }).unwrap();
        assert_eq!(v1.read("cpu", "cpu.cfs_quota_us"), quota.to_string());
        assert_eq!(v1.read("cpu", "cpu.cfs_period_us"), period.to_string());
    }
}

#[test]
fn shares_above_the_kernels_maximum_are_refused() {
    let v1 = need!(V1::new(), "needs cgroup version 1 and root");
    need!(v1.has("cpu"), "needs cpu in version 1");
    let cgroup = v1.layout.create(&v1.place, &Resources::default()).unwrap();
    let shares =
        |shares| Resources { cpu: Cpu { shares: Some(shares), ..Cpu::default() }, ..Resources::default() };
    let error = cgroup.apply_early(&shares(1)).unwrap_err().to_string();
    assert_eq!(error, "linux.resources.cpu.shares: the minimum allowed is 2");
    let error = cgroup.apply_early(&shares(1 << 20)).unwrap_err().to_string();
    assert_eq!(error, "linux.resources.cpu.shares: the maximum allowed is 262144");
}

#[test]
fn process_joins_every_hierarchy() {
    let v1 = need!(V1::new(), "needs cgroup version 1 and root");
    let cgroup = v1.layout.create(&v1.place, &Resources::default()).unwrap();
    let mut reader = Reader::start(None);
    cgroup.join(reader.pid()).unwrap();
    for (controller, path) in v1.place.directories() {
        let procs = std::fs::read_to_string(path.join("cgroup.procs")).unwrap();
        assert_eq!(procs.trim(), reader.pid().to_string(), "{controller}");
    }
    assert_eq!(cgroup.pids().unwrap(), [reader.pid()]);
    let error = v1.layout.create(&v1.place, &Resources::default()).unwrap_err().to_string();
    assert!(error.starts_with("container's cgroup is not empty: 1 process(es)"), "{error}");
    let error = v1.layout.remove(&v1.place, Duration::ZERO).unwrap_err();
    assert!(matches!(&error, Error::Deadline { pids, .. } if *pids == [reader.pid()]), "{error}");
    // Only cgroups without the process have been removed.
    cgroup.kill().unwrap();
    assert_eq!(reader.child.wait().unwrap().signal(), Some(9));
    cgroup.wait_empty(PATIENCE).unwrap();
}

#[test]
fn cpusets_are_inherited_by_all_new_cgroups() {
    let v1 = need!(V1::new(), "needs cgroup version 1 and root");
    need!(v1.has("cpuset"), "needs cpuset in version 1");
    let top = v1.place.path("cpuset").unwrap().file_name().unwrap().to_str().unwrap();
    let deep = v1.layout.place(Some(&format!("/{top}/a/b")), "unused").unwrap();
    v1.layout.create(&deep, &Resources::default()).unwrap();
    let root = std::fs::read_to_string("/sys/fs/cgroup/cpuset/cpuset.cpus").unwrap();
    for path in [v1.place.path("cpuset").unwrap(), deep.path("cpuset").unwrap()] {
        assert_eq!(std::fs::read_to_string(path.join("cpuset.cpus")).unwrap(), root);
        assert!(!std::fs::read_to_string(path.join("cpuset.mems")).unwrap().trim().is_empty());
    }
}

#[test]
fn frozen_process_stops_and_can_be_killed() {
    let v1 = need!(V1::new(), "needs cgroup version 1 and root");
    need!(v1.has("freezer"), "needs the freezer in version 1");
    let cgroup = v1.layout.create(&v1.place, &Resources::default()).unwrap();
    let mut reader = Reader::start(None);
    cgroup.join(reader.pid()).unwrap();
    assert!(!v1.place.is_frozen().unwrap());
    cgroup.freeze(PATIENCE).unwrap();
    assert!(v1.place.is_frozen().unwrap());
    assert_eq!(v1.read("freezer", "freezer.state"), "FROZEN");
    cgroup.thaw().unwrap();
    assert!(!v1.place.is_frozen().unwrap());
    cgroup.freeze(PATIENCE).unwrap();
    cgroup.kill().unwrap();
    assert_eq!(reader.child.wait().unwrap().signal(), Some(9));
}

#[test]
fn controller_only_in_version_2_is_limited_there() {
    let v1 = need!(V1::new(), "needs cgroup version 1 and root");
    let beside = std::fs::read_to_string("/sys/fs/cgroup/unified/cgroup.controllers");
    need!(
        beside.unwrap_or_default().contains("hugetlb").then_some(()),
        "needs hugetlb in version 2 beside version 1"
    );
    let limits = |limit| Resources {
        hugepage_limits: vec![HugepageLimit { page_size: "2MB".to_owned(), limit }],
        pids_limit: Some(7),
        ..Resources::default()
    };
    let cgroup = v1.layout.create(&v1.place, &limits(4 << 20)).unwrap();
    assert_eq!(cgroup.apply_early(&limits(4 << 20)).unwrap(), []);
    cgroup.apply_late(&limits(4 << 20)).unwrap();
    assert_eq!(v1.read("", "hugetlb.2MB.max"), (4 << 20).to_string());
    cgroup.update(&limits(2 << 20)).unwrap();
    assert_eq!(v1.read("", "hugetlb.2MB.max"), (2 << 20).to_string());
    let stats = cgroup.stats().unwrap();
    assert!(stats.hugetlb.contains_key("2MB") && stats.pids.limit == 7, "{stats:?}");
}

#[test]
fn unmounted_controller_is_named_with_the_field() {
    let v1 = need!(V1::new(), "needs cgroup version 1 and root");
    need!(v1.has("rdma").is_none().then_some(()), "needs a host without rdma in version 1");
    let cgroup = v1.layout.create(&v1.place, &Resources::default()).unwrap();
    let rdma =
        [("mlx5".to_owned(), husk_cgroup::resources::Rdma { hca_handles: Some(1), hca_objects: None })]
            .into();
    let error = cgroup.apply_early(&Resources { rdma, ..Resources::default() }).unwrap_err();
    let expected = "linux.resources.rdma.mlx5: this cgroup has no rdma controller: no hierarchy with this controller is mounted";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn fork_beyond_the_limit_fails_and_cpu_time_is_counted() {
    let v1 = need!(V1::new(), "needs cgroup version 1 and root");
    need!(has_limits(&v1), "needs pids, cpu and memory in version 1");
    let resources = Resources { pids_limit: Some(1), ..Resources::default() };
    let cgroup = v1.layout.create(&v1.place, &resources).unwrap();
    cgroup.apply_late(&resources).unwrap();
    let procs = v1.place.path("pids").unwrap().join("cgroup.procs");
    // `:` in a subshell forks, which the limit of one process forbids.
    let script = format!("echo $$ >{}; (:)", procs.display());
    let mut command = husk_spawn::Command::new("sh");
    let output = command.args(["-c", &script]).stderr(husk_spawn::Stdio::piped()).output().unwrap();
    assert!(!output.status.success());
    assert!(v1.read("pids", "pids.events").contains("max 1"), "{}", v1.read("pids", "pids.events"));
}

#[test]
fn memory_beyond_the_limit_kills_and_is_counted() {
    let v1 = need!(V1::new(), "needs cgroup version 1 and root");
    need!(v1.has("memory"), "needs memory in version 1");
    let memory = Memory { limit: Some(8 << 20), ..Memory::default() };
    let resources = Resources { memory, ..Resources::default() };
    let cgroup = v1.layout.create(&v1.place, &resources).unwrap();
    cgroup.apply_late(&resources).unwrap();
    assert_eq!(cgroup.oom_kills().unwrap(), 0);
    let mut watch = v1.place.watch_oom().unwrap();
    assert!(!is_ready(&watch, Duration::ZERO));
    assert_eq!(watch.check().unwrap(), OomEvent::Nothing);
    let procs = v1.place.path("memory").unwrap().join("cgroup.procs");
    // tail must keep the whole line, which never ends. Without a limit it would use half a gigabyte.
    let script = format!("echo $$ >{} && head -c 512M /dev/zero | tail -n1 >/dev/null", procs.display());
    let mut command = husk_spawn::Command::new("sh");
    let output = command.args(["-c", &script]).stderr(husk_spawn::Stdio::piped()).output().unwrap();
    assert!(!output.status.success());
    assert!(cgroup.oom_kills().unwrap() >= 1);
    assert!(is_ready(&watch, Duration::ZERO));
    assert_eq!(watch.check().unwrap(), OomEvent::OutOfMemory);
    assert!(!is_ready(&watch, Duration::ZERO));
    assert_eq!(watch.check().unwrap(), OomEvent::Nothing, "announced and counted, but reported once");
    assert!(cgroup.stats().unwrap().memory.usage.failcnt > 0);
    v1.layout.remove(&v1.place, PATIENCE).unwrap();
    assert!(is_ready(&watch, PATIENCE));
    assert_eq!(watch.check().unwrap(), OomEvent::Gone);
    assert!(!is_ready(&watch, Duration::ZERO));
}

fn is_ready(watch: &OomWatch, patience: Duration) -> bool {
    let mut files = [PollFd::new(watch, watch.flags())];
    poll(&mut files, Some(&Timespec::try_from(patience).unwrap())).unwrap() == 1
}

#[test]
fn exceeded_quota_is_counted() {
    let v1 = need!(V1::new(), "needs cgroup version 1 and root");
    need!(v1.has("cpu"), "needs cpu in version 1");
    let cpu = Cpu { quota: Some(1000), period: Some(10_000), ..Cpu::default() };
    let resources = Resources { cpu, ..Resources::default() };
    let cgroup = v1.layout.create(&v1.place, &resources).unwrap();
    cgroup.apply_late(&resources).unwrap();
    let procs = v1.place.path("cpu").unwrap().join("cgroup.procs");
    // Works until the kernel reports throttling.
    let stat = procs.with_file_name("cpu.stat");
    let work = format!("while ! grep -q '^nr_throttled [1-9]' {}; do :; done", stat.display());
    let script = format!("echo $$ >{} && {work}", procs.display());
    let mut command = husk_spawn::Command::new("sh");
    assert!(command.args(["-c", &script]).status().unwrap().success());
    assert!(cgroup.stats().unwrap().cpu.throttling.throttled_periods > 0);
}
