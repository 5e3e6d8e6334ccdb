//! Lets a process in a container spy on processes that `exec` brings in. Both run as the same user, and the spy takes
//! all that it can get.

use crate::util::{Bundle, Runtime, guest, is_husk, is_root, need};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::ChildStdout;

/// How many processes `exec` brings in, one after the other.
fn comers() -> usize {
    env::var("SPIED_UPON").map_or(100, |count| count.parse().expect("SPIED_UPON is a number"))
}

/// Returns everything that the spy gets from these processes, except what belongs to the program.
fn had(bundle: &Bundle) -> Vec<String> {
    let runtime = Runtime::under_test();
    let mut spy = runtime.running(bundle);
    let mut lines = BufReader::new(spy.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "begun");
    let mut had: BTreeSet<String> = BTreeSet::new();
    for _ in 0..comers() {
        let seen = runtime.call("exec", &["c", "/guest", "exit", "0"]);
        if !seen.0.status.success() {
            seen.fails(255, "the container's process made a request that is not in its plan");
            had.insert("a word".to_owned());
        }
    }
    // One process stays. It proves that the spy looks, and that it finds what there is to find.
    while !runtime.call("exec", &["--detach", "c", "/guest", "hang"]).0.status.success() {}
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

/// Returns a bundle that runs the spy with these capabilities, in a user namespace if root asks for one.
fn spy(with_users: bool, capabilities: &[&str]) -> Bundle {
    let sets = json!({ "bounding": capabilities, "permitted": capabilities, "effective": capabilities });
    let bundle = Bundle::running("spy").with("/process/capabilities", sets);
    let bundle = bundle.with("/process/env", json!(["OWN=1", "HOME=/"]));
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
    assert_eq!(had(&spy(false, &[])), [""; 0]);
}

#[test]
fn nor_by_one_that_may_trace_everything_in_its_user_namespace() {
    need!(is_husk(), "what runc lets be seen is runc's");
    assert_eq!(had(&spy(true, &["CAP_SYS_PTRACE"])), [""; 0]);
}

// The spy may take a full socket from a process whose parent no longer reads it. By then the spy has stopped the owner,
// so if it blocked on the socket, both would hang forever.
#[test]
fn the_spy_waits_for_no_socket_that_is_full() {
    need!(is_husk(), "tests the guest");
    let (runtime, bundle) = (Runtime::under_test(), spy(false, &[]));
    let mut spy = runtime.running(&bundle);
    let mut said = BufReader::new(spy.stdout.take().unwrap());
    assert_eq!(next_line(&mut said), "begun\n");
    runtime.call("exec", &["--detach", "c", "/guest", "full-socket"]).succeeds();
    while !next_line(&mut said).starts_with("stolen socket:") {}
    runtime.call("delete", &["--force", "c"]).succeeds();
    spy.wait().unwrap();
}

/// Reads the next line, and fails if none comes within 30 seconds.
fn next_line(said: &mut BufReader<ChildStdout>) -> String {
    if said.buffer().is_empty() {
        let most = Timespec { tv_sec: 30, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(said.get_ref(), PollFlags::IN)], Some(&most)).unwrap();
        assert_eq!(ready, 1, "it says nothing more");
    }
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    line
}

// Being undumpable does not protect a process from one with CAP_SYS_PTRACE over the host. The spy may read what is
// about to become the program: a copy of husk's memory (SECURITY.md, "What is not a boundary").
#[test]
fn one_that_may_trace_everything_on_the_host_finds_no_file_of_it_open() {
    need!(is_husk(), "what runc lets be seen is runc's");
    need!(is_root(), "needs root, who may trace others");
    let bundle = spy(false, &["CAP_SYS_PTRACE"]);
    let log = bundle.rootfs().join("log");
    fs::write(&log, "").unwrap();
    let hook = json!([{ "path": guest(), "args": ["guest", "hook", "createRuntime", log] }]);
    let bundle = bundle.with("/hooks", json!({ "createRuntime": hook }));
    let found = had(&bundle);
    // Messages that the spy sends on behalf of a process cause no action, such as hooks on the host or sources of
    // mounts.
    assert_eq!(fs::read_to_string(&log).unwrap().lines().count(), 1, "{found:?}");
    let mut descriptors =
        found.iter().filter_map(|line| line.strip_prefix("fd ").or_else(|| line.strip_prefix("stolen ")));
    // The spy may see the program, which husk opens before executing it, and the socket that reports the result.
    assert!(descriptors.all(|target| target == "/guest" || target.starts_with("socket:")), "{found:?}");
    // Of husk's environment the spy sees only the variables that husk reads, and no others of the caller's.
    let mut variables = found.iter().filter_map(|line| line.strip_prefix("environ "));
    let ours = ["PATH=", "LISTEN_", "XDG_RUNTIME_DIR=", "DBUS_"];
    assert!(variables.all(|variable| ours.iter().any(|ours| variable.starts_with(ours))), "{found:?}");
    // The spy may see husk's own binary, but not a path that leads to it.
    let exe: Vec<_> = found.iter().filter(|line| line.starts_with("exe ")).collect();
    assert!(exe.is_empty() || exe == ["exe /"], "{found:?}");
}
