//! Tests the metrics of directories with the contents of real files.

use super::{Rdma, RdmaEntry, read, v1, v2};
use husk_cgroup::CgroupPaths;
use prost::Message;
use std::fs;
use tempfile::TempDir;

/// A file's name and contents.
type File = (&'static str, &'static str);

fn directory(files: &[File]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

fn paths(directories: &[(&str, &TempDir)]) -> CgroupPaths {
    CgroupPaths::new(directories.iter().map(|(name, dir)| ((*name).to_owned(), dir.path().into())).collect())
}

const CPU_1: [File; 4] = [
    ("cpu.stat", "nr_periods 10\nnr_throttled 9\nthrottled_time 436663528\nnr_bursts 0\nburst_time 0\n"),
    ("cpuacct.stat", "user 19\nsystem 1\n"),
    ("cpuacct.usage", "211097568\n"),
    ("cpuacct.usage_percpu", "206447886 6198672 \n"),
];

const MEMORY_1: [File; 9] = [
    (
        "memory.stat",
        "cache 8392704\nrss 126976\nrss_huge 0\nshmem 0\nmapped_file 0\ndirty 4096\nwriteback 0\n\
         workingset_refault_anon 0\nswap 0\npgpgin 612\npgpgout 572\npgfault 754\npgmajfault 3\n\
         inactive_anon 118784\nactive_anon 4096\ninactive_file 8392704\nactive_file 0\nunevictable 0\n\
         hierarchical_memory_limit 1999998976\nhierarchical_memsw_limit 9223372036854771712\n\
         total_cache 8392705\ntotal_rss 126977\ntotal_pgpgin 613\ntotal_pgmajfault 4\ntotal_inactive_file 8392706\n\
         total_unevictable 5\n",
    ),
    ("memory.oom_control", "oom_kill_disable 0\nunder_oom 1\noom_kill 2\n"),
    ("memory.usage_in_bytes", "9424896\n"),
    ("memory.limit_in_bytes", "1999998976\n"),
    ("memory.max_usage_in_bytes", "10100736\n"),
    ("memory.failcnt", "7\n"),
    ("memory.memsw.usage_in_bytes", "9457664\n"),
    ("memory.kmem.usage_in_bytes", "352256\n"),
    ("memory.kmem.tcp.usage_in_bytes", "0\n"),
];

const BLKIO_1: [File; 3] = [
    ("blkio.bfq.io_serviced_recursive", "Total 0\n"),
    ("blkio.throttle.io_serviced_recursive", "254:0 Read 16\n254:0 Write 7\n254:0 Total 23\nTotal 23\n"),
    (
        "blkio.throttle.io_service_bytes_recursive",
        "254:0 Read 8388608\n254:0 Write 8404992\nTotal 16793600\n",
    ),
];

#[test]
fn version_1_is_read_from_each_controllers_directory() {
    let (cpu, memory, blkio) = (directory(&CPU_1), directory(&MEMORY_1), directory(&BLKIO_1));
    let pids = directory(&[("pids.current", "2\n"), ("pids.max", "max\n")]);
    let hugetlb = directory(&[
        ("hugetlb.2MB.usage_in_bytes", "4194304\n"),
        ("hugetlb.2MB.rsvd.usage_in_bytes", "8388608\n"),
        ("hugetlb.2MB.max_usage_in_bytes", "6291456\n"),
        ("hugetlb.2MB.failcnt", "1\n"),
    ]);
    let paths = paths(&[
        ("cpu", &cpu),
        ("cpuacct", &cpu),
        ("memory", &memory),
        ("blkio", &blkio),
        ("pids", &pids),
        ("hugetlb", &hugetlb),
    ]);
    let metrics = v1::read(&paths).unwrap().unwrap();
    let throttling = v1::Throttling { periods: 10, throttled_periods: 9, throttled_time: 436_663_528 };
    let per_cpu = vec![206_447_886, 6_198_672];
    let usage = v1::CpuUsage { total: 211_097_568, kernel: 10_000_000, user: 190_000_000, per_cpu };
    assert_eq!(metrics.cpu, Some(v1::Cpu { usage: Some(usage), throttling: Some(throttling) }));
    assert_eq!(metrics.pids, Some(v1::Pids { current: 2, limit: 0 }));
    let control = v1::OomControl { oom_kill_disable: 0, under_oom: 1, oom_kill: 2 };
    assert_eq!(metrics.memory_oom_control, Some(control));
    assert_eq!(
        metrics.hugetlb,
        [v1::Hugetlb { usage: 4 << 20, max: 6 << 20, failcnt: 1, pagesize: "2MB".into() }]
    );
    assert_eq!(metrics.rdma, None, "the host has no such tree");
    version_1_memory(&metrics.memory.unwrap());
    let blkio = metrics.blkio.unwrap();
    let seen = |blocks: &[v1::Block]| {
        let numbers = blocks.iter().map(|block| (block.major, block.minor, block.op.clone(), block.value));
        numbers.collect::<Vec<_>>()
    };
    let entry = |op: &str, value| (254, 0, op.to_owned(), value);
    assert_eq!(
        seen(&blkio.io_service_bytes_recursive),
        [entry("Read", 8_388_608), entry("Write", 8_404_992)]
    );
    assert_eq!(
        seen(&blkio.io_serviced_recursive),
        [entry("Read", 16), entry("Write", 7), entry("Total", 23)]
    );
}

fn version_1_memory(memory: &v1::Memory) {
    let usage = v1::MemoryEntry { limit: 1_999_998_976, usage: 9_424_896, max: 10_100_736, failcnt: 7 };
    assert_eq!(memory.usage, Some(usage));
    assert_eq!(memory.swap, Some(v1::MemoryEntry { usage: 9_457_664, ..v1::MemoryEntry::default() }));
    assert_eq!(memory.kernel, Some(v1::MemoryEntry { usage: 352_256, ..v1::MemoryEntry::default() }));
    assert_eq!(memory.kernel_tcp, Some(v1::MemoryEntry::default()));
    assert_eq!((memory.cache, memory.rss, memory.dirty), (8_392_704, 126_976, 4096));
    assert_eq!((memory.pg_pg_in, memory.pg_pg_out, memory.pg_fault, memory.pg_maj_fault), (612, 572, 754, 3));
    assert_eq!((memory.inactive_anon, memory.active_anon), (118_784, 4096));
    assert_eq!(memory.hierarchical_memory_limit, 1_999_998_976);
    assert_eq!(memory.hierarchical_swap_limit, 9_223_372_036_854_771_712);
    assert_eq!((memory.total_cache, memory.total_rss, memory.total_pg_pg_in), (8_392_705, 126_977, 613));
    assert_eq!((memory.total_pg_maj_fault, memory.total_inactive_file), (4, 8_392_706));
    assert_eq!(memory.total_unevictable, 5);
}

const FILES_2: [File; 20] = [
    ("cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma\n"),
    ("pids.current", "3\n"),
    ("pids.max", "max\n"),
    (
        "cpu.stat",
        "usage_usec 211097\nuser_usec 200001\nsystem_usec 11096\nnice_usec 0\nnr_periods 10\nnr_throttled 9\n\
         throttled_usec 436663\nnr_bursts 0\nburst_usec 0\n",
    ),
    (
        "cpu.pressure",
        "some avg10=1.71 avg60=2.36 avg300=2.57 total=230548833\n\
         full avg10=1.00 avg60=1.01 avg300=1.00 total=157622356\n",
    ),
    (
        "memory.pressure",
        "some avg10=0.00 avg60=0.25 avg300=0.00 total=11\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n",
    ),
    (
        "io.pressure",
        "some avg10=0.50 avg60=0.00 avg300=0.00 total=7\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=6\n",
    ),
    (
        "memory.stat",
        "anon 126976\nfile 8392704\nkernel 352256\nkernel_stack 32768\npagetables 45056\nsock 4096\nshmem 1\n\
         file_mapped 2\nfile_dirty 3\nfile_writeback 4\nanon_thp 5\ninactive_anon 118784\nactive_anon 4097\n\
         inactive_file 8392705\nactive_file 6\nunevictable 7\nslab_reclaimable 8\nslab_unreclaimable 9\nslab 17\n\
         workingset_refault_anon 10\npgfault 754\npgmajfault 11\npgrefill 12\npgscan 13\npgsteal 14\npgactivate 15\n\
         pgdeactivate 16\npglazyfree 18\npglazyfreed 19\nthp_fault_alloc 20\nthp_collapse_alloc 21\n",
    ),
    ("memory.current", "9424896\n"),
    ("memory.max", "1999998976\n"),
    ("memory.peak", "10100736\n"),
    ("memory.swap.current", "4096\n"),
    ("memory.swap.max", "max\n"),
    ("memory.swap.peak", "8192\n"),
    ("memory.events", "low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\noom_group_kill 6\n"),
    (
        "io.stat",
        "254:0 rbytes=8388608 wbytes=8404992 rios=16 wios=7 dbytes=1 dios=2\n(unknown) rbytes=1 wbytes=2\n",
    ),
    ("hugetlb.2MB.current", "4194304\n"),
    ("hugetlb.2MB.max", "max\n"),
    ("rdma.current", "mlx4_0 hca_handle=2 hca_object=20\n"),
    ("rdma.max", "mlx4_0 hca_handle=3 hca_object=max\n"),
];

#[test]
fn version_2_is_read_from_one_directory() {
    let files = directory(&FILES_2);
    let metrics = v2::read(&paths(&[("", &files)])).unwrap().unwrap();
    assert_eq!(metrics.pids, Some(v2::Pids { current: 3, limit: u64::MAX }));
    let cpu = metrics.cpu.unwrap();
    assert_eq!((cpu.usage_usec, cpu.user_usec, cpu.system_usec), (211_097, 200_001, 11_096));
    assert_eq!((cpu.nr_periods, cpu.nr_throttled, cpu.throttled_usec), (10, 9, 436_663));
    let some = v2::PsiData { avg10: 1.71, avg60: 2.36, avg300: 2.57, total: 230_548_833 };
    let full = v2::PsiData { avg10: 1.0, avg60: 1.01, avg300: 1.0, total: 157_622_356 };
    assert_eq!(cpu.psi, Some(v2::PsiStats { some: Some(some), full: Some(full) }));
    let memory = metrics.memory.unwrap();
    assert_eq!((memory.usage, memory.usage_limit, memory.max_usage), (9_424_896, 1_999_998_976, 10_100_736));
    assert_eq!((memory.swap_usage, memory.swap_limit, memory.swap_max_usage), (4096, u64::MAX, 8192));
    assert_eq!((memory.anon, memory.file, memory.kernel_stack), (126_976, 8_392_704, 32_768));
    assert_eq!((memory.slab, memory.sock, memory.shmem, memory.anon_thp), (17, 4096, 1, 5));
    assert_eq!((memory.inactive_file, memory.pgfault, memory.pgmajfault), (8_392_705, 754, 11));
    assert_eq!(memory.thp_collapse_alloc, 21);
    assert_eq!(memory.psi.and_then(|psi| psi.some).unwrap().total, 11);
    let events = v2::MemoryEvents { low: 1, high: 2, max: 3, oom: 4, oom_kill: 5 };
    assert_eq!(metrics.memory_events, Some(events));
    let io = metrics.io.unwrap();
    let (rbytes, wbytes) = (8_388_608, 8_404_992);
    assert_eq!(io.usage, [v2::IoEntry { major: 254, minor: 0, rbytes, wbytes, rios: 16, wios: 7 }]);
    assert_eq!(io.psi.and_then(|psi| psi.full).unwrap().total, 6);
    assert_eq!(metrics.hugetlb, [v2::Hugetlb { current: 4 << 20, max: u64::MAX, pagesize: "2MB".into() }]);
    let entry =
        |hca_handles, hca_objects| vec![RdmaEntry { device: "mlx4_0".into(), hca_handles, hca_objects }];
    assert_eq!(metrics.rdma, Some(Rdma { current: entry(2, 20), limit: entry(3, u32::MAX) }));
}

#[test]
fn version_2_without_controllers_has_cpu_time_and_pressure() {
    let files = directory(&[
        ("cgroup.controllers", "\n"),
        ("cpu.stat", "usage_usec 5\n"),
        ("memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=11\n"),
    ]);
    let metrics = v2::read(&paths(&[("", &files)])).unwrap().unwrap();
    assert_eq!(metrics.cpu, Some(v2::Cpu { usage_usec: 5, ..v2::Cpu::default() }));
    assert_eq!(metrics.memory.unwrap().psi.and_then(|psi| psi.some).unwrap().total, 11);
    assert_eq!((metrics.pids, metrics.memory_events), (Some(v2::Pids::default()), None));
}

#[test]
fn removed_cgroup_has_no_metrics() {
    for controller in ["", "memory"] {
        let files = directory(&[]);
        let paths = paths(&[(controller, &files)]);
        drop(files);
        assert_eq!(read(&paths).unwrap(), None);
    }
}

#[test]
fn message_type_follows_the_version() {
    let (first, second) = (directory(&MEMORY_1), directory(&FILES_2));
    let both = read(&paths(&[("memory", &first), ("", &second)])).unwrap().unwrap();
    assert_eq!(both.type_url, "io.containerd.cgroups.v1.Metrics");
    let memory = v1::Metrics::decode(both.value.as_slice()).unwrap().memory;
    version_1_memory(&memory.unwrap());
    let paths = paths(&[("", &second)]);
    let any = read(&paths).unwrap().unwrap();
    assert_eq!(any.type_url, "io.containerd.cgroups.v2.Metrics");
    assert_eq!(v2::Metrics::decode(any.value.as_slice()).unwrap(), v2::read(&paths).unwrap().unwrap());
}

#[test]
fn bytes_have_containerds_field_numbers() {
    // A message is field 8 * number + 2, its length and its bytes; a number is 8 * number and a varint.
    let memory = v1::Memory {
        total_inactive_file: 1,
        kernel_tcp: Some(v1::MemoryEntry::default()),
        ..v1::Memory::default()
    };
    let control = v1::OomControl { oom_kill: 3, ..v1::OomControl::default() };
    let metrics = v1::Metrics {
        memory: Some(memory),
        memory_oom_control: Some(control),
        pids: Some(v1::Pids { current: 2, limit: 0 }),
        ..v1::Metrics::default()
    };
    let expected = [
        [0x12, 2, 0x08, 2].as_slice(),
        // Fields 30 and 36 need two bytes.
        &[0x22, 6, 0xf0, 0x01, 1, 0xa2, 0x02, 0],
        &[0x4a, 2, 0x18, 3],
    ];
    assert_eq!(metrics.encode_to_vec(), expected.concat());
    let some = v2::PsiData { avg10: 1.0, ..v2::PsiData::default() };
    let psi = v2::PsiStats { some: Some(some), full: None };
    let metrics = v2::Metrics {
        cpu: Some(v2::Cpu { usage_usec: 300, psi: Some(psi), ..v2::Cpu::default() }),
        memory_events: Some(v2::MemoryEvents { oom_kill: 1, ..v2::MemoryEvents::default() }),
        ..v2::Metrics::default()
    };
    let expected = [
        [0x12, 16, 0x08, 0xac, 0x02].as_slice(),
        // A double has wire type 1 and eight bytes, the lowest first.
        &[0x3a, 11, 0x0a, 9, 0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
        &[0x42, 2, 0x28, 1],
    ];
    assert_eq!(metrics.encode_to_vec(), expected.concat());
}
