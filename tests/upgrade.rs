//! Containers that another version of husk created. `tests/upgrade` has records that husk 0.1 wrote, with other paths.

use crate::util::{Bundle, Runtime, ends, is_husk, is_root, need, until_gone};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

/// The first format of husk 0.1, in which steps are arrays, and its last.
const RECORDS: [&str; 2] = [include_str!("upgrade/0.1-first.json"), include_str!("upgrade/0.1-last.json")];

/// A bundle with the hooks of the kept records, and so with the same steps after `start`.
fn bundle() -> Bundle {
    let bundle = Bundle::running("hang");
    let start = json!({ "path": "/guest", "args": ["/guest", "exit", "0"] });
    let stop = json!({ "path": "/bin/touch", "args": ["touch", bundle.path().join("stopped")] });
    bundle.with("/hooks", json!({ "startContainer": [start], "poststop": [stop] }))
}

fn path(runtime: &Runtime) -> PathBuf {
    runtime.root().join("c/state.json")
}

fn record(runtime: &Runtime) -> Value {
    serde_json::from_slice(&fs::read(path(runtime)).unwrap()).unwrap()
}

/// Replaces the container's record by a kept one. Sets only what is true of this container alone: paths, process,
/// cgroup and numbers of steps.
fn make_older(runtime: &Runtime, bundle: &Bundle, kept: &str) {
    let own = record(runtime);
    let mut older: Value =
        serde_json::from_str(&kept.replace("/bundle", bundle.path().to_str().unwrap())).unwrap();
    assert_eq!(older.get("version"), None, "husk 0.1 wrote no version");
    for field in ["owner", "process", "cgroup", "namespaces"] {
        older[field] = own[field].clone();
    }
    for (step, own) in
        older["after_start"].as_array_mut().unwrap().iter_mut().zip(own["after_start"].as_array().unwrap())
    {
        let number = if step.is_array() { &mut step[0] } else { &mut step["step"] };
        *number = own["step"].clone();
    }
    let text = older.to_string();
    assert!(!text.contains("/bundle/") && !text.contains("husk-old"), "{text}");
    fs::write(path(runtime), text).unwrap();
}

fn pid(runtime: &Runtime) -> i32 {
    let state: Value = serde_json::from_str(&runtime.call("state", &["c"]).succeeds()).unwrap();
    i32::try_from(state["pid"].as_i64().unwrap()).unwrap()
}

#[test]
fn container_of_husk_0_1_is_seen_stopped_and_deleted() {
    need!(is_husk(), "the records are husk's");
    need!(is_root(), "root created the containers of the records");
    for kept in RECORDS {
        let bundle = bundle();
        let runtime = Runtime::started(&bundle);
        make_older(&runtime, &bundle, kept);
        let state: Value = serde_json::from_str(&runtime.call("state", &["c"]).succeeds()).unwrap();
        assert_eq!((&state["status"], &state["bundle"]), (&json!("running"), &json!(bundle.path())));
        assert_eq!(state["annotations"], json!({ "org.example.note": "kept" }));
        assert!(runtime.call("list", &[]).succeeds().contains("running"));
        runtime.call("exec", &["c", "/guest", "exit", "7"]).fails(7, "");
        runtime.call("ps", &["c"]).succeeds();
        let pid = pid(&runtime);
        runtime.call("kill", &["c", "KILL"]).succeeds();
        until_gone(pid);
        assert_eq!(runtime.status(), "stopped");
        runtime.call("delete", &["c"]).succeeds();
        assert!(bundle.path().join("stopped").exists(), "the recorded hook did not run");
        assert!(runtime.is_empty());
    }
}

#[test]
fn container_that_husk_0_1_created_is_started_and_deleted() {
    need!(is_husk(), "the records are husk's");
    need!(is_root(), "root created the containers of the records");
    for kept in RECORDS {
        let bundle = bundle();
        let runtime = Runtime::under_test();
        runtime.create(&bundle).succeeds();
        make_older(&runtime, &bundle, kept);
        assert_eq!(runtime.status(), "created");
        runtime.call("start", &["c"]).succeeds();
        assert_eq!(runtime.status(), "running");
        let pid = pid(&runtime);
        runtime.call("delete", &["--force", "c"]).succeeds();
        assert!(ends(pid), "process {pid} is left");
        assert!(runtime.is_empty());
    }
}

// If `delete --force` took such a record for an invalid one, it would remove it and leave the processes.
#[test]
fn container_of_a_later_version_is_left_alone() {
    need!(is_husk(), "the record is husk's");
    let bundle = bundle();
    let runtime = Runtime::started(&bundle);
    let own = record(&runtime);
    let pid = pid(&runtime);
    let version = own["version"].as_u64().unwrap();
    let mut later = own.clone();
    later["version"] = json!(version + 1);
    for later in [later, json!({ "version": version + 1, "nothing": "that is known" })] {
        fs::write(path(&runtime), later.to_string()).unwrap();
        let words = format!("has version {}, and this husk knows versions up to {version}", version + 1);
        let verbs: [(&str, &[&str], i32); 5] = [
            ("state", &["c"], 1),
            ("kill", &["c", "KILL"], 1),
            ("exec", &["c", "/guest", "exit", "0"], 255),
            ("delete", &["c"], 1),
            ("delete", &["--force", "c"], 1),
        ];
        for (verb, arguments, code) in verbs {
            runtime.call(verb, arguments).fails(code, &words);
        }
        runtime.call("list", &[]).says(&words);
    }
    fs::write(path(&runtime), own.to_string()).unwrap();
    assert_eq!(runtime.status(), "running");
    runtime.call("delete", &["--force", "c"]).succeeds();
    assert!(ends(pid), "process {pid} is left");
}
