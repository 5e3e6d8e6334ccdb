//! Checks that each kind of limit is set as requested and enforced, in both versions of cgroups.

use crate::cgroups::{directory, has, is_gone, is_version_2, limited, read};
use crate::namespaces::owned_by;
use crate::util::{Bundle, Runtime, is_husk, is_root, need};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Stdio;

const MIB: u64 = 1 << 20;

/// A file's name in each version, and the controller that it belongs to.
struct File {
    controller: &'static str,
    version_1: &'static str,
    version_2: &'static str,
}

impl File {
    fn name(&self) -> &str {
        if is_version_2() { self.version_2 } else { self.version_1 }
    }

    /// Returns whether the kernel supports the file, which then exists in every cgroup.
    fn is_there(&self, bundle: &Bundle) -> bool {
        directory(bundle, self.controller).join(self.name()).exists()
    }

    #[track_caller]
    fn says(&self, bundle: &Bundle, version_1: &str, version_2: &str) {
        let wanted = if is_version_2() { version_2 } else { version_1 };
        assert_eq!(read(bundle, self.controller, self.name()), wanted, "{}", self.name());
    }
}

const MEMORY: File =
    File { controller: "memory", version_1: "memory.limit_in_bytes", version_2: "memory.max" };
const SWAP: File =
    File { controller: "memory", version_1: "memory.memsw.limit_in_bytes", version_2: "memory.swap.max" };
const RESERVATION: File =
    File { controller: "memory", version_1: "memory.soft_limit_in_bytes", version_2: "memory.low" };
const OOM: File = File { controller: "memory", version_1: "memory.oom_control", version_2: "memory.events" };
const BURST: File = File { controller: "cpu", version_1: "cpu.cfs_burst_us", version_2: "cpu.max.burst" };
const IDLE: File = File { controller: "cpu", version_1: "cpu.idle", version_2: "cpu.idle" };
const SHARES: File = File { controller: "cpu", version_1: "cpu.shares", version_2: "cpu.weight" };

#[test]
fn memory_limit_never_kills_the_runtime() {
    need!(is_husk(), "runc reports the failure differently");
    need!(has("memory"), "needs the memory controller");
    let mut refused = 0;
    // From one page, which is too little for any process, to enough for the program.
    for limit in (12..=22).map(|bits| 1_u64 << bits) {
        for verb in ["run", "create"] {
            let bundle = limited("exit 0", json!({ "memory": { "limit": limit } }));
            bundle.write();
            let runtime = Runtime::under_test();
            let mut command = runtime.command(verb);
            command.arg("--bundle").arg(bundle.path()).arg("c");
            let seen = runtime.detached(command);
            match seen.0.status.code() {
                // The program itself may exceed the limit and be killed.
                Some(0 | 137) => {
                    // The process that exceeds the limit is killed, and not the `husk exec` that starts it.
                    let exec = runtime.call("exec", &["c", "/guest", "exit", "0"]);
                    assert!(exec.0.status.code().is_some(), "exec with {limit}: {:?}", exec.0);
                }
                Some(_) => {
                    seen.fails(1, "linux.resources.memory.limit");
                    assert!(is_gone(&bundle) && runtime.is_empty(), "{verb} with {limit} leaves something");
                    refused += 1;
                }
                None => panic!("{verb} with {limit}: {:?}", seen.0),
            }
            runtime.call("delete", &["--force", "c"]).succeeds();
            assert!(is_gone(&bundle) && runtime.is_empty(), "{verb} with {limit} leaves something");
        }
    }
    assert!(refused > 0, "no limit was too small");
}

#[test]
fn program_over_its_memory_limit_is_killed() {
    need!(has("memory"), "needs the memory controller");
    let memory = json!({ "memory": { "limit": 32 * MIB, "swap": 32 * MIB } });
    let bundle = limited("eat", memory.clone());
    let runtime = Runtime::under_test();
    runtime.run(&bundle).fails(137, "");
    assert!(is_gone(&bundle) && runtime.is_empty());
    // With several processes the kernel kills the largest, and the others go on.
    let bundle = limited("hang", memory);
    let runtime = Runtime::started(&bundle);
    runtime.call("exec", &["c", "/guest", "eat"]).fails(137, "");
    assert_eq!(runtime.status(), "running");
    let events = read(&bundle, "memory", OOM.name());
    assert!(events.lines().any(|line| line == "oom_kill 1"), "{events}");
}

