//! Checks cgroups that systemd creates (`--systemd-cgroup`) on machines without systemd. The tests play systemd, and
//! the cgroups are the machine's own.

mod peer;
mod wire;

use crate::util::{Bundle, Runtime, Seen, guest, is_husk, is_root, need};
use peer::{Mood, Systemd, UNIT, property};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The reason for skipping a test in this file.
const NEEDED: &str = "needs root to create cgroups, and runc checks for systemd before it connects";

/// Returns a bundle whose cgroup systemd creates.
fn bundle(systemd: &Systemd, words: &str) -> Bundle {
    Bundle::running(words).with("/linux/cgroupsPath", systemd.cgroups_path().into())
}

fn call(systemd: &Systemd, runtime: &Runtime, verb: &str, words: &[&str]) -> Seen {
    let mut command = runtime.command(verb);
    // Later verbs read the choice from the container's record.
    if ["run", "create"].contains(&verb) {
        command.arg("--systemd-cgroup");
    }
    command.args(words);
    runtime.detached(systemd.finds_it(command))
}

fn run(systemd: &Systemd, runtime: &Runtime, bundle: &Bundle) -> Seen {
    bundle.write();
    let seen = call(systemd, runtime, "run", &["--bundle", bundle.path().to_str().unwrap(), "c"]);
    assert!(runtime.is_empty());
    seen
}

/// Returns the methods called on systemd, each with its unit.
fn methods(systemd: &Systemd) -> Vec<String> {
    let calls = systemd.calls().into_iter();
    let of_units = calls.filter(|(member, _)| member.ends_with("Unit"));
    of_units.map(|(member, body)| format!("{member} {}", body[0].as_str().unwrap())).collect()
}

fn all(verbs: &[&str]) -> Vec<String> {
    verbs.iter().map(|verb| format!("{verb} {UNIT}")).collect()
}

/// Returns whether every tree is free of the container's cgroup, including trees that systemd does not manage.
fn is_gone(systemd: &Systemd) -> bool {
    let slice = systemd.cgroups_path();
    let slice = slice.split(':').next().unwrap();
    let trees = fs::read_dir("/sys/fs/cgroup").unwrap().map(|entry| entry.unwrap().path());
    let mut trees = trees.chain([Path::new("/sys/fs/cgroup").to_owned()]);
    !trees.any(|tree| tree.join(slice).join(UNIT).exists())
}

#[test]
fn program_runs_in_the_requested_unit() {
    need!(is_root() && is_husk(), NEEDED);
    let (systemd, runtime) = (Systemd::new(Mood::Willing), Runtime::under_test());
    let bundle = bundle(&systemd, "cat /proc/self/cgroup");
    let seen = run(&systemd, &runtime, &bundle).succeeds();
    let wanted = systemd.cgroups_path().replace(":husk:c", &format!("/{UNIT}"));
    for directory in systemd.directories() {
        let tree =
            directory.to_str().unwrap().trim_start_matches("/sys/fs/cgroup/").split('/').next().unwrap();
        let tree = if tree == "unified" || wanted.starts_with(tree) { "0:" } else { tree };
        let is_its = |line: &str| line.contains(&format!("{tree}:")) && line.ends_with(&wanted);
        assert!(seen.lines().any(is_its), "{tree}: {seen}");
    }
    let calls = systemd.calls();
    let position = |name: &str| calls.iter().position(|(member, _)| member == name).unwrap();
    assert!(position("AddMatch") < position("StartTransientUnit"));
    let (_, asked) = &calls[position("StartTransientUnit")];
    assert_eq!((&asked[0], &asked[1]), (&json!(UNIT), &json!("replace")));
    let value = |name| property(&asked[2], name).cloned();
    assert_eq!(value("Delegate"), Some(json!(true)));
    assert_eq!(value("DefaultDependencies"), Some(json!(false)));
    assert_eq!(value("Slice").unwrap(), wanted.split('/').next().unwrap());
    assert_eq!(value("PIDs").unwrap().as_array().unwrap().len(), 1);
    assert_eq!(value("DevicePolicy"), Some(json!("strict")));
    assert!(is_gone(&systemd));
}

#[test]
fn unit_is_started_and_stopped_once() {
    need!(is_root() && is_husk(), NEEDED);
    let (systemd, runtime) = (Systemd::new(Mood::Willing), Runtime::under_test());
    run(&systemd, &runtime, &bundle(&systemd, "exit 0")).succeeds();
    assert_eq!(methods(&systemd), all(&["StartTransientUnit", "StopUnit", "ResetFailedUnit"]));
}

