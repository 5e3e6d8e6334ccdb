//! Limits of containers, as the kernel reports and enforces them. Which tests run depends on the machine's cgroups:
//! version 1 with its controllers, version 2, or version 2 without most of them.

use crate::util::{Bundle, Runtime, Seen, is_husk, is_root, need, until_gone};
use husk_runtime::{OomEvent, OomWatch, Store};
use rustix::event::{PollFd, poll};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

pub(crate) fn is_version_2() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

/// Whether the machine has the controller and the tests run as root, who may use it.
pub(crate) fn has(controller: &str) -> bool {
    let here = if is_version_2() {
        let all = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap();
        all.split_whitespace().any(|name| name == controller)
    } else {
        Path::new("/sys/fs/cgroup").join(controller).is_dir()
    };
    here && is_root()
}

/// Whether the version 2 tree beside version 1 (`unified`) has the controller and the tests run as root.
fn has_beside(controller: &str) -> bool {
    let all = fs::read_to_string("/sys/fs/cgroup/unified/cgroup.controllers").unwrap_or_default();
    all.split_whitespace().any(|name| name == controller) && is_root()
}

/// Returns the path of the bundle's cgroup, relative to the root of its tree.
pub(crate) fn path(bundle: &Bundle) -> String {
    bundle.config["linux"]["cgroupsPath"].as_str().unwrap().to_owned()
}

/// Returns the directory of the bundle's cgroup in the controller's tree.
pub(crate) fn directory(bundle: &Bundle, controller: &str) -> PathBuf {
    let tree = if is_version_2() { "" } else { controller };
    Path::new("/sys/fs/cgroup").join(tree).join(path(bundle).trim_start_matches('/'))
}

pub(crate) fn read(bundle: &Bundle, controller: &str, file: &str) -> String {
    let file = directory(bundle, controller).join(file);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())).trim().to_owned()
}

pub(crate) fn limited(words: &str, resources: Value) -> Bundle {
    Bundle::running(words).with("/linux/resources", resources)
}

fn without(mut bundle: Bundle, namespace: &str) -> Bundle {
    let namespaces = bundle.config["linux"]["namespaces"].as_array_mut().unwrap();
    namespaces.retain(|entry| entry["type"] != namespace);
    bundle
}

/// Whether the bundle's cgroup exists in no tree.
pub(crate) fn is_gone(bundle: &Bundle) -> bool {
    let name = path(bundle);
    let trees = fs::read_dir("/sys/fs/cgroup").unwrap().flatten().map(|entry| entry.path());
    let mut trees = trees.filter(|path| path.is_dir()).chain(["/sys/fs/cgroup".into()]);
    !trees.any(|tree| tree.join(name.trim_start_matches('/')).exists())
}

#[test]
fn program_runs_in_the_named_cgroup() {
    need!(is_root(), "needs root to create cgroups");
    let bundle = Bundle::running("cat /proc/self/cgroup");
    let seen = Runtime::under_test().run(&bundle).succeeds();
    let name = path(&bundle);
    // The kernel also lists trees that are not mounted: version 1's where version 2 is alone, or version 2's beside
    // version 1.
    let is_mounted = |line: &&str| match line.starts_with("0::") {
        true => is_version_2() || Path::new("/sys/fs/cgroup/unified/cgroup.procs").exists(),
        false => !is_version_2(),
    };
    let mut mounted = seen.lines().filter(is_mounted);
    assert!(mounted.all(|line| line.ends_with(&name)), "{seen}");
    assert!(is_gone(&bundle));
}

#[test]
fn cgroup_is_removed_after_poststop_hooks() {
    need!(is_root(), "needs root to create cgroups");
    let bundle = Bundle::running("exit 0").with("/hooks", json!({ "poststop": [{ "path": "/bin/true" }] }));
    Runtime::under_test().run(&bundle).succeeds();
    assert!(is_gone(&bundle));
}

#[test]
fn cgroup_namespace_is_rooted_at_the_containers_cgroup() {
    need!(is_root(), "needs root to create cgroups");
    let mut bundle = Bundle::running("cat /proc/self/cgroup");
    bundle.config["linux"]["namespaces"].as_array_mut().unwrap().push(json!({ "type": "cgroup" }));
    let seen = Runtime::under_test().run(&bundle).succeeds();
    if is_version_2() {
        assert!(seen.lines().any(|line| line == "0::/"), "{seen}");
    } else {
        assert!(seen.lines().all(|line| line.ends_with(":/")), "{seen}");
    }
}