#[test]
fn memory_and_swap_are_limited_together() {
    need!(has("memory"), "needs the memory controller");
    let memory = json!({ "limit": 32 * MIB, "swap": 48 * MIB, "reservation": 16 * MIB });
    let bundle = limited("hang", json!({ "memory": memory }));
    let runtime = Runtime::under_test();
    runtime.create(&bundle).succeeds();
    MEMORY.says(&bundle, "33554432", "33554432");
    RESERVATION.says(&bundle, "16777216", "16777216");
    SWAP.says(&bundle, "50331648", "16777216");
    let update = |options: &[&str]| runtime.call("update", &[options, &["c"]].concat());
    // The new memory limit exceeds the old combined limit, so version 1 needs the right order.
    update(&["--memory", "64m", "--memory-swap", "96m"]).succeeds();
    MEMORY.says(&bundle, "67108864", "67108864");
    SWAP.says(&bundle, "100663296", "33554432");
    // The opposite order is needed to lower both.
    update(&["--memory", "32m", "--memory-swap", "32m"]).succeeds();
    MEMORY.says(&bundle, "33554432", "33554432");
    SWAP.says(&bundle, "33554432", "0");
    update(&["--memory-swap", "48m"]).succeeds();
    SWAP.says(&bundle, "50331648", "16777216");
    update(&["--memory-swap", "16m"]).fails(1, if is_husk() { "linux.resources.memory.swap" } else { "" });
    let no_limit = "9223372036854771712";
    update(&["--memory-swap", "-1"]).succeeds();
    SWAP.says(&bundle, no_limit, "max");
    update(&["--memory", "-1"]).succeeds();
    MEMORY.says(&bundle, no_limit, "max");
    SWAP.says(&bundle, no_limit, "max");
}

#[test]
fn program_over_its_cpu_quota_is_throttled() {
    need!(has("cpu"), "needs the cpu controller");
    let bundle = limited("spin", json!({ "cpu": { "quota": 5000, "period": 50_000 } }));
    let runtime = Runtime::started(&bundle);
    if is_version_2() {
        assert_eq!(read(&bundle, "cpu", "cpu.max"), "5000 50000");
    }
    let mut watcher = runtime.spawn("events", &["--interval", "10ms", "c"], Stdio::piped());
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
    let throttled = |line: String| {
        let event: Value = serde_json::from_str(&line).unwrap();
        event["data"]["cpu"]["throttling"]["throttledPeriods"].as_u64() > Some(1)
    };
    assert!(lines.any(|line| throttled(line.unwrap())));
    drop(lines);
    runtime.call("delete", &["--force", "c"]).succeeds();
    watcher.wait().unwrap();
}