#[test]
fn properties_in_annotations_reach_systemd() {
    need!(is_root() && is_husk(), NEEDED);
    let (systemd, runtime) = (Systemd::new(Mood::Willing), Runtime::under_test());
    let said = json!({
        "org.systemd.property.TimeoutStopUSec": "uint64 123",
        "org.systemd.property.After": "['a.service', 'b.service']"
    });
    run(&systemd, &runtime, &bundle(&systemd, "exit 0").with("/annotations", said)).succeeds();
    let calls = systemd.calls();
    let (_, asked) = calls.iter().find(|(member, _)| member == "StartTransientUnit").unwrap();
    assert_eq!(property(&asked[2], "TimeoutStopUSec"), Some(&json!(123)));
    assert_eq!(property(&asked[2], "After"), Some(&json!(["a.service", "b.service"])));
}

#[test]
fn failed_unit_is_reset_and_start_is_retried_once() {
    need!(is_root() && is_husk(), NEEDED);
    let (systemd, runtime) = (Systemd::new(Mood::HasFailedOne), Runtime::under_test());
    run(&systemd, &runtime, &bundle(&systemd, "exit 0")).succeeds();
    let tries =
        ["StartTransientUnit", "ResetFailedUnit", "StartTransientUnit", "StopUnit", "ResetFailedUnit"];
    assert_eq!(methods(&systemd), all(&tries));
    assert!(is_gone(&systemd));
}

#[test]
fn existing_unit_is_refused() {
    need!(is_root() && is_husk(), NEEDED);
    for verb in ["run", "create"] {
        let (systemd, runtime) = (Systemd::new(Mood::HasOne), Runtime::under_test());
        let bundle = bundle(&systemd, "exit 0");
        bundle.write();
        let seen = call(&systemd, &runtime, verb, &["--bundle", bundle.path().to_str().unwrap(), "c"]);
        seen.fails(1, "systemd: StartTransientUnit: it is so (org.freedesktop.systemd1.UnitExists)");
        assert!(runtime.is_empty());
        let tries = ["StartTransientUnit", "ResetFailedUnit", "StartTransientUnit"];
        assert_eq!(methods(&systemd), all(&tries), "the unit was not stopped");
    }
}

#[test]
fn running_unit_is_left_alone() {
    need!(is_root() && is_husk(), NEEDED);
    for verb in ["run", "create"] {
        let (systemd, runtime) = (Systemd::new(Mood::HasOne), Runtime::under_test());
        // An unrelated process is in the cgroup.
        let other = Inside::of(&systemd);
        let bundle = bundle(&systemd, "exit 0");
        bundle.write();
        let seen = call(&systemd, &runtime, verb, &["--bundle", bundle.path().to_str().unwrap(), "c"]);
        seen.fails(1, "container's cgroup is not empty: 1 process(es) found");
        assert!(runtime.is_empty() && methods(&systemd).is_empty());
        assert!(other.lives(), "the foreign process was killed");
    }
}

/// A process in the unit's cgroups, which are removed with it.
struct Inside<'s>(Child, &'s Systemd);

impl<'s> Inside<'s> {
    fn of(systemd: &'s Systemd) -> Self {
        let process = Command::new(guest()).arg("hang").stdin(Stdio::null()).spawn().unwrap();
        for directory in systemd.directories() {
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("cgroup.procs"), process.id().to_string()).unwrap();
        }
        Self(process, systemd)
    }

    fn lives(mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
        self.1.directories().iter().for_each(|directory| fs::remove_dir(directory).unwrap());
    }
}

#[test]
fn failed_job_is_an_error() {
    need!(is_root() && is_husk(), NEEDED);
    for result in ["failed", "timeout"] {
        let (systemd, runtime) = (Systemd::new(Mood::Ends(result)), Runtime::under_test());
        let seen = run(&systemd, &runtime, &bundle(&systemd, "exit 0"));
        seen.fails(1, &format!("systemd: unit {UNIT}: job {result}"));
        assert_eq!(methods(&systemd), all(&["StartTransientUnit", "ResetFailedUnit"]));
        assert!(is_gone(&systemd));
    }
}

#[test]
fn closed_bus_is_an_error() {
    need!(is_root() && is_husk(), NEEDED);
    let (systemd, runtime) = (Systemd::new(Mood::Leaves), Runtime::under_test());
    run(&systemd, &runtime, &bundle(&systemd, "exit 0")).fails(1, "talk to systemd: receive");
    assert!(is_gone(&systemd));
}

#[test]
fn field_that_makes_an_invalid_unit_name_is_reported() {
    need!(is_root() && is_husk(), NEEDED);
    let (systemd, runtime) = (Systemd::new(Mood::Willing), Runtime::under_test());
    let wrong = |path: &str| {
        let bundle = Bundle::running("exit 0").with("/linux/cgroupsPath", path.into());
        run(&systemd, &runtime, &bundle).fails(1, "linux.cgroupsPath");
    };
    wrong("/a/path");
    wrong("no-slice:husk:c");
    wrong("a.slice:husk:with/slash");
    assert_eq!(systemd.calls().len(), 0);
}

