//! `exec`: another process in a running container.

use crate::util::{Bundle, Runtime, is_husk, is_root, need};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

/// Asserts what the guest prints for these words, run by `exec` in a new container.
#[track_caller]
fn says(bundle: &Bundle, options: &[&str], words: &str, wanted: &str) {
    let runtime = Runtime::started(bundle);
    let mut arguments = options.to_vec();
    arguments.extend(["c", "/guest"]);
    arguments.extend(words.split_whitespace());
    runtime.call("exec", &arguments).prints(wanted);
}

#[test]
fn exec_returns_the_programs_exit_code_or_255() {
    let bundle = Bundle::running("wait");
    let runtime = Runtime::started(&bundle);
    let exec = |words: &[&str]| runtime.call("exec", words);
    assert_eq!(exec(&["c", "/guest", "exit", "7"]).0.status.code(), Some(7));
    exec(&["c", "/missing"]).fails(255, "o such file or directory");
    exec(&["c"]).fails(255, if is_husk() { "PROGRAM: is missing" } else { "empty" });
    exec(&["none", "/guest", "exit", "0"]).fails(255, "container does not exist");
}

// The process runs on these processors until it is in the container's cgroup. runc's tests look for them in the debug
// log.
#[test]
fn exec_runs_on_the_requested_processors() {
    let bundle = Bundle::running("wait");
    let runtime = Runtime::started(&bundle);
    let file = bundle.path().join("process.json");
    let exec = |affinity: Value| {
        let process = json!({ "args": ["/guest", "status", "Cpus_allowed_list"], "cwd": "/",
            "user": { "uid": 0, "gid": 0 }, "execCPUAffinity": affinity });
        fs::write(&file, process.to_string()).unwrap();
        let root = runtime.root().to_str().unwrap();
        let words = ["--debug", "--root", root, "exec", "--process", file.to_str().unwrap(), "c"];
        runtime.typed(&words)
    };
    let seen = exec(json!({ "initial": "0" }));
    seen.prints("0");
    seen.says(": affinity: 0x1");
    let seen = exec(json!({ "initial": "60000" }));
    seen.fails(255, "nvalid argument");
    if is_husk() {
        seen.says("process.execCPUAffinity.initial: sched_setaffinity: invalid argument");
    }
}

#[test]
fn invalid_user_id_is_refused() {
    need!(is_husk(), "runc truncates numbers, so that 4294967296 is root");
    let bundle = Bundle::running("wait");
    let runtime = Runtime::started(&bundle);
    for user in ["4294967296", "4294967295", "-1", "1:-1", "0x1", ""] {
        let seen = runtime.call("exec", &["--user", user, "c", "/guest", "exit", "0"]);
        assert_eq!(seen.0.status.code(), Some(255), "{user}");
    }
}

#[test]
fn exec_in_a_stopped_container_is_refused() {
    let runtime = Runtime::under_test();
    runtime.run_with(&Bundle::running("exit 0"), &["--keep"]);
    runtime.call("exec", &["c", "/guest", "exit", "0"]).fails(255, "cannot exec in a stopped container");
}

#[test]
fn exec_runs_in_the_containers_namespaces() {
    let bundle = Bundle::running("wait");
    let runtime = Runtime::started(&bundle);
    for kind in ["pid", "mnt", "net", "ipc", "uts", "user", "cgroup"] {
        let link = |process: &str| {
            let path = format!("/proc/{process}/ns/{kind}");
            runtime.call("exec", &["c", "/guest", "read-link", &path]).succeeds()
        };
        assert_eq!(link("self"), link("1"), "{kind}");
    }
}

// Process files of engines say how to confine the process; handwritten files leave most of it out.
#[test]
fn process_file_without_confinement_inherits_the_containers() {
    let capabilities =
        json!({ "bounding": ["CAP_CHOWN"], "permitted": ["CAP_CHOWN"], "effective": ["CAP_CHOWN"] });
    let bundle = Bundle::running("wait").with("/process/capabilities", capabilities);
    let runtime = Runtime::started(&bundle);
    let exec = |words: &str| {
        let args: Vec<_> = ["/guest"].into_iter().chain(words.split(' ')).collect();
        let file = bundle.path().join("process.json");
        let process = json!({ "args": args, "cwd": "/", "user": { "uid": 0, "gid": 0 } });
        fs::write(&file, process.to_string()).unwrap();
        runtime.call("exec", &["--process", file.to_str().unwrap(), "c"]).succeeds()
    };
    for line in ["CapBnd", "CapPrm", "CapEff"] {
        assert_eq!(exec(&format!("status {line}")).trim(), "0000000000000001", "{line}");
    }
}

