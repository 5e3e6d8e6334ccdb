//! Checks cgroups that systemd creates: the host's systemd for root, the user's for others. The tests query systemd for
//! what it was told.

use crate::cgroups::{has, is_version_2};
use crate::util::{Bundle, Runtime, Seen, is_husk, is_root, need, until_gone};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const BY_SYSTEMD: &[&str] = &["--systemd-cgroup"];

/// Returns whether a systemd is running that creates cgroups for this user.
fn is_here() -> bool {
    Path::new("/run/systemd/system").is_dir() && (is_root() || systemctl(&["is-system-running"]).is_some())
}

/// Returns what `systemctl` prints, or `None` if systemd cannot be reached.
fn systemctl(words: &[&str]) -> Option<String> {
    let mut command = Command::new("systemctl");
    if !is_root() {
        command.arg("--user");
    }
    let output = command.args(words).output().ok()?;
    let said = String::from_utf8(output.stdout).expect("text");
    (!said.is_empty() || output.status.success()).then(|| said.trim_end().to_owned())
}

/// A container with its own unit.
struct Scope {
    bundle: Bundle,
    unit: String,
}

impl Scope {
    fn running(words: &str, resources: Value) -> Self {
        let bundle = Bundle::running(words).with("/linux/resources", resources);
        let name = bundle.path().file_name().unwrap().to_str().unwrap().trim_start_matches('.').to_owned();
        let unit = format!("husk-{name}.scope");
        let bundle = bundle.with("/linux/cgroupsPath", format!("husk-test.slice:husk:{name}").into());
        Self { bundle, unit }
    }

    /// Starts the container detached. Later verbs of the returned runtime get no `--systemd-cgroup`.
    fn started(&self) -> Runtime {
        let mut runtime = Runtime::under_test();
        runtime.globals = BY_SYSTEMD;
        runtime.run_detached(&self.bundle, &["--detach"]).succeeds();
        runtime.globals = &[];
        runtime
    }

    /// Runs the container until it ends.
    fn run(&self) -> Seen {
        let mut runtime = Runtime::under_test();
        runtime.globals = BY_SYSTEMD;
        runtime.run(&self.bundle)
    }

    /// Returns a property as systemd prints it.
    fn property(&self, name: &str) -> String {
        systemctl(&["show", "--value", "--property", name, &self.unit]).expect("a systemd")
    }

    #[track_caller]
    fn has(&self, properties: &[(&str, &str)]) {
        for (name, wanted) in properties {
            assert_eq!(self.property(name), *wanted, "{name}");
        }
    }

    fn directory(&self) -> PathBuf {
        Path::new("/sys/fs/cgroup").join(self.property("ControlGroup").trim_start_matches('/'))
    }

    #[track_caller]
    fn reads(&self, file: &str, wanted: &str) {
        let found = fs::read_to_string(self.directory().join(file)).expect(file);
        assert_eq!(found.trim_end(), wanted, "{file}");
    }
}

#[test]
fn unit_is_in_its_slice_until_the_container_is_deleted() {
    need!(is_here(), "needs systemd");
    let scope = Scope::running("hang", json!({}));
    let runtime = scope.started();
    scope.has(&[("ActiveState", "active"), ("Slice", "husk-test.slice"), ("Delegate", "yes")]);
    let place = scope.property("ControlGroup");
    assert!(place.ends_with(&format!("/husk.slice/husk-test.slice/{}", scope.unit)), "{place}");
    let own = runtime.call("exec", &["c", "/guest", "cat", "/proc/self/cgroup"]).succeeds();
    assert!(own.lines().any(|line| line.ends_with(&place)), "{own}");
    let directory = scope.directory();
    runtime.call("delete", &["--force", "c"]).succeeds();
    assert_eq!(scope.property("LoadState"), "not-found");
    assert!(!directory.exists() && runtime.is_empty());
}

#[test]
fn unit_is_named_after_the_container_by_default() {
    need!(is_here(), "needs systemd");
    let mut scope = Scope::running("hang", json!({}));
    scope.bundle.config["linux"].as_object_mut().unwrap().remove("cgroupsPath");
    scope.unit = if is_husk() { "husk-c.scope" } else { "runc-c.scope" }.to_owned();
    let _runtime = scope.started();
    let slice = if is_root() { "system.slice" } else { "user.slice" };
    scope.has(&[("ActiveState", "active"), ("Slice", slice)]);
}

