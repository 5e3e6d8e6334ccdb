//! Checks resource limits in a user namespace, where a process may not raise the limits that it inherited.

use crate::util::{Bundle, Runtime, is_husk, is_root, need};
use serde_json::json;
use std::process::Command;

/// Returns a bundle that runs the guest in a user namespace with this limit of open files. Its root is the test's user.
fn with_limit(soft: u64, hard: u64) -> Bundle {
    let limits = json!([{ "type": "RLIMIT_NOFILE", "soft": soft, "hard": hard }]);
    let bundle = Bundle::running("cat /proc/self/limits").with("/process/rlimits", limits);
    if !is_root() {
        return bundle;
    }
    let namespaces = ["user", "pid", "ipc", "uts", "mount", "network"];
    let map = json!([{ "containerID": 0, "hostID": 0, "size": 1000 }]);
    bundle
        .with("/linux/namespaces", namespaces.into_iter().map(|kind| json!({ "type": kind })).collect())
        .with("/linux/uidMappings", map.clone())
        .with("/linux/gidMappings", map)
}

/// Runs a bundle under a runtime whose own limits this shell command has set.
fn under(limits: &str, bundle: &Bundle) -> crate::util::Seen {
    Runtime::under_test().through(&format!("{limits} && exec \"$@\""), "run", bundle, &[])
}

fn open_files(limits: &str) -> Vec<&str> {
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("the limit");
    line.split_whitespace().skip(3).take(2).collect()
}

#[test]
fn rlimit_below_the_inherited_one_is_set() {
    let ours = "ulimit -S -n 50 && ulimit -H -n 100";
    for (soft, hard) in [(20, 30), (40, 100), (100, 100)] {
        let limits = under(ours, &with_limit(soft, hard)).succeeds();
        assert_eq!(open_files(&limits), [soft.to_string(), hard.to_string()]);
    }
}

#[test]
fn rlimit_above_the_inherited_one_needs_privileges() {
    let ours = "ulimit -S -n 50 && ulimit -H -n 100";
    let may_raise = Command::new("sh").args(["-c", &format!("{ours} && ulimit -H -n 200")]).output();
    let seen = under(ours, &with_limit(60, 200));
    if may_raise.expect("a shell").status.success() {
        assert_eq!(open_files(&seen.succeeds()), ["60", "200"]);
    } else {
        // A caller without the privilege gets an error that names the field.
        let words = "process.rlimits[0]: rlimit nofile 60 200: operation not permitted";
        seen.fails(1, if is_husk() { words } else { "operation not permitted" });
        need!(false, "needs CAP_SYS_RESOURCE to see a limit raised");
    }
}
