//! Checks waiting for the end of a container, and the status that `wait` prints.
//!
//! `wait` does not run in the parent of the container's process, so it prints what the kernel tells other processes.
//! The tests see that a wait has begun by its pidfd.

use crate::util::{Bundle, Runtime, is_husk, need, until_gone};
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Stdio};

/// Starts `husk wait`, and returns once that has opened its pidfd.
fn waiting(runtime: &Runtime) -> Child {
    let mut child = runtime.spawn("wait", &["c"], Stdio::piped());
    let directory = format!("/proc/{}/fd", child.id());
    let is_pidfd = |entry: fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|target| target.to_string_lossy().contains("pidfd"))
    };
    // The kernel does not announce that a descriptor was opened, so this polls.
    while fs::read_dir(&directory).is_ok_and(|mut entries| !entries.any(|entry| entry.is_ok_and(is_pidfd))) {
        assert_eq!(child.try_wait().unwrap(), None, "wait does not block");
        std::thread::yield_now();
    }
    child
}

fn printed(mut child: Child) -> String {
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success());
    text
}

fn pid(runtime: &Runtime) -> i32 {
    let state: Value = serde_json::from_str(&runtime.call("state", &["c"]).succeeds()).unwrap();
    i32::try_from(state["pid"].as_i64().unwrap()).unwrap()
}

/// Returns whether this kernel tells other processes than the parent how a process ended (`PIDFD_INFO_EXIT`).
fn kernel_tells() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(15))
}

#[test]
fn wait_returns_the_exit_code_to_other_processes_than_the_parent() {
    need!(is_husk(), "other runtimes have no wait command");
    need!(kernel_tells(), "needs a kernel that reports exit codes to other processes than the parent");
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("exit 7");
    runtime.create(&bundle).succeeds();
    // This wait begins before the container is started.
    let waits = waiting(&runtime);
    runtime.call("start", &["c"]).succeeds();
    assert_eq!(printed(waits), "7\n");
}

#[test]
fn exit_code_of_a_killed_container_is_128_plus_signal() {
    need!(is_husk(), "other runtimes have no wait command");
    need!(kernel_tells(), "needs a kernel that reports exit codes to other processes than the parent");
    let runtime = Runtime::started(&Bundle::running("wait"));
    let all = [waiting(&runtime), waiting(&runtime)];
    runtime.call("kill", &["c", "KILL"]).succeeds();
    for waits in all {
        assert_eq!(printed(waits), "137\n");
    }
}

#[test]
fn foreground_container_can_be_waited_for_by_others() {
    need!(is_husk(), "other runtimes have no wait command");
    need!(kernel_tells(), "needs a kernel that reports exit codes to other processes than the parent");
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("wait");
    let mut running = runtime.running(&bundle);
    let mut said = String::new();
    BufReader::new(running.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let waits = waiting(&runtime);
    runtime.call("kill", &["c", "KILL"]).succeeds();
    assert_eq!(running.wait().unwrap().code(), Some(137));
    assert_eq!(printed(waits), "137\n");
}

#[test]
fn wait_returns_the_code_of_a_container_that_ended_under_run() {
    need!(is_husk(), "other runtimes have no wait command");
    let runtime = Runtime::under_test();
    runtime.run_with(&Bundle::running("exit 7"), &["--keep"]);
    runtime.call("wait", &["c"]).prints("7");
}

#[test]
fn wait_says_unknown_if_the_code_was_not_recorded() {
    need!(is_husk(), "other runtimes have no wait command");
    let runtime = Runtime::started(&Bundle::running("wait"));
    let pid = pid(&runtime);
    runtime.call("kill", &["c", "KILL"]).succeeds();
    until_gone(pid);
    // The parent of the process may or may not have reaped it.
    let said = runtime.call("wait", &["c"]).succeeds();
    assert!(said == "unknown\n" || said == "137\n", "{said}");
    runtime.call("delete", &["c"]).succeeds();
    runtime.call("wait", &["c"]).fails(1, "container does not exist");
}