#[test]
fn exec_has_the_containers_capabilities() {
    let sets = json!({ "bounding": ["CAP_CHOWN"], "permitted": ["CAP_CHOWN"], "effective": ["CAP_CHOWN"] });
    let bundle = Bundle::running("wait").with("/process/capabilities", sets);
    says(&bundle, &[], "status CapBnd", "0000000000000001");
    says(&bundle, &[], "status CapEff", "0000000000000001");
    says(&bundle, &[], "status CapInh", "0000000000000000");
    says(&bundle, &["--cap", "CAP_KILL"], "status CapEff", "0000000000000021");
    says(&bundle, &["--cap", "CAP_KILL"], "status CapInh", "0000000000000000");
    says(&bundle, &[], "status NoNewPrivs", "1");
    says(&bundle, &[], "status SigBlk", "0000000000000000");
    // Descriptor 3 is the listing's own.
    says(&bundle, &[], "list /proc/self/fd", "0\n1\n2\n3");
}

#[test]
fn exec_sets_directory_and_environment() {
    let bundle = Bundle::running("wait").with("/process/env", json!(["A=1", "B=2"]));
    says(&bundle, &["--env", "B=3", "-e", "C=4", "--env=HOME=/h"], "env", "A=1\nB=3\nC=4\nHOME=/h");
    fs::create_dir(bundle.rootfs().join("there")).unwrap();
    says(&bundle, &["--cwd", "/there"], "cwd", "/there");
}

#[test]
fn exec_can_run_as_another_user() {
    need!(is_root(), "needs root to become another user");
    let bundle = Bundle::running("wait");
    fs::create_dir(bundle.rootfs().join("etc")).unwrap();
    fs::write(bundle.rootfs().join("etc/passwd"), "who:x:7:8::/home/who:/bin/sh\n").unwrap();
    says(&bundle, &["--user", "7"], "status Uid", "7\t7\t7\t7");
    says(&bundle, &["--user", "7:9"], "status Gid", "9\t9\t9\t9");
    says(&bundle, &["--user", "7", "--additional-gids", "5", "-g", "6"], "status Groups", "5 6");
    says(&bundle, &["-u", "7"], "env", "HOME=/home/who");
    need!(is_husk(), "runc accepts user numbers only");
    says(&bundle, &["--user", "who"], "status Gid", "8\t8\t8\t8");
}

#[test]
fn exec_can_read_the_process_from_a_file() {
    let bundle = Bundle::running("wait");
    let runtime = Runtime::started(&bundle);
    let file = tempfile::NamedTempFile::new().unwrap();
    let process = json!({ "args": ["/guest", "env"], "cwd": "/", "user": { "uid": 0, "gid": 0 }, "env": ["ONLY=1", "HOME=/"] });
    fs::write(file.path(), process.to_string()).unwrap();
    let path = file.path().to_str().unwrap();
    runtime.call("exec", &["--process", path, "c"]).prints("ONLY=1\nHOME=/");
    fs::write(file.path(), "{").unwrap();
    assert_eq!(runtime.call("exec", &["--process", path, "c"]).0.status.code(), Some(255));
}

#[test]
fn detached_exec_is_known_by_its_pid_file() {
    let bundle = Bundle::running("wait");
    let runtime = Runtime::started(&bundle);
    let file = runtime.root().join("pid");
    runtime
        .call("exec", &["--detach", "--pid-file", file.to_str().unwrap(), "c", "/guest", "until", "HUP"])
        .succeeds();
    let pid = fs::read_to_string(&file).unwrap();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(status.starts_with("Name:\tguest"), "{status}");
    // Inside the container the process has a different pid, and it ends with the container.
    runtime.call("delete", &["--force", "c"]).succeeds();
    fs::remove_file(file).unwrap();
}

#[test]
fn exec_gets_the_containers_seccomp_profile() {
    let profile = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{ "names": ["getcwd"], "action": "SCMP_ACT_ERRNO", "errnoRet": 7 }]
    });
    need!(is_husk(), "runc calls getcwd itself, which this profile forbids");
    for no_new_privileges in [true, false] {
        need!(is_root() || no_new_privileges, "loading a filter without no_new_privs needs CAP_SYS_ADMIN");
        let bundle = Bundle::running("wait")
            .with("/linux/seccomp", profile.clone())
            .with("/process/noNewPrivileges", json!(no_new_privileges));
        let runtime = Runtime::started(&bundle);
        runtime.call("exec", &["c", "/guest", "cwd"]).fails(1, "os error 7");
    }
}

