//! Parses arbitrary text as files of a cgroup, as mountinfo, and as the list of a process's cgroups.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

/// A file of each kind of text.
const NAMES: [&str; 14] = [
    "blkio.throttle.io_service_bytes_recursive",
    "cgroup.controllers",
    "cpu.pressure",
    "cpu.stat",
    "cpuacct.usage_percpu",
    "cpuset.cpus",
    "hugetlb.2MB.events",
    "io.pressure",
    "io.stat",
    "memory.current",
    "memory.max",
    "memory.stat",
    "pids.max",
    "rdma.current",
];
const CONTROLLERS: [&str; 8] = ["cpu", "cpuacct", "cpuset", "memory", "pids", "blkio", "hugetlb", "rdma"];

static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
    let root = std::env::temp_dir().join(format!("husk-fuzz-{}", std::process::id()));
    fs::create_dir_all(&root).unwrap();
    root
});

fuzz_target!(|texts: Vec<(u8, &str)>| {
    for (name, text) in &texts {
        fs::write(ROOT.join(NAMES[usize::from(*name) % NAMES.len()]), text).unwrap();
    }
    let directory = openat(CWD, &*ROOT, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    for stats in husk_cgroup::fuzzing::statistics(directory, &CONTROLLERS).into_iter().flatten() {
        serde_json::to_string(&stats).unwrap();
    }
    if let [(_, mountinfo), (_, own), ..] = texts[..] {
        husk_cgroup::fuzzing::trees(mountinfo, own);
    }
});
