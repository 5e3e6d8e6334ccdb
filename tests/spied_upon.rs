//! A process that `exec` brings into a container, and one that lives there, is of the same user, and wants all that
//! it can get of it.

use crate::util::{Bundle, Runtime, is_husk, is_root, need};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};

/// Everything that is had of 50 processes by one that has these capabilities, beside what is had of the program.
fn had(bundle: Bundle, capabilities: &[&str]) -> Vec<String> {
    let sets = json!({ "bounding": capabilities, "permitted": capabilities, "effective": capabilities });
    let bundle = bundle.with("/process/capabilities", sets).with("/process/env", json!(["OWN=1", "HOME=/"]));
    let runtime = Runtime::under_test();
    let mut spy = runtime.running(&bundle);
    let mut lines = BufReader::new(spy.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "begun");
    for _ in 0..50 {
        runtime.call("exec", &["c", "/guest", "exit", "0"]).succeeds();
    }
    // One that stays, so that it is known to look, and to find what there is to be found.
    runtime.call("exec", &["--detach", "c", "/guest", "hang"]).succeeds();
    let mut had: BTreeSet<String> = BTreeSet::new();
    let guests = ["exe /guest", "maps /guest", "memory of the guest", "environ OWN=1", "environ HOME=/"];
    while !guests.iter().all(|line| had.contains(*line)) {
        had.insert(lines.next().expect("the spy lives").unwrap());
    }
    runtime.call("delete", &["--force", "c"]).succeeds();
    had.extend(lines.map(Result::unwrap));
    spy.wait().unwrap();
    assert!(had.remove("there"));
    had.into_iter().filter(|line| !guests.contains(&line.as_str())).collect()
}

/// The spy, in a user namespace if it is asked for.
fn spy(with_users: bool) -> Bundle {
    let bundle = Bundle::running("spy");
    if !is_root() || !with_users {
        return bundle;
    }
    let namespaces: Value =
        ["user", "pid", "ipc", "uts", "mount"].into_iter().map(|kind| json!({ "type": kind })).collect();
    let map = json!([{ "containerID": 0, "hostID": 0, "size": 1000 }]);
    bundle
        .with("/linux/namespaces", namespaces)
        .with("/linux/uidMappings", map.clone())
        .with("/linux/gidMappings", map)
}

#[test]
fn nothing_is_had_of_it_before_it_is_the_program() {
    need!(is_husk(), "what runc lets be seen is runc's");
    assert_eq!(had(spy(false), &[]), [""; 0]);
}

#[test]
fn nor_by_one_that_may_trace_everything_in_its_user_namespace() {
    need!(is_husk(), "what runc lets be seen is runc's");
    assert_eq!(had(spy(true), &["CAP_SYS_PTRACE"]), [""; 0]);
}

// Who has CAP_SYS_PTRACE over the host is kept from nothing by being undumpable, and may look into what is about to
// become the program: a copy of our memory, with our environment. (SECURITY.md, "What is not a boundary".)
#[test]
fn one_that_may_trace_everything_on_the_host_finds_no_file_of_it_open() {
    need!(is_husk(), "what runc lets be seen is runc's");
    need!(is_root(), "needs root, who may trace others");
    let found = had(spy(false), &["CAP_SYS_PTRACE"]);
    let mut descriptors =
        found.iter().filter_map(|line| line.strip_prefix("fd ").or_else(|| line.strip_prefix("stolen ")));
    // The program itself is looked at before it begins, and there is a socket to tell how that went.
    assert!(descriptors.all(|target| target == "/guest" || target.starts_with("socket:")), "{found:?}");
    // Our own binary, by no name that leads to it.
    let exe: Vec<_> = found.iter().filter(|line| line.starts_with("exe ")).collect();
    assert!(exe.is_empty() || exe == ["exe /"], "{found:?}");
}