#[test]
fn exec_uses_the_keyring_chosen_at_create() {
    need!(Path::new("/proc/keys").exists(), "needs a kernel with keyrings");
    for (options, own) in [(&[] as &[&str], true), (&["--no-new-keyring"], false)] {
        let runtime = Runtime::under_test();
        let bundle = Bundle::running("wait");
        runtime.create_with(&bundle, options).succeeds();
        runtime.call("start", &["c"]).succeeds();
        let keyring = runtime.call("exec", &["c", "/guest", "session-keyring"]).succeeds();
        assert_eq!(keyring.contains("_ses.c"), own, "{keyring}");
    }
}

// A process with a deadline policy cannot fork unless it resets the policy on fork. Then entering the pid namespace,
// which takes a fork, would lose the policy.
#[test]
fn exec_sets_the_scheduler() {
    need!(is_root(), "SCHED_DEADLINE needs CAP_SYS_NICE");
    const RESET_ON_FORK: u32 = 0x4000_0000;
    let bundle = Bundle::running("wait");
    let runtime = Runtime::started(&bundle);
    let scheduler = json!({
        "policy": "SCHED_DEADLINE", "flags": ["SCHED_FLAG_RESET_ON_FORK"],
        "runtime": 42000, "deadline": 100_000, "period": 1_000_000
    });
    let process = json!({ "args": ["/guest", "cat", "/proc/self/stat"], "cwd": "/", "scheduler": scheduler });
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), process.to_string()).unwrap();
    let stat = runtime.call("exec", &["--process", file.path().to_str().unwrap(), "c"]).succeeds();
    // The policy is field 41 (proc_pid_stat(5)), which does not show the flag.
    let policy = stat.rsplit(") ").next().unwrap().split(' ').nth(38).unwrap();
    assert_eq!(policy.parse::<u32>().unwrap() & !RESET_ON_FORK, 6);
}

#[test]
fn exec_gets_the_containers_rlimits() {
    let limits = json!([{ "type": "RLIMIT_NOFILE", "soft": 20, "hard": 30 }]);
    let bundle = Bundle::running("wait").with("/process/rlimits", limits);
    let runtime = Runtime::started(&bundle);
    let limits = runtime.call("exec", &["c", "/guest", "cat", "/proc/self/limits"]).succeeds();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(line.split_whitespace().collect::<Vec<_>>()[3..5], ["20", "30"]);
    let state: Value = serde_json::from_str(&runtime.call("state", &["c"]).succeeds()).unwrap();
    assert_eq!(state["status"], "running");
}

// A created container's process is undumpable, so its own user may not enter it. Root gives the store to that user
// together with the container, because only the owner may use a store.
#[test]
fn exec_by_a_user_before_start_says_that_the_container_must_be_started() {
    need!(is_husk(), "the message is husk's");
    let mut bundle = Bundle::running("wait");
    let runtime = Runtime::under_test();
    if is_root() {
        give_away(&mut bundle, &runtime);
    }
    bundle.write();
    let said = |verb: &str, words: &[&str]| {
        let mut command = runtime.command(verb);
        command.args(words);
        runtime.detached(if is_root() { as_user(&command) } else { command })
    };
    let created = said("create", &["--bundle", bundle.path().to_str().unwrap(), "c"]);
    let before = said("exec", &["c", "/guest", "exit", "7"]);
    let started = said("start", &["c"]);
    let after = said("exec", &["c", "/guest", "exit", "7"]);
    // Deletes before the assertions: on drop, `Runtime` deletes as root, who may not use another user's store.
    said("delete", &["--force", "c"]).succeeds();
    created.succeeds();
    before.fails(
        255,
        "cannot exec in a container that has not been started: until 'start' only root can enter it",
    );
    started.succeeds();
    assert_eq!(after.0.status.code(), Some(7));
}

/// The user that `as_user` switches to.
const USER: u32 = 1000;

/// Gives a bundle and a store to [`USER`].
fn give_away(bundle: &mut Bundle, runtime: &Runtime) {
    let linux = bundle.config["linux"].as_object_mut().unwrap();
    linux.remove("cgroupsPath");
    linux["namespaces"].as_array_mut().unwrap().push(json!({ "type": "user" }));
    for ids in ["uidMappings", "gidMappings"] {
        linux.insert(ids.to_owned(), json!([{ "containerID": 0, "hostID": USER, "size": 1 }]));
    }
    for path in [bundle.path(), &bundle.rootfs(), runtime.root()] {
        chown(path, Some(USER), Some(USER)).unwrap();
    }
}

/// Returns the command with [`USER`] as its user, without privileges.
fn as_user(command: &Command) -> Command {
    let user = USER.to_string();
    let mut changed = Command::new("setpriv");
    changed.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
    changed.arg(command.get_program()).args(command.get_args());
    changed
}