// systemd's own list of devices cannot exclude a device from an allowed range.
#[test]
fn device_rules_hold_with_and_without_a_systemd_property() {
    need!(is_root() && is_husk(), NEEDED);
    let device = json!([{ "path": "/dev/none", "type": "c", "major": 60, "minor": 1, "fileMode": 0o666 }]);
    let rule = |allow: bool, fields: Value| {
        let mut rule = fields;
        (rule["allow"], rule["access"]) = (allow.into(), "rwm".into());
        rule
    };
    let open = |rules: Value| {
        let (systemd, runtime) = (Systemd::new(Mood::Willing), Runtime::under_test());
        let bundle = bundle(&systemd, "cat /dev/none")
            .with("/linux/resources", json!({ "devices": rules }))
            .with("/linux/devices", device.clone());
        run(&systemd, &runtime, &bundle)
    };
    let this = || json!({ "type": "c", "major": 60, "minor": 1 });
    open(json!([rule(false, json!({}))])).fails(1, "Operation not permitted");
    open(json!([rule(false, json!({})), rule(true, this())])).fails(1, "No such device or address");
    // Every device except one.
    open(json!([rule(true, json!({})), rule(false, this())])).fails(1, "Operation not permitted");
}

#[test]
fn container_in_a_unit_can_be_limited_paused_and_killed() {
    need!(is_husk(), NEEDED);
    need!(crate::cgroups::has("pids"), "needs the pids controller");
    let (systemd, runtime) = (Systemd::new(Mood::Willing), Runtime::under_test());
    let bundle = bundle(&systemd, "hang").with("/linux/resources", json!({ "pids": { "limit": 20 } }));
    bundle.write();
    let path = bundle.path().to_str().unwrap();
    call(&systemd, &runtime, "run", &["--detach", "--bundle", path, "c"]).succeeds();
    let limit = || {
        let directories = systemd.directories();
        let file = directories.iter().map(|directory| directory.join("pids.max")).find(|file| file.exists());
        fs::read_to_string(file.unwrap()).unwrap().trim().to_owned()
    };
    assert_eq!(limit(), "20");
    call(&systemd, &runtime, "update", &["--pids-limit", "30", "c"]).succeeds();
    assert_eq!(limit(), "30");
    let calls = systemd.calls();
    let asked = |method| &calls.iter().find(|(member, _)| member == method).unwrap().1;
    assert_eq!(property(&asked("StartTransientUnit")[2], "TasksMax"), Some(&json!(20)));
    assert_eq!(property(&asked("SetUnitProperties")[2], "TasksMax"), Some(&json!(30)));
    // systemd does not manage the freezer of version 1.
    call(&systemd, &runtime, "pause", &["c"]).succeeds();
    assert_eq!(runtime.status(), "paused");
    call(&systemd, &runtime, "delete", &["--force", "c"]).succeeds();
    assert!(is_gone(&systemd) && runtime.is_empty());
    assert!(methods(&systemd).contains(&format!("StopUnit {UNIT}")));
}

#[test]
fn container_can_be_listed_and_deleted_without_the_bus() {
    need!(is_root() && is_husk(), NEEDED);
    need!(crate::cgroups::has("pids"), "needs the pids controller");
    let (systemd, runtime) = (Systemd::new(Mood::Willing), Runtime::under_test());
    let bundle = bundle(&systemd, "hang").with("/linux/resources", json!({ "pids": { "limit": 20 } }));
    bundle.write();
    let path = bundle.path().to_str().unwrap();
    let without = |verb: &str, words: &[&str]| {
        let mut command = runtime.command(verb);
        command.args(words).env("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/no/such/bus");
        runtime.detached(command)
    };
    let fails = |verb, words: &[&str]| without(verb, words).fails(1, "connect to systemd at /no/such/bus");
    fails("create", &["--systemd-cgroup", "--bundle", path, "c"]);
    assert!(is_gone(&systemd) && runtime.is_empty());
    call(&systemd, &runtime, "run", &["--detach", "--bundle", path, "c"]).succeeds();
    fails("update", &["--pids-limit", "30", "c"]);
    without("pause", &["c"]).succeeds();
    assert_eq!(runtime.status(), "paused");
    without("resume", &["c"]).succeeds();
    assert_eq!(runtime.status(), "running");
    // Without systemd its unit would be left behind.
    fails("delete", &["--force", "c"]);
    assert_eq!(runtime.status(), "stopped");
    call(&systemd, &runtime, "delete", &["c"]).succeeds();
    assert!(is_gone(&systemd) && runtime.is_empty());
}