#[test]
fn invalid_unit_path_is_refused() {
    need!(is_here(), "needs systemd");
    let mut scope = Scope::running("hang", json!({}));
    scope.bundle.config["linux"]["cgroupsPath"] = "/some/where".into();
    let said = if is_husk() {
        r#"of format "slice:prefix:name" for"#
    } else {
        r#"of format \"slice:prefix:name\" for"#
    };
    scope.run().fails(1, said);
}

#[test]
fn resources_become_properties_of_the_unit() {
    need!(is_here() && is_version_2(), "needs systemd and cgroup version 2");
    let scope = Scope::running(
        "hang",
        json!({
            "memory": { "limit": 33_554_432, "reservation": 16_777_216, "swap": 50_331_648 },
            "cpu": { "shares": 1024, "quota": 20_500, "period": 50_000, "cpus": "0" },
            "pids": { "limit": 20 }
        }),
    );
    let runtime = scope.started();
    scope.has(&[
        ("MemoryMax", "33554432"),
        ("MemoryLow", "16777216"),
        ("MemorySwapMax", "16777216"),
        ("CPUQuotaPerSecUSec", "410ms"),
        ("CPUQuotaPeriodUSec", "50ms"),
        ("AllowedCPUs", "0"),
        ("TasksMax", "20"),
    ]);
    scope.reads("memory.max", "33554432");
    scope.reads("memory.swap.max", "16777216");
    scope.reads("cpu.max", "20500 50000");
    scope.reads("cpu.weight", &scope.property("CPUWeight"));
    scope.reads("cpuset.cpus", "0");
    scope.reads("pids.max", "20");
    let update = |words: &[&str]| runtime.call("update", &[words, &["c"]].concat()).succeeds();
    update(&["--memory", "64m", "--memory-swap", "64m", "--pids-limit", "30"]);
    scope.has(&[("MemoryMax", "67108864"), ("TasksMax", "30")]);
    scope.reads("memory.swap.max", "0");
    // runc does not pass a limit of zero to systemd.
    scope.has(&[("MemorySwapMax", if is_husk() { "0" } else { "16777216" })]);
    update(&["--cpu-quota", "10000"]);
    scope.reads("cpu.max", "10000 50000");
    update(&["--cpu-period", "100000"]);
    scope.has(&[("CPUQuotaPeriodUSec", "100ms"), ("CPUQuotaPerSecUSec", "100ms")]);
    scope.reads("cpu.max", "10000 100000");
    // systemd is not told about a limit that would kill the container.
    for (memory, words) in [
        (r#""limit": 4096"#, "rejecting memory limit 4096"),
        (r#""limit": 4096, "swap": 8192"#, "rejecting memory+swap limit 8192"),
    ] {
        let file = scope.bundle.path().join("resources.json");
        fs::write(&file, format!(r#"{{ "memory": {{ {memory}, "checkBeforeUpdate": true }} }}"#)).unwrap();
        runtime.call("update", &["--resources", file.to_str().unwrap(), "c"]).fails(1, words);
    }
    scope.has(&[("MemoryMax", "67108864")]);
    update(&["--memory", "-1", "--pids-limit", "-1", "--cpu-quota", "-1"]);
    scope.has(&[("MemoryMax", "infinity"), ("TasksMax", "infinity"), ("CPUQuotaPerSecUSec", "infinity")]);
    // The limits stay when systemd reloads its configuration.
    update(&["--memory", "32m", "--cpu-quota", "10000"]);
    systemctl(&["daemon-reload"]);
    scope.reads("memory.max", "33554432");
    scope.reads("cpu.max", "10000 100000");
    scope.reads("pids.max", "max");
}

#[test]
fn unified_files_become_properties() {
    need!(is_here() && is_version_2(), "needs systemd and cgroup version 2");
    let unified = json!({
        "memory.high": "33554432", "memory.min": "4096", "pids.max": "42", "cpu.max": "max 50000",
        "cpuset.mems": "0", "memory.swap.high": "1048576"
    });
    let scope = Scope::running("hang", json!({ "unified": unified }));
    let _runtime = scope.started();
    scope.has(&[
        ("MemoryHigh", "33554432"),
        ("MemoryMin", "4096"),
        ("TasksMax", "42"),
        ("CPUQuotaPeriodUSec", "50ms"),
        ("CPUQuotaPerSecUSec", "infinity"),
        ("AllowedMemoryNodes", "0"),
    ]);
    // Not every limit has a property.
    scope.reads("memory.swap.high", "1048576");
    scope.reads("memory.high", "33554432");
}

#[test]
fn controller_that_systemd_does_not_know_is_enabled() {
    need!(is_here() && has("hugetlb") && is_version_2(), "needs systemd and the hugetlb controller");
    let limits = json!([{ "pageSize": "2MB", "limit": 4_194_304 }]);
    let scope = Scope::running("hang", json!({ "hugepageLimits": limits }));
    let _runtime = scope.started();
    scope.reads("hugetlb.2MB.max", "4194304");
}

#[test]
fn annotations_become_properties() {
    need!(is_here(), "needs systemd");
    let mut scope = Scope::running("hang", json!({}));
    scope.bundle.config["annotations"] = json!({
        "org.systemd.property.TimeoutStopUSec": "uint64 123456789",
        "org.systemd.property.CollectMode": "'inactive'",
        "org.systemd.property.TasksMax": "uint64 77"
    });
    let runtime = scope.started();
    scope.has(&[("TimeoutStopUSec", "2min 3.456789s"), ("CollectMode", "inactive"), ("TasksMax", "77")]);
    runtime.call("delete", &["--force", "c"]).succeeds();
    scope.bundle.config["annotations"] = json!({ "org.systemd.property.Nonsense": "true" });
    scope.run().fails(1, "Nonsense");
    assert_eq!(scope.property("LoadState"), "not-found");
}

#[test]
fn failed_unit_of_the_same_name_is_replaced() {
    need!(is_here(), "needs systemd");
    let scope = Scope::running("cat /proc/self/cgroup", json!({}));
    let mut failing = Command::new("systemd-run");
    if !is_root() {
        failing.arg("--user");
    }
    let words =
        ["--quiet", "--scope", "--property", "RuntimeMaxSec=1", "--unit", &scope.unit, "sleep", "1000"];
    assert!(!failing.args(words).status().expect("systemd-run").success());
    scope.has(&[("ActiveState", "failed")]);
    assert!(scope.run().succeeds().contains(&scope.unit));
}

#[test]
fn failed_unit_is_reset_with_its_container() {
    need!(is_here(), "needs systemd");
    // With the first mode systemd keeps the failed unit until it is reset. With the second it drops the unit.
    for mode in ["'inactive'", "'inactive-or-failed'"] {
        let mut scope = Scope::running("hang", json!({}));
        scope.bundle.config["annotations"] = json!({
            "org.systemd.property.CollectMode": mode,
            "org.systemd.property.RuntimeMaxUSec": "uint64 1000000",
            "org.systemd.property.TimeoutStopUSec": "uint64 100000"
        });
        let runtime = scope.started();
        let state: Value = serde_json::from_str(&runtime.call("state", &["c"]).succeeds()).unwrap();
        if let Some(pid @ 1..) = state["pid"].as_i64() {
            until_gone(pid.try_into().unwrap());
        }
        assert_eq!(runtime.status(), "stopped");
        runtime.call("delete", &["c"]).succeeds();
        assert_eq!(scope.property("LoadState"), "not-found");
    }
}

#[test]
fn running_unit_of_the_same_name_is_refused() {
    need!(is_here(), "needs systemd");
    let scope = Scope::running("hang", json!({}));
    let runtime = scope.started();
    scope.run().fails(1, "container's cgroup is not empty: 1 process(es) found");
    assert_eq!(runtime.status(), "running");
    scope.has(&[("ActiveState", "active")]);
}

#[test]
fn unit_with_a_frozen_cgroup_is_refused() {
    need!(is_here() && is_root() && is_version_2(), "needs systemd, cgroup version 2 and root");
    let scope = Scope::running("exit 0", json!({}));
    let directory = Path::new("/sys/fs/cgroup/husk.slice/husk-test.slice").join(&scope.unit);
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("cgroup.freeze"), "1").unwrap();
    scope.run().fails(1, "container's cgroup unexpectedly frozen");
    fs::remove_dir(&directory).unwrap();
    scope.run().succeeds();
}

#[test]
fn container_in_a_unit_can_be_paused_and_killed() {
    need!(is_here() && is_version_2(), "needs systemd and cgroup version 2");
    let scope = Scope::running("hang", json!({}));
    let runtime = scope.started();
    runtime.call("pause", &["c"]).succeeds();
    assert_eq!(runtime.status(), "paused");
    // systemd sets a property on a frozen unit too.
    runtime.call("update", &["--pids-limit", "5", "c"]).succeeds();
    scope.has(&[("TasksMax", "5")]);
    assert_eq!(runtime.status(), "paused");
    runtime.call("resume", &["c"]).succeeds();
    runtime.call("pause", &["c"]).succeeds();
    runtime.call("delete", &["--force", "c"]).succeeds();
    assert_eq!(scope.property("LoadState"), "not-found");
}

#[test]
fn device_rules_survive_a_daemon_reload() {
    need!(is_here() && is_root(), "needs systemd, and root to make devices");
    let rule = |allow, major, minor| {
        let mut rule = json!({ "allow": allow, "type": "c", "access": "rw" });
        let numbers = [("major", major), ("minor", minor)];
        for (name, number) in numbers.into_iter().filter_map(|(name, number)| Some((name, number?))) {
            rule[name] = json!(number);
        }
        rule
    };
    let all = json!({ "allow": false, "access": "rwm" });
    // No driver has these numbers, so opening an allowed device fails because the device does not exist.
    let device = |minor| json!({ "path": format!("/dev/{minor}"), "type": "c", "major": 60, "minor": minor });
    let opens = |rules: Value, wanted: [bool; 2]| {
        let mut scope = Scope::running("hang", json!({ "devices": rules }));
        scope.bundle.config["linux"]["devices"] = json!([device(1), device(2)]);
        let runtime = scope.started();
        let look = || {
            for (minor, opens) in [1, 2].into_iter().zip(wanted) {
                let reason = if opens { "No such device or address" } else { "Operation not permitted" };
                runtime.call("exec", &["c", "/guest", "cat", &format!("/dev/{minor}")]).fails(1, reason);
            }
            runtime.call("exec", &["c", "/guest", "write", "/dev/null"]).succeeds();
        };
        look();
        systemctl(&["daemon-reload"]);
        look();
        runtime.call("update", &["--pids-limit", "5", "c"]).succeeds();
        look();
    };
    opens(json!([all]), [false, false]);
    opens(json!([all, rule(true, Some(60), Some(1))]), [true, false]);
    opens(json!([all, rule(true, Some(60), None)]), [true, true]);
    if is_version_2() {
        // Neither systemd nor version 1 can express these rules.
        opens(json!([all, rule(true, Some(60), None), rule(false, Some(60), Some(1))]), [false, true]);
        opens(json!([all, rule(true, None, Some(2))]), [false, true]);
        opens(json!([{ "allow": true, "access": "rwm" }, rule(false, Some(60), Some(1))]), [false, true]);
    }
}

/// `husk test` limits all its processes together in a scope in which it may create cgroups.
#[test]
fn sandbox_in_a_delegated_scope_has_a_cgroup() {
    need!(is_here() && is_version_2(), "needs systemd and cgroup version 2");
    let run = |options: &[&str], script: &str| {
        let mut command = Command::new("systemd-run");
        if !is_root() {
            command.arg("--user");
        }
        command.args([
            "--scope",
            "--quiet",
            "--collect",
            "--property=Delegate=yes",
            env!("CARGO_BIN_EXE_husk"),
        ]);
        command.args(["test", "--strict"]).args(options).args(["--", "sh", "-c", script]);
        Seen(command.output().unwrap())
    };
    let huge = "head -c 100m /dev/zero | tail -c 90m > /dev/null";
    run(&["--memory", "32m"], huge).fails(124, "husk: killed: memory limit of 33554432 bytes reached");
    run(&["--pids", "50"], "b() { b | b & b; }; b").fails(2, "Cannot fork");
    run(&["--memory", "32m"], "cat /proc/self/cgroup").prints("0::/");
}
