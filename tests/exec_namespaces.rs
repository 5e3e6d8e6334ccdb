//! `exec` in containers that share namespaces with others or have a user namespace.

use crate::namespaces::{Holder, bundle, least, owned_by};
use crate::util::{Runtime, is_root, need};
use husk_spawn::Namespaces;
use serde_json::json;
use std::fs;

/// Asserts that a process of `exec` has the same namespaces as the container's first process.
#[track_caller]
fn is_inside(runtime: &Runtime) {
    let state: serde_json::Value = serde_json::from_str(&runtime.call("state", &["c"]).succeeds()).unwrap();
    let found = runtime.call("exec", &["c", "/guest", "namespaces"]).succeeds();
    for (found, name) in found.lines().zip(["user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"]) {
        let first = fs::read_link(format!("/proc/{}/ns/{name}", state["pid"])).unwrap();
        assert_eq!(found, first.display().to_string());
    }
}

#[test]
fn exec_ids_are_those_of_the_user_namespace() {
    need!(is_root(), "needs root to map the ids of others");
    let holder = Holder::of(Namespaces::EMPTY);
    let map = json!([{ "containerID": 0, "hostID": 100_000, "size": 1000 }]);
    let bundle = bundle("wait", Namespaces::ALL, Namespaces::EMPTY, &holder);
    let bundle = bundle.with("/linux/uidMappings", map.clone()).with("/linux/gidMappings", map);
    let sets = json!({ "bounding": ["CAP_CHOWN"], "permitted": ["CAP_CHOWN"], "effective": ["CAP_CHOWN"] });
    let bundle = bundle.with("/process/capabilities", sets);
    fs::create_dir(bundle.rootfs().join("etc")).unwrap();
    fs::write(bundle.rootfs().join("etc/passwd"), "root::0:0::/root:\nwho:x:7:8::/home/who:/bin/sh\n")
        .unwrap();
    let bundle = owned_by(bundle, 100_000);
    let runtime = Runtime::started(&bundle);
    is_inside(&runtime);
    let says = |options: &[&str], words: &str, wanted: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        runtime.call("exec", &[options, &["c", "/guest"], &words].concat()).prints(wanted);
    };
    says(&[], "status Uid", "0\t0\t0\t0");
    says(&[], "status CapEff", "0000000000000001");
    says(&[], "status CapBnd", "0000000000000001");
    says(&[], "env", "HOME=/root");
    let words = runtime.call("exec", &["c", "/guest", "cat", "/proc/self/uid_map"]).succeeds();
    assert_eq!(words.split_whitespace().collect::<Vec<_>>(), ["0", "100000", "1000"]);
    let user = ["--user", "7:8"];
    says(&user, "status Uid", "7\t7\t7\t7");
    says(&user, "status Gid", "8\t8\t8\t8");
    says(&user, "env", "HOME=/home/who");
    says(&["--user", "7", "--additional-gids", "5"], "status Groups", "5");
    // User 5000 is not mapped in the container's user namespace.
    runtime.call("exec", &["--user", "5000", "c", "/guest", "exit", "0"]).fails(255, "invalid argument");
}

#[test]
fn exec_joins_namespaces_that_the_container_joined() {
    let joined = least() | Namespaces::PID;
    let holder = Holder::of(joined);
    let bundle = bundle("wait", Namespaces::MOUNT, joined, &holder);
    let runtime = Runtime::started(&bundle);
    is_inside(&runtime);
    let found = runtime.call("exec", &["c", "/guest", "read-link", "/proc/self/ns/pid"]).succeeds();
    assert_eq!(found.trim_end(), holder.link("pid"));
}

#[test]
fn exec_joins_the_containers_time_namespace() {
    let new = least() | Namespaces::MOUNT | Namespaces::PID | Namespaces::TIME;
    let holder = Holder::of(least());
    let bundle = bundle("wait", new, Namespaces::EMPTY, &holder);
    let bundle = bundle.with("/linux/timeOffsets", json!({ "boottime": { "secs": 1000 } }));
    let runtime = Runtime::started(&bundle);
    is_inside(&runtime);
    let offsets = runtime.call("exec", &["c", "/guest", "cat", "/proc/self/timens_offsets"]).succeeds();
    let boottime = offsets.lines().find(|line| line.starts_with("boottime")).unwrap();
    assert_eq!(boottime.split_whitespace().collect::<Vec<_>>(), ["boottime", "1000", "0"]);
}