#[test]
fn cpu_shares_and_quota_are_set() {
    need!(has("cpu"), "needs the cpu controller");
    let bundle = limited("hang", json!({ "cpu": { "shares": 2048, "quota": 20_000 } }));
    let runtime = Runtime::under_test();
    runtime.create(&bundle).succeeds();
    // The weight lies as far above the middle of its range as 2048 shares lie above the middle of theirs.
    let weight = read(&bundle, "cpu", SHARES.name());
    if is_version_2() {
        assert!((101..200).contains(&weight.parse::<u32>().unwrap()), "{weight}");
        assert_eq!(read(&bundle, "cpu", "cpu.max"), "20000 100000");
    } else {
        assert_eq!(weight, "2048");
    }
    runtime.call("update", &["--cpu-period", "50000", "c"]).succeeds();
    runtime.call("update", &["--cpu-quota", "30000", "c"]).succeeds();
    if is_version_2() {
        assert_eq!(read(&bundle, "cpu", "cpu.max"), "30000 50000");
    } else {
        let quota = ["cpu.cfs_quota_us", "cpu.cfs_period_us"].map(|file| read(&bundle, "cpu", file));
        assert_eq!(quota, ["30000", "50000"]);
    }
    need!(BURST.is_there(&bundle), "needs Linux 5.14 for bursts");
    runtime.call("update", &["--cpu-burst", "10000", "c"]).succeeds();
    BURST.says(&bundle, "10000", "10000");
    // Changes both at once, in the order that the kernel accepts.
    let file = bundle.path().join("resources.json");
    fs::write(&file, r#"{ "cpu": { "quota": 8000, "burst": 4000 } }"#).unwrap();
    runtime.call("update", &["--resources", file.to_str().unwrap(), "c"]).succeeds();
    BURST.says(&bundle, "4000", "4000");
    runtime.call("update", &["--cpu-quota", "-1", "c"]).succeeds();
    need!(IDLE.is_there(&bundle), "needs Linux 5.15 for idle groups");
    runtime.call("update", &["--cpu-idle", "1", "c"]).succeeds();
    IDLE.says(&bundle, "1", "1");
}

#[test]
fn program_runs_on_the_configured_processors() {
    need!(has("cpuset"), "needs the cpuset controller");
    let bundle = limited("status Cpus_allowed_list", json!({ "cpu": { "cpus": "0", "mems": "0" } }));
    Runtime::under_test().run(&bundle).prints("0");
    assert!(is_gone(&bundle));
    // Nothing has needed the controller so far.
    let bundle = Bundle::running("hang");
    let runtime = Runtime::started(&bundle);
    runtime.call("update", &["--cpuset-cpus", "0", "c"]).succeeds();
    assert_eq!(read(&bundle, "cpuset", "cpuset.cpus"), "0");
    runtime.call("delete", &["--force", "c"]).succeeds();
    let nowhere = limited("exit 0", json!({ "cpu": { "cpus": "4095" } }));
    Runtime::under_test().run(&nowhere).fails(1, if is_husk() { "linux.resources.cpu.cpus" } else { "" });
    assert!(is_gone(&nowhere));
}

#[test]
fn disk_throttles_are_set() {
    let controller = if is_version_2() { "io" } else { "blkio" };
    need!(has(controller), "needs the io controller");
    let disks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let disk = disks.map(|disk| disk.path()).find(|disk| disk.join("device").exists());
    need!(disk.is_some(), "needs a disk");
    let numbers = fs::read_to_string(disk.unwrap().join("dev")).unwrap();
    let (major, minor) = numbers.trim().split_once(':').unwrap();
    let rate = |rate: u32| {
        let [major, minor]: [u32; 2] = [major.parse().unwrap(), minor.parse().unwrap()];
        json!([{ "major": major, "minor": minor, "rate": rate }])
    };
    let limits = json!({
        "throttleReadBpsDevice": rate(1_048_576),
        "throttleWriteBpsDevice": rate(2_097_152),
        "throttleReadIOPSDevice": rate(100),
        "throttleWriteIOPSDevice": rate(200)
    });
    let bundle = limited("hang", json!({ "blockIO": limits }));
    let runtime = Runtime::under_test();
    runtime.create(&bundle).succeeds();
    let numbers = numbers.trim();
    if is_version_2() {
        let wanted = format!("{numbers} rbps=1048576 wbps=2097152 riops=100 wiops=200");
        assert_eq!(read(&bundle, "io", "io.max"), wanted);
    } else {
        let wanted =
            [("read_bps", 1_048_576), ("write_bps", 2_097_152), ("read_iops", 100), ("write_iops", 200)];
        for (name, rate) in wanted {
            let file = format!("blkio.throttle.{name}_device");
            assert_eq!(read(&bundle, "blkio", &file), format!("{numbers} {rate}"));
        }
    }
}

#[test]
fn disk_weights_are_set() {
    let controller = if is_version_2() { "io" } else { "blkio" };
    need!(has(controller), "needs the io controller");
    let bundle = Bundle::running("hang");
    let runtime = Runtime::under_test();
    runtime.create(&bundle).succeeds();
    let has_file = |file: &str| directory(&bundle, controller).join(file).exists();
    let files = [
        ("io.bfq.weight", "default 500"),
        ("io.weight", "default 4950"),
        ("blkio.bfq.weight", "500"),
        ("blkio.weight", "500"),
    ];
    let found = files.into_iter().find(|(file, _)| has_file(file));
    need!(found.is_some(), "needs an I/O scheduler with weights");
    let (file, wanted) = found.unwrap();
    runtime.call("update", &["--blkio-weight", "500", "c"]).succeeds();
    let text = read(&bundle, controller, file);
    assert!(text.lines().any(|line| line == wanted), "{file}: {text}");
}

#[test]
fn unified_files_are_written() {
    need!(has("memory") && has("pids") && is_version_2(), "needs the controllers of version 2");
    let unified = json!({ "memory.high": "33554432", "memory.low": "16777216", "pids.max": "42" });
    let bundle = limited("hang", json!({ "pids": { "limit": 7 }, "unified": unified }));
    let runtime = Runtime::under_test();
    runtime.create(&bundle).succeeds();
    for (file, wanted) in [("memory.high", "33554432"), ("memory.low", "16777216"), ("pids.max", "42")] {
        assert_eq!(read(&bundle, "", file), wanted, "{file}");
    }
    let refused = |unified: Value, reason: &str| {
        let bundle = limited("hang", json!({ "unified": unified }));
        Runtime::under_test().create(&bundle).fails(1, if is_husk() { reason } else { "" });
        assert!(is_gone(&bundle));
    };
    refused(json!({ "cgroup.procs": "1" }), "linux.resources.unified.cgroup.procs");
    refused(json!({ "memory.wrong": "1" }), "linux.resources.unified.memory.wrong");
    refused(json!({ "wrong.max": "1" }), "linux.resources.unified.wrong.max");
    refused(json!({ "memory.max": "wrong" }), "linux.resources.unified.memory.max");
}

/// Returns a bundle whose container has new user and cgroup namespaces, and sees its own cgroup.
fn nested(words: &str, options: &[&str]) -> Bundle {
    let mount =
        json!({ "destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": options });
    let map = json!([{ "containerID": 0, "hostID": 100_000, "size": 65_536 }]);
    let mut bundle = Bundle::running(words).mounting(mount);
    bundle.config["linux"]["uidMappings"] = map.clone();
    bundle.config["linux"]["gidMappings"] = map;
    let namespaces = bundle.config["linux"]["namespaces"].as_array_mut().unwrap();
    namespaces.extend(["user", "cgroup"].map(|kind| json!({ "type": kind })));
    owned_by(bundle, 100_000)
}

#[test]
fn container_can_create_cgroups_if_they_are_delegated() {
    // runc treats cgroup drivers differently. The specification does not (config-linux.md, "Cgroup ownership").
    need!(
        is_version_2() && is_root() && is_husk(),
        "needs version 2, and root; runc gives them away with systemd only"
    );
    let owner = |bundle: &Bundle, file: &str| fs::metadata(directory(bundle, "").join(file)).unwrap().uid();
    let bundle = nested("hang", &["rw"]);
    let runtime = Runtime::started(&bundle);
    let given = ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"];
    assert_eq!(given.map(|file| owner(&bundle, file)), [100_000; 4]);
    // The files of the container's own limits still belong to the host's root.
    if Path::new(&directory(&bundle, "")).join("memory.max").exists() {
        assert_eq!(owner(&bundle, "memory.max"), 0);
    }
    runtime.call("exec", &["c", "/guest", "mkdir", "/sys/fs/cgroup/below"]).succeeds();
    assert!(directory(&bundle, "").join("below").exists());
    runtime.call("delete", &["--force", "c"]).succeeds();
    assert!(is_gone(&bundle));
    // A container with a read-only cgroup mount owns none of the files.
    let bundle = nested("hang", &["ro"]);
    let runtime = Runtime::started(&bundle);
    assert_eq!(given.map(|file| owner(&bundle, file)), [0; 4]);
    runtime.call("exec", &["c", "/guest", "mkdir", "/sys/fs/cgroup/below"]).fails(1, "");
}
