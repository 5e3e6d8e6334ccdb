//! Messages about containers: their states, their records, and options that are checked against a container.

use super::List;
use crate::util::{Bundle, until_gone};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

/// Returns the state of the container `c`.
fn state(list: &List) -> Value {
    let output = list.command(&["state", "c"]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs a command that must succeed.
fn call(list: &List, words: &[&str]) {
    let mut command = list.command(words);
    // The container keeps these streams.
    let status = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).status();
    assert!(status.unwrap().success(), "{words:?}");
}

/// Each verb in each state of a container.
pub(super) fn verbs(list: &mut List) {
    let bundle = Bundle::running("wait");
    list.write(&bundle);
    let create = ["create", "--bundle", "{bundle}", "c"];
    list.explain("no container");
    for words in [
        &["start", "c"] as &[&str],
        &["state", "c"],
        &["kill", "c"],
        &["wait", "c"],
        &["ps", "c"],
        &["events", "c"],
        &["pause", "c"],
        &["resume", "c"],
        &["update", "c"],
        &["exec", "c", "/guest"],
        &["checkpoint", "c"],
        &["delete", "c"],
    ] {
        list.add(words);
    }
    call(list, &create);
    list.explain("created");
    for words in
        [&create as &[&str], &["run", "--bundle", "{bundle}", "c"], &["resume", "c"], &["checkpoint", "c"]]
    {
        list.add(words);
    }
    call(list, &["start", "c"]);
    list.explain("running");
    for words in [&["start", "c"] as &[&str], &["resume", "c"], &["delete", "c"]] {
        list.add(words);
    }
    let pid = state(list)["pid"].as_i64().unwrap();
    call(list, &["kill", "c", "KILL"]);
    until_gone(i32::try_from(pid).unwrap());
    list.explain("stopped");
    for words in [
        &["start", "c"] as &[&str],
        &["kill", "c"],
        &["kill", "--regex", "."],
        &["events", "c"],
        &["events", "--stats", "c"],
        &["pause", "c"],
        &["resume", "c"],
        &["update", "--pids-limit", "5", "c"],
        &["exec", "c", "/guest"],
        &["checkpoint", "c"],
    ] {
        list.add(words);
    }
    call(list, &["delete", "c"]);
}

/// Verbs that need a container which is not paused.
pub(super) fn paused(list: &mut List) {
    let bundle = Bundle::running("wait");
    list.write(&bundle);
    call(list, &["create", "--bundle", "{bundle}", "c"]);
    call(list, &["start", "c"]);
    call(list, &["pause", "c"]);
    for words in
        [&["start", "c"] as &[&str], &["pause", "c"], &["exec", "c", "/guest", "exit", "0"], &["delete", "c"]]
    {
        list.add(words);
    }
    call(list, &["delete", "--force", "c"]);
}

/// Verbs that need the container's cgroup.
pub(super) fn without_cgroup(list: &mut List) {
    let bundle = Bundle::running("wait");
    list.write(&bundle);
    call(list, &["--cgroup-manager", "disabled", "create", "--bundle", "{bundle}", "c"]);
    call(list, &["start", "c"]);
    for words in [
        &["ps", "c"] as &[&str],
        &["pause", "c"],
        &["update", "--pids-limit", "5", "c"],
        &["events", "--stats", "c"],
        &["exec", "--cgroup", "below", "c", "/guest", "exit", "0"],
    ] {
        list.add(words);
    }
    call(list, &["delete", "--force", "c"]);
}

/// Options that are checked against a running container.
pub(super) fn options(list: &mut List) {
    let bundle = Bundle::running("wait");
    list.write(&bundle);
    call(list, &["create", "--bundle", "{bundle}", "c"]);
    let other =
        Bundle::running("wait").with("/linux/cgroupsPath", bundle.config["linux"]["cgroupsPath"].clone());
    list.name(other.path(), "{other}");
    other.write();
    list.explain("another container has this cgroup");
    list.add(&["create", "--bundle", "{other}", "d"]);
    call(list, &["start", "c"]);
    fs::write(list.path("process.json"), json!({ "args": [], "cwd": "/" }).to_string()).unwrap();
    for words in [
        &["exec", "c"] as &[&str],
        &["exec", "--process", "no-such", "c"],
        &["exec", "--process", "process.json", "c"],
        &["exec", "--user", "", "c", "/guest"],
        &["exec", "--user", "nobody", "c", "/guest"],
        &["exec", "--user", "0:wheel", "c", "/guest"],
        &["exec", "--user", "4294967295", "c", "/guest"],
        &["exec", "--env", "A", "c", "/guest"],
        &["exec", "--cap", "CAP_NONSENSE", "c", "/guest"],
        &["exec", "--cwd", "here", "c", "/guest"],
        &["exec", "--cwd", "/no/such", "c", "/guest"],
        &["exec", "--cgroup", "../out", "c", "/guest"],
        &["exec", "--preserve-fds", "100", "c", "/guest"],
        &["exec", "--tty", "--detach", "c", "/guest"],
        &["exec", "--console-socket", "/no/such", "c", "/guest"],
        &["exec", "--pid-file", "/no/such/pid", "c", "/guest"],
        &["exec", "c", "no-such"],
        &["exec", "c", "/no/such"],
        &["exec", "c", "/proc"],
        &["update", "--kernel-memory", "1g", "c"],
        &["ps", "--format", "sideways", "c"],
        &["checkpoint", "--parent-path", "/absolute", "c"],
        &["checkpoint", "--parent-path", "../no-such", "c"],
    ] {
        list.add(words);
    }
    fs::create_dir(list.path("empty")).unwrap();
    for words in [["ps", "c"], ["checkpoint", "c"]] {
        let mut command = list.command(&words);
        command.env("PATH", list.path("empty"));
        list.add_command(&format!("{}, without programs of the host", words.join(" ")), command);
    }
    call(list, &["delete", "--force", "c"]);
}

/// Files in which husk keeps its state.
pub(super) fn files(list: &mut List) {
    let record = list.root().join("c/state.json");
    fs::create_dir_all(list.root().join("c")).unwrap();
    permit(list, 0o700);
    for text in ["", "{", r#"{"version":99}"#, "{}"] {
        fs::write(&record, text).unwrap();
        list.explain(&format!("the record is {text:?}"));
        list.add(&["state", "c"]);
    }
    list.add(&["list"]);
    fs::remove_file(&record).unwrap();
    fs::create_dir(&record).unwrap();
    list.explain("the record is a directory");
    list.add(&["state", "c"]);
    permit(list, 0o777);
    list.explain("others may write to the state directory");
    list.add(&["state", "c"]);
    fs::remove_dir_all(list.root()).unwrap();
    fs::write(list.root(), "").unwrap();
    list.explain("the state directory is a file");
    list.add(&["list"]);
    list.add(&["state", "c"]);
}

/// Sets the permissions of the directory for containers.
fn permit(list: &List, mode: u32) {
    fs::set_permissions(list.root(), fs::Permissions::from_mode(mode)).unwrap();
}
