//! Lets a process in a container trace the processes that `exec` starts there. Both run as the same user, and the
//! tracer takes everything that it can get.

use crate::util::{Bundle, Runtime, guest, is_husk, is_root, need};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::ChildStdout;

/// How many processes `exec` starts, one after another.
fn joining_processes() -> usize {
    env::var("TRACED").map_or(100, |count| count.parse().expect("TRACED is a number"))
}

/// Returns everything that the tracer gets from these processes, except what belongs to the program.
fn obtained(bundle: &Bundle) -> Vec<String> {
    let runtime = Runtime::under_test();
    let mut tracer = runtime.running(bundle);
    let mut lines = BufReader::new(tracer.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "begun");
    let mut obtained: BTreeSet<String> = BTreeSet::new();
    for _ in 0..joining_processes() {
        let seen = runtime.call("exec", &["c", "/guest", "exit", "0"]);
        if !seen.0.status.success() {
            seen.fails(255, "the container's process made a request that is not in its plan");
            obtained.insert("a word".to_owned());
        }
    }
    // One process stays. It proves that the tracer looks, and that it finds what there is to find.
    while !runtime.call("exec", &["--detach", "c", "/guest", "hang"]).0.status.success() {}
    let guests = ["exe /guest", "maps /guest", "memory of the guest", "environ OWN=1", "environ HOME=/"];
    while !guests.iter().all(|line| obtained.contains(*line)) {
        obtained.insert(lines.next().expect("output of the tracer").unwrap());
    }
    runtime.call("delete", &["--force", "c"]).succeeds();
    obtained.extend(lines.map(Result::unwrap));
    tracer.wait().unwrap();
    assert!(obtained.remove("there"));
    obtained.into_iter().filter(|line| !guests.contains(&line.as_str())).collect()
}

/// Returns a bundle that runs the tracer with these capabilities, in a user namespace if root asks for one.
fn tracer(with_users: bool, capabilities: &[&str]) -> Bundle {
    let sets = json!({ "bounding": capabilities, "permitted": capabilities, "effective": capabilities });
    let bundle = Bundle::running("trace").with("/process/capabilities", sets);
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
fn tracer_in_the_container_obtains_nothing_before_exec() {
    need!(is_husk(), "runc exposes other information");
    assert_eq!(obtained(&tracer(false, &[])), [""; 0]);
}

#[test]
fn tracer_with_cap_sys_ptrace_obtains_nothing_before_exec() {
    need!(is_husk(), "runc exposes other information");
    assert_eq!(obtained(&tracer(true, &["CAP_SYS_PTRACE"])), [""; 0]);
}

// The tracer may take a full socket from a process whose parent no longer reads it. By then the tracer has stopped the
// owner, so if it blocked on the socket, both would hang forever.
#[test]
fn tracer_does_not_block_on_a_full_socket() {
    need!(is_husk(), "tests the guest");
    let (runtime, bundle) = (Runtime::under_test(), tracer(false, &[]));
    let mut tracer = runtime.running(&bundle);
    let mut said = BufReader::new(tracer.stdout.take().unwrap());
    assert_eq!(next_line(&mut said), "begun\n");
    runtime.call("exec", &["--detach", "c", "/guest", "full-socket"]).succeeds();
    while !next_line(&mut said).starts_with("stolen socket:") {}
    runtime.call("delete", &["--force", "c"]).succeeds();
    tracer.wait().unwrap();
}

/// Reads the next line, and fails if none comes within 30 seconds.
fn next_line(said: &mut BufReader<ChildStdout>) -> String {
    if said.buffer().is_empty() {
        let most = Timespec { tv_sec: 30, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(said.get_ref(), PollFlags::IN)], Some(&most)).unwrap();
        assert_eq!(ready, 1, "the tracer printed nothing for 30 seconds");
    }
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    line
}

// Being undumpable does not protect a process from one with CAP_SYS_PTRACE over the host. The tracer may read what is
// about to become the program: a copy of husk's memory (SECURITY.md, "What is not a boundary").
#[test]
fn tracer_of_the_whole_host_finds_no_open_file_of_the_runtime() {
    need!(is_husk(), "runc exposes other information");
    need!(is_root(), "needs root to trace other processes");
    let bundle = tracer(false, &["CAP_SYS_PTRACE"]);
    let log = bundle.rootfs().join("log");
    fs::write(&log, "").unwrap();
    let hook = json!([{ "path": guest(), "args": ["guest", "hook", "createRuntime", log] }]);
    let bundle = bundle.with("/hooks", json!({ "createRuntime": hook }));
    let found = obtained(&bundle);
    // Messages that the tracer sends on behalf of a process cause no action, such as hooks on the host or sources of
    // mounts.
    assert_eq!(fs::read_to_string(&log).unwrap().lines().count(), 1, "{found:?}");
    let mut descriptors =
        found.iter().filter_map(|line| line.strip_prefix("fd ").or_else(|| line.strip_prefix("stolen ")));
    // The tracer may see the program, which husk opens before executing it, and the socket that reports the result.
    assert!(descriptors.all(|target| target == "/guest" || target.starts_with("socket:")), "{found:?}");
    // Of husk's environment the tracer sees only the variables that husk reads, and no others of the caller's.
    let mut variables = found.iter().filter_map(|line| line.strip_prefix("environ "));
    let ours = ["PATH=", "LISTEN_", "XDG_RUNTIME_DIR=", "DBUS_"];
    assert!(variables.all(|variable| ours.iter().any(|ours| variable.starts_with(ours))), "{found:?}");
    // The tracer may see husk's own binary, but not a path that leads to it.
    let exe: Vec<_> = found.iter().filter(|line| line.starts_with("exe ")).collect();
    assert!(exe.is_empty() || exe == ["exe /"], "{found:?}");
}
