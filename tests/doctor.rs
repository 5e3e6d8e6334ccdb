//! Findings of `husk doctor` about this machine.

use crate::util::{Runtime, Seen, is_husk, is_root, need};
use husk_spawn::{Command, IdMap, Namespaces};
use serde_json::Value;

/// Returns the topic and the verdict of each finding.
fn findings(text: &str) -> Vec<(String, String)> {
    let found: Vec<Value> = serde_json::from_str(text).unwrap();
    let word = |finding: &Value, key: &str| finding[key].as_str().unwrap().to_owned();
    found.iter().map(|finding| (word(finding, "topic"), word(finding, "verdict"))).collect()
}

#[test]
fn machine_that_runs_these_tests_has_no_problems() {
    need!(is_husk(), "other runtimes have no doctor command");
    let found = findings(&Runtime::under_test().typed(&["doctor", "--format", "json"]).succeeds());
    let topics: Vec<_> = found.iter().map(|(topic, _)| topic.as_str()).collect();
    for topic in ["kernel", "user namespaces", "cgroups", "seccomp", "criu"] {
        assert!(topics.contains(&topic), "{topics:?}");
    }
    assert_eq!(topics.contains(&"namespaces"), is_root(), "root needs no user namespace");
}

#[test]
fn table_matches_json_and_has_no_colours_in_a_file() {
    need!(is_husk(), "other runtimes have no doctor command");
    let runtime = Runtime::under_test();
    let found = findings(&runtime.typed(&["doctor", "--format", "json"]).succeeds());
    let table = runtime.typed(&["doctor"]).succeeds();
    assert!(!table.contains('\x1b'), "{table}");
    for (topic, verdict) in found {
        let is_row = |line: &str| {
            line.strip_prefix(&verdict).is_some_and(|rest| rest.trim_start().starts_with(&topic))
        };
        assert!(table.lines().any(is_row), "{verdict} {topic}\n{table}");
    }
    assert!(table.ends_with("can run containers here\n"), "{table}");
}

/// Runs the doctor in a new user namespace that permits no further user namespaces.
fn switched_off(map: IdMap, become_user: &str) -> Seen {
    let script =
        format!("echo 0 >/proc/sys/user/max_user_namespaces && exec {become_user} \"$0\" doctor -f json");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_husk")]).new_namespaces(Namespaces::USER);
    let output = command.uid_map(&[map]).gid_map(&[map]).output().unwrap();
    Seen(std::process::Output { status: output.status, stdout: output.stdout, stderr: output.stderr })
}

/// Asserts the verdict on user namespaces, the suggested sysctl and the exit code.
#[track_caller]
fn finds(seen: &Seen, verdict: &str) {
    let text = String::from_utf8_lossy(&seen.0.stdout).into_owned();
    assert!(
        text.contains("sysctl -w user.max_user_namespaces"),
        "{text}{}",
        String::from_utf8_lossy(&seen.0.stderr)
    );
    let found = findings(&text);
    assert!(found.contains(&("user namespaces".into(), verdict.into())), "{found:?}");
    let is_ill = found.iter().any(|(_, verdict)| verdict == "problem");
    assert_eq!(seen.0.status.code(), Some(i32::from(is_ill)));
}

#[test]
fn disabled_user_namespaces_are_a_warning_for_root() {
    need!(is_husk(), "other runtimes have no doctor command");
    let uid = rustix::process::geteuid().as_raw();
    need!(uid == rustix::process::getegid().as_raw(), "needs equal user and group ids");
    finds(&switched_off(IdMap { inside: 0, outside: uid, count: 1 }, ""), "warning");
}

#[test]
fn disabled_user_namespaces_are_a_problem_for_users() {
    need!(is_husk(), "other runtimes have no doctor command");
    need!(is_root(), "needs root to change the user");
    let all = IdMap { inside: 0, outside: 0, count: 65536 };
    finds(&switched_off(all, "setpriv --reuid 1000 --regid 1000 --clear-groups"), "problem");
}