#[test]
fn cgroup_mount_of_version_1_shows_the_containers_cgroups() {
    need!(!is_version_2() && has("pids"), "needs the pids controller of version 1");
    let mount = json!({ "destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup" });
    let bundle = limited("cat /sys/fs/cgroup/pids/pids.max", json!({ "pids": { "limit": 77 } }));
    Runtime::under_test().run(&bundle.mounting(mount)).prints("77");
}

#[test]
fn pids_limit_is_set_and_enforced() {
    need!(has("pids"), "needs the pids controller");
    let bundle = limited("crowd 5", json!({ "pids": { "limit": 3 } }));
    let runtime = Runtime::under_test();
    runtime.create(&bundle).succeeds();
    assert_eq!(read(&bundle, "pids", "pids.max"), "3");
    runtime.call("delete", &["--force", "c"]).succeeds();
    assert!(is_gone(&bundle));
    let seen = runtime.run(&bundle).succeeds();
    assert!(seen.starts_with("2 Resource temporarily unavailable"), "{seen}");
    assert!(is_gone(&bundle) && runtime.is_empty());
}

#[test]
fn hugepage_limit_is_set() {
    let tree = if is_version_2() { "" } else { "unified" };
    // On a machine with both versions, runc looks only at version 1, and reports that it finds no such controller
    // there.
    need!(
        (has("hugetlb") && is_version_2()) || (has_beside("hugetlb") && is_husk()),
        "needs version 2's hugetlb"
    );
    let resources = json!({ "hugepageLimits": [{ "pageSize": "2MB", "limit": 4_194_304 }] });
    let bundle = limited("hang", resources);
    let runtime = Runtime::started(&bundle);
    assert_eq!(read(&bundle, tree, "hugetlb.2MB.max"), "4194304");
    let file = bundle.path().join("resources.json");
    fs::write(&file, r#"{ "hugepageLimits": [{ "pageSize": "2MB", "limit": 2097152 }] }"#).unwrap();
    runtime.call("update", &["--resources", file.to_str().unwrap(), "c"]).succeeds();
    // runc reports no error here and changes nothing.
    assert_eq!(read(&bundle, tree, "hugetlb.2MB.max"), if is_husk() { "2097152" } else { "4194304" });
    let told: Value = serde_json::from_str(&runtime.call("events", &["--stats", "c"]).succeeds()).unwrap();
    assert!(told["data"]["hugetlb"]["2MB"]["failcnt"].is_u64(), "{told}");
    runtime.call("delete", &["--force", "c"]).succeeds();
    assert!(is_gone(&bundle));
}

// The machine decides which controllers are missing. (Version 2 has no network controllers; husk warns about network
// limits there.) runc refuses missing controllers too, but only once there is a process, and without naming the field:
// "cannot set rdma limit: container could not join or create cgroup".
#[test]
fn missing_controller_is_named_with_the_field() {
    need!(is_root() && is_husk(), "needs root to create cgroups, and runc prints other messages");
    let asked = [
        ("memory", "memory.limit", json!({ "memory": { "limit": 33_554_432 } })),
        ("cpu", "cpu.shares", json!({ "cpu": { "shares": 512 } })),
        ("cpuset", "cpu.cpus", json!({ "cpu": { "cpus": "0" } })),
        ("pids", "pids.limit", json!({ "pids": { "limit": 50 } })),
        (
            if is_version_2() { "io" } else { "blkio" },
            "blockIO.weight",
            json!({ "blockIO": { "weight": 100 } }),
        ),
        ("hugetlb", "hugepageLimits[0]", json!({ "hugepageLimits": [{ "pageSize": "2MB", "limit": 0 }] })),
        ("rdma", "rdma.mlx5_1", json!({ "rdma": { "mlx5_1": { "hcaHandles": 3 } } })),
        ("net_cls", "network.classID", json!({ "network": { "classID": 5 } })),
        (
            "net_prio",
            "network.priorities[0]",
            json!({ "network": { "priorities": [{ "name": "lo", "priority": 1 }] } }),
        ),
    ];
    let is_missing = |controller| !has(controller) && !has_beside(controller);
    let missing = asked.into_iter().filter(|(name, ..)| is_missing(name));
    let missing: Vec<_> =
        missing.filter(|(name, ..)| !(is_version_2() && name.starts_with("net_"))).collect();
    need!(!missing.is_empty(), "needs a machine without one of the controllers");
    for (controller, field, resources) in missing {
        let mut bundle = limited("hang", resources.clone());
        let runtime = Runtime::under_test();
        let wanted = format!("linux.resources.{field}: this cgroup has no {controller} controller: ");
        runtime.run(&bundle).fails(1, &wanted);
        runtime.create(&bundle).fails(1, &wanted);
        assert!(is_gone(&bundle) && runtime.is_empty());
        // `update` refuses the limit in the same way.
        bundle.config["linux"]["resources"] = json!({});
        let runtime = Runtime::started(&bundle);
        let file = bundle.path().join("resources.json");
        fs::write(&file, resources.to_string()).unwrap();
        runtime.call("update", &["--resources", file.to_str().unwrap(), "c"]).fails(1, &wanted);
    }
}

#[test]
fn device_opens_only_if_a_rule_allows_it() {
    need!(is_root(), "needs root to create devices");
    // No driver has this number, so an open that the rules allow fails with ENXIO.
    let device = json!([{ "path": "/dev/none", "type": "c", "major": 60, "minor": 1, "fileMode": 0o666 }]);
    let rule =
        |allow, access| json!({ "allow": allow, "type": "c", "major": 60, "minor": 1, "access": access });
    let all = json!({ "allow": false, "access": "rwm" });
    let open = |rules: Value| {
        let bundle = limited("cat /dev/none", json!({ "devices": rules }));
        Runtime::under_test().run(&bundle.with("/linux/devices", device.clone()))
    };
    open(json!([])).fails(1, "Operation not permitted");
    open(json!([all])).fails(1, "Operation not permitted");
    open(json!([all, rule(true, "w")])).fails(1, "Operation not permitted");
    open(json!([all, rule(true, "rw")])).fails(1, "No such device or address");
    open(json!([all, rule(true, "rwm"), rule(false, "rwm")])).fails(1, "Operation not permitted");
}

#[test]
fn cgroup_with_foreign_processes_is_refused() {
    need!(is_root(), "needs root to create cgroups");
    let bundle = Bundle::running("exit 7");
    let (first, second) = (Runtime::under_test(), Runtime::under_test());
    first.create(&bundle).succeeds();
    for verb in ["create", "run"] {
        let refused = second.call(verb, &["--bundle", bundle.path().to_str().unwrap(), "c"]);
        refused.fails(1, "container's cgroup is not empty: 1 process(es) found");
    }
    assert!(second.is_empty());
    assert_eq!(first.status(), "created", "the first container changed");
}

#[test]
fn frozen_cgroup_is_refused() {
    need!(is_version_2() && is_root() || has("freezer"), "needs a freezer");
    let bundle = Bundle::running("exit 0");
    let directory = directory(&bundle, "freezer");
    fs::create_dir(&directory).unwrap();
    let (file, frozen, thawed) =
        if is_version_2() { ("cgroup.freeze", "1", "0") } else { ("freezer.state", "FROZEN", "THAWED") };
    fs::write(directory.join(file), frozen).unwrap();
    let runtime = Runtime::under_test();
    runtime.run(&bundle).fails(1, "container's cgroup unexpectedly frozen");
    assert!(directory.exists() && runtime.is_empty());
    fs::write(directory.join(file), thawed).unwrap();
    runtime.run(&bundle).succeeds();
    assert!(is_gone(&bundle));
}

/// A domain with a threaded cgroup `threads`, in which a container's cgroup can be made. Dropping it removes both.
struct Threads(PathBuf);

impl Threads {
    /// Makes the domain at this path.
    fn of(name: &str) -> Self {
        let domain = Path::new("/sys/fs/cgroup").join(name.trim_start_matches('/'));
        fs::create_dir_all(domain.join("threads")).unwrap();
        fs::write(domain.join("threads/cgroup.type"), "threaded").unwrap();
        Self(domain)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // Ignores errors: a failed test may leave a cgroup in it.
        fs::remove_dir(self.0.join("threads")).and_then(|()| fs::remove_dir(&self.0)).unwrap_or(());
    }
}

#[test]
fn container_can_run_in_a_threaded_cgroup() {
    need!(is_version_2() && is_root(), "needs cgroup version 2 only");
    let bundle = Bundle::running("hang");
    let name = path(&bundle);
    let _threads = Threads::of(&name);
    let bundle = bundle.with("/linux/cgroupsPath", format!("{name}/threads/c").into());
    let runtime = Runtime::under_test();
    runtime.run_detached(&bundle, &["--detach"]).succeeds();
    assert_eq!(read(&bundle, "", "cgroup.type"), "threaded");
    let seen = runtime.call("ps", &["--format", "json", "c"]);
    assert_eq!(pids(&seen).len(), 1);
    runtime.call("exec", &["c", "/guest", "exit", "0"]).succeeds();
    runtime.call("pause", &["c"]).succeeds();
    assert_eq!(runtime.status(), "paused");
    runtime.call("resume", &["c"]).succeeds();
    runtime.call("kill", &["--all", "c", "KILL"]).succeeds();
    until_gone(pids(&seen)[0]);
    runtime.call("delete", &["c"]).succeeds();
    assert!(is_gone(&bundle));
    runtime.run_detached(&bundle, &["--detach"]).succeeds();
    runtime.call("delete", &["--force", "c"]).succeeds();
    assert!(is_gone(&bundle));

    // The memory controller is not available in threaded cgroups.
    if has("memory") {
        let bundle = bundle.with("/linux/resources", json!({ "memory": { "limit": 1 << 26 } }));
        runtime.run(&bundle).fails(1, "which cannot have these limits");
        assert!(is_gone(&bundle) && runtime.is_empty());
    }
}

#[test]
fn container_can_be_paused_and_resumed() {
    need!(is_version_2() && is_root() || has("freezer"), "needs a freezer");
    let bundle = Bundle::running("hang");
    let runtime = Runtime::under_test();
    runtime.call("pause", &["c"]).fails(1, "container does not exist");
    runtime.run_detached(&bundle, &["--detach"]).succeeds();
    runtime.call("resume", &["c"]).fails(1, "container not paused");
    runtime.call("pause", &["c"]).succeeds();
    assert_eq!(runtime.status(), "paused");
    let state: serde_json::Value = serde_json::from_str(&runtime.call("state", &["c"]).succeeds()).unwrap();
    assert_eq!(state["pid"], pids(&runtime.call("ps", &["--format", "json", "c"]))[0]);
    let refused = "cannot exec in a paused container (use --ignore-paused to override)";
    runtime.call("exec", &["c", "/guest", "exit", "0"]).fails(255, refused);
    runtime.call("pause", &["c"]).fails(1, "container not running");
    runtime.call("delete", &["c"]).fails(1, "that is not stopped: paused");
    runtime.call("resume", &["c"]).succeeds();
    assert_eq!(runtime.status(), "running");
    runtime.call("exec", &["c", "/guest", "exit", "0"]).succeeds();
    // A paused container can still be killed.
    runtime.call("pause", &["c"]).succeeds();
    let pid = pids(&runtime.call("ps", &["--format", "json", "c"]))[0];
    runtime.call("kill", &["c", "KILL"]).succeeds();
    until_gone(pid);
    runtime.call("delete", &["c"]).succeeds();
    assert!(is_gone(&bundle));
    // A paused container can also be deleted by force.
    runtime.run_detached(&bundle, &["--detach"]).succeeds();
    runtime.call("pause", &["c"]).succeeds();
    runtime.call("delete", &["--force", "c"]).succeeds();
    assert!(is_gone(&bundle));
}

fn pids(seen: &Seen) -> Vec<i32> {
    serde_json::from_str(&seen.succeeds()).unwrap()
}

#[test]
fn kill_without_a_pid_namespace_kills_the_whole_cgroup() {
    need!(is_root(), "needs root to create cgroups");
    let bundle = without(Bundle::running("hang"), "pid");
    let runtime = Runtime::under_test();
    let begin = || {
        runtime.run_detached(&bundle, &["--detach"]).succeeds();
        runtime.call("exec", &["--detach", "c", "/guest", "hang"]).succeeds();
        let pids = pids(&runtime.call("ps", &["--format", "json", "c"]));
        assert_eq!(pids.len(), 2);
        pids
    };
    let all = begin();
    runtime.call("kill", &["c", "KILL"]).succeeds();
    all.into_iter().for_each(until_gone);
    runtime.call("delete", &["c"]).succeeds();
    assert!(is_gone(&bundle));
    let all = begin();
    runtime.call("delete", &["--force", "c"]).succeeds();
    all.into_iter().for_each(until_gone);
    assert!(is_gone(&bundle));
}

#[test]
fn kill_all_signals_every_process() {
    need!(is_root() && is_husk(), "needs root to create cgroups, and runc ignores the option");
    let bundle = without(Bundle::running("hang"), "pid");
    let runtime = Runtime::under_test();
    runtime.run_detached(&bundle, &["--detach"]).succeeds();
    runtime.call("exec", &["--detach", "c", "/guest", "hang"]).succeeds();
    let all = pids(&runtime.call("ps", &["--format", "json", "c"]));
    runtime.call("kill", &["--all", "c", "TERM"]).succeeds();
    all.into_iter().for_each(until_gone);
    runtime.call("kill", &["c", "0"]).fails(1, "container not running");
    runtime.call("kill", &["--all", "c", "KILL"]).succeeds();
    runtime.call("delete", &["c"]).succeeds();
}

#[test]
fn ps_lists_processes_with_their_host_pids() {
    need!(is_root() && Path::new("/bin/ps").exists(), "needs root to make cgroups, and ps");
    let bundle = Bundle::running("hang");
    let runtime = Runtime::under_test();
    runtime.run_detached(&bundle, &["--detach"]).succeeds();
    let pid = pids(&runtime.call("ps", &["--format", "json", "c"]))[0];
    for words in [&["c"] as &[&str], &["c", "-ef"], &["--format", "table", "c", "-e", "-o", "pid,args"]] {
        let table = runtime.call("ps", words).succeeds();
        let lines: Vec<_> = table.lines().collect();
        assert!(lines.len() == 2 && lines[0].contains("PID"), "{table}");
        assert!(lines[1].contains("/guest hang") && lines[1].contains(&pid.to_string()), "{table}");
    }
    runtime.call("ps", &["--format", "odd", "c"]).fails(1, "invalid format option");
    runtime.call("ps", &["c", "-o", "args"]).fails(1, "couldn't find PID field in ps output");
}

#[test]
fn update_changes_limits() {
    need!(has("pids") && has("memory"), "needs the pids and the memory controller");
    let bundle = limited("hang", json!({ "pids": { "limit": 20 } }));
    let runtime = Runtime::under_test();
    runtime.run_detached(&bundle, &["--detach"]).succeeds();
    let memory = if is_version_2() { "memory.max" } else { "memory.limit_in_bytes" };
    runtime.call("update", &["--pids-limit", "10", "c"]).succeeds();
    assert_eq!(read(&bundle, "pids", "pids.max"), "10");
    runtime.call("update", &["--memory", "64m", "c"]).succeeds();
    assert_eq!(read(&bundle, "memory", memory), "67108864");
    assert_eq!(read(&bundle, "pids", "pids.max"), "10", "it was not named");
    let file = bundle.path().join("resources.json");
    fs::write(&file, r#"{ "memory": { "limit": 33554432 }, "pids": { "limit": -1 } }"#).unwrap();
    runtime.call("update", &["--resources", file.to_str().unwrap(), "c"]).succeeds();
    assert_eq!(read(&bundle, "memory", memory), "33554432");
    assert_eq!(read(&bundle, "pids", "pids.max"), "max");
    runtime.call("update", &["--memory", "much", "c"]).fails(1, "invalid value for memory");
    // Version 1 refuses a limit below the current usage even without `checkBeforeUpdate`.
    fs::write(&file, r#"{ "memory": { "limit": 4096, "checkBeforeUpdate": true } }"#).unwrap();
    runtime.call("update", &["--resources", file.to_str().unwrap(), "c"]).fails(1, "usage");
    runtime.call("kill", &["c", "KILL"]).succeeds();
}

#[test]
fn events_report_usage() {
    need!(has("pids"), "needs the pids controller");
    let bundle = limited("hang", json!({ "pids": { "limit": 20 } }));
    let runtime = Runtime::under_test();
    runtime.run_detached(&bundle, &["--detach"]).succeeds();
    let told: Value =
        serde_json::from_str(&runtime.call("events", &["--stats", "c"]).succeeds()).expect("one event");
    assert_eq!((told["type"].as_str(), told["id"].as_str()), (Some("stats"), Some("c")));
    assert_eq!(
        (&told["data"]["pids"]["limit"], told["data"]["pids"]["current"].is_u64()),
        (&json!(20), true)
    );
    assert!(told["data"]["cpu"]["usage"]["total"].is_u64(), "{told}");
    runtime.call("events", &["--interval", "0s", "c"]).fails(1, "interval must be greater than 0");
}

#[test]
fn events_report_out_of_memory() {
    need!(has("memory"), "needs the memory controller");
    let bundle = limited("eat", json!({ "memory": { "limit": 33_554_432, "swap": 33_554_432 } }));
    let runtime = Runtime::under_test();
    runtime.create(&bundle).succeeds();
    let mut watcher = runtime.spawn("events", &["--interval", "10ms", "c"], Stdio::piped());
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
    // Once statistics arrive, `events` also listens for OOM events.
    assert!(lines.next().unwrap().unwrap().contains(r#""type":"stats""#));
    runtime.call("start", &["c"]).succeeds();
    let oom = r#"{"type":"oom","id":"c"}"#;
    assert!(lines.any(|line| line.unwrap() == oom));
    drop(lines);
    runtime.call("delete", &["--force", "c"]).succeeds();
    watcher.wait().unwrap();
}

#[test]
fn watched_memory_reports_a_kill_and_the_end_of_the_cgroup() {
    need!(is_husk(), "calls husk's library");
    need!(has("memory"), "needs the memory controller");
    let bundle = limited("eat", json!({ "memory": { "limit": 33_554_432, "swap": 33_554_432 } }));
    let runtime = Runtime::under_test();
    runtime.create(&bundle).succeeds();
    let store = Store::new(runtime.root().to_owned());
    let mut watch = husk_runtime::watch_memory(&store, "c").unwrap();
    assert_eq!(watch.check().unwrap(), OomEvent::Nothing);
    let state: Value = serde_json::from_str(&runtime.call("state", &["c"]).succeeds()).unwrap();
    let pid = state["pid"].as_i64().and_then(|pid| pid.try_into().ok()).unwrap();
    runtime.call("start", &["c"]).succeeds();
    // In version 2 reaching the limit is an event before the kill is one.
    assert_eq!(next(&mut watch), OomEvent::OutOfMemory);
    until_gone(pid);
    // Version 1 may announce again until the process has ended.
    watch.check().unwrap();
    runtime.call("delete", &["c"]).succeeds();
    assert_eq!(next(&mut watch), OomEvent::Gone);
    assert!(husk_runtime::watch_memory(&store, "c").is_err());
}

/// Returns the next event that `watch` reports after it became ready.
fn next(watch: &mut OomWatch) -> OomEvent {
    loop {
        poll(&mut [PollFd::new(watch, watch.flags())], None).unwrap();
        match watch.check().unwrap() {
            OomEvent::Nothing => {}
            event => return event,
        }
    }
}

#[test]
fn exec_joins_the_containers_cgroup() {
    need!(is_root(), "needs root to create cgroups");
    let bundle = Bundle::running("hang");
    let runtime = Runtime::under_test();
    runtime.run_detached(&bundle, &["--detach"]).succeeds();
    let name = path(&bundle);
    let cat = ["c", "/guest", "cat", "/proc/self/cgroup"];
    let seen = |options: &[&str]| runtime.call("exec", &[options, &cat].concat());
    let is_in = |text: &str, name: &str| text.lines().any(|line| line.ends_with(&format!(":{name}")));
    assert!(is_in(&seen(&[]).succeeds(), &name));
    seen(&["--cgroup", ".."]).fails(255, "bad sub cgroup path");
    // This path begins with the container's cgroup path but is not below it. runc merely finds nothing there.
    let outside = if is_husk() { "bad sub cgroup path" } else { "no such file or directory" };
    seen(&["--cgroup", &format!("..{name}-more")]).fails(255, outside);
    seen(&["--cgroup", "missing"]).fails(255, "no such file or directory");
    seen(&["--cgroup", "none:/"]).fails(255, "unknown controller");
    let below = directory(&bundle, "pids").join("below");
    need!(is_version_2() || has("pids"), "needs a cgroup to be below of");
    fs::create_dir(&below).unwrap();
    let option = if is_version_2() { "below" } else { "pids:below" };
    assert!(is_in(&seen(&["--cgroup", option]).succeeds(), &format!("{name}/below")));
    runtime.call("delete", &["--force", "c"]).succeeds();
    assert!(is_gone(&bundle), "nested cgroups were not removed");
}

#[test]
fn disabled_cgroup_manager_creates_no_cgroup() {
    need!(is_husk() && is_root(), "runc always creates a cgroup");
    let bundle = Bundle::running("cat /proc/self/cgroup");
    let seen = Runtime::under_test().run_with(&bundle, &["--cgroup-manager", "disabled"]).succeeds();
    assert_eq!(seen, fs::read_to_string("/proc/self/cgroup").unwrap());
}
