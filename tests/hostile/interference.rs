//! Tests in which other processes change what a container needs: its record, its cgroup, the clock. The error must be
//! clear, nothing may be lost, and the container can be deleted.

use super::faults::{known, left, rich, started};
use super::starvation::fails_in_words;
use crate::util::{Bundle, Runtime, Seen, guest, is_husk, is_root, need, until_gone};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

fn pid(runtime: &Runtime) -> i32 {
    let state: Value = serde_json::from_str(&runtime.call("state", &["c"]).succeeds()).unwrap();
    i32::try_from(state["pid"].as_i64().unwrap()).unwrap()
}

// A time namespace shifts the start time of processes in procfs, by which a container is identified.
#[test]
fn container_is_recognized_from_another_time_namespace() {
    need!(is_husk(), "the option is husk's");
    need!(is_root(), "needs root to create a time namespace without a user namespace");
    let later = |command: &Command| {
        let mut shifted = Command::new("unshare");
        shifted.args(["--time", "--boottime", "1000", "--fork"]);
        shifted.arg(command.get_program()).args(command.get_args());
        shifted
    };
    need!(
        later(&Command::new("true")).status().is_ok_and(|status| status.success()),
        "needs time namespaces"
    );
    // The container has no cgroup, because that would identify it too.
    let bundle = Bundle::running("hang");
    bundle.write();
    let mut runtime = Runtime::under_test();
    runtime.globals = &["--cgroup-manager=disabled"];
    for shifts_first in [false, true] {
        let said = |verb: &str, words: &[&str], shifts: bool| {
            let mut command = runtime.command(verb);
            command.args(words);
            runtime.detached(if shifts { later(&command) } else { command })
        };
        let run = ["--detach", "--bundle", bundle.path().to_str().unwrap(), "c"];
        said("run", &run, shifts_first).succeeds();
        for shifts in [false, true] {
            let state: Value = serde_json::from_str(&said("state", &["c"], shifts).succeeds()).unwrap();
            assert_eq!(state["status"], "running", "{shifts_first} {shifts}");
            said("delete", &["c"], shifts).fails(1, "");
        }
        let pid = pid(&runtime);
        said("delete", &["--force", "c"], !shifts_first).succeeds();
        until_gone(pid);
        assert!(runtime.is_empty());
    }
}

// Records of other runtimes, damaged ones and missing ones.
#[test]
fn invalid_record_is_reported_and_can_be_deleted() {
    need!(is_husk(), "runc does not delete a container with an invalid record");
    let bundle = Bundle::running("hang");
    let other = Bundle::running("hang");
    let runtime = Runtime::started(&other);
    bundle.write();
    let whole = fs::read_to_string(runtime.root().join("c/state.json")).unwrap();
    let directory = runtime.root().join("strange");
    let record = directory.join("state.json");
    let write = |text: &str| fs::write(&record, text).unwrap();
    let makers: [(&str, &dyn Fn()); 8] = [
        ("nothing", &|| ()),
        ("an empty one", &|| write("")),
        ("one cut short", &|| write(&whole[..whole.len() / 2])),
        ("no text", &|| fs::write(&record, [0xff, 0, 0xfe]).unwrap()),
        ("another runtime's", &|| write(r#"{"id":"strange","init_process_pid":1,"config":{"rootfs":"/"}}"#)),
        ("a directory", &|| fs::create_dir(&record).unwrap()),
        ("a link to nowhere", &|| symlink("/no/such", &record).unwrap()),
        ("a list", &|| write("[]")),
    ];
    for (what, make) in makers {
        fs::create_dir(&directory).unwrap();
        make();
        for verb in ["state", "start", "kill", "pause", "update", "ps", "delete"] {
            let seen = runtime.call(verb, &["strange"]);
            assert!(!seen.0.status.success(), "{verb} {what}");
            fails_in_words(&seen);
        }
        fails_in_words(&runtime.call("exec", &["strange", "/guest", "exit", "0"]));
        assert_eq!(known(&runtime).get("c").map(String::as_str), Some("running"), "{what}");
        runtime.call("delete", &["--force", "strange"]).succeeds();
        assert!(!directory.exists(), "{what}");
    }
}

// The recorded time is reported, and nothing depends on it. Fields of later versions are left alone.
#[test]
fn record_of_a_later_time_and_version_is_read() {
    need!(is_husk(), "the record is husk's");
    let bundle = Bundle::running("hang");
    let runtime = Runtime::started(&bundle);
    let path = runtime.root().join("c/state.json");
    let mut record: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    record["created"] = json!("2999-01-01T00:00:00Z");
    record["invented_later"] = json!({ "much": [1, 2, 3] });
    fs::write(&path, record.to_string()).unwrap();
    let state: Value = serde_json::from_str(&runtime.call("state", &["c"]).succeeds()).unwrap();
    assert_eq!((&state["status"], &state["created"]), (&json!("running"), &json!("2999-01-01T00:00:00Z")));
    runtime.call("exec", &["c", "/guest", "exit", "0"]).succeeds();
    runtime.call("delete", &["--force", "c"]).succeeds();
    assert!(runtime.is_empty());
}

// The kernel keeps the first process of a pid namespace until processes that joined it have been reaped.
#[test]
fn delete_reports_an_init_that_does_not_end() {
    need!(is_husk(), "other runtimes print other messages");
    let bundle = Bundle::running("hang");
    let runtime = Runtime::started(&bundle);
    let mut exec = runtime.spawn("exec", &["c", "/guest", "wait"], Stdio::piped());
    BufReader::new(exec.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    let process = Pid::from_child(&exec);
    kill_process(process, Signal::STOP).unwrap();
    let refused = said(&runtime, "delete --force c");
    kill_process(process, Signal::CONT).unwrap();
    refused.fails(1, "container init still running: it was killed 10 seconds ago");
    exec.wait().unwrap();
    said(&runtime, "delete --force c").succeeds();
    assert_eq!(left(&runtime, &bundle), [""; 0]);
}

/// Returns the directories of a container's cgroup in every hierarchy.
fn cgroups(bundle: &Bundle) -> Vec<PathBuf> {
    let own = bundle.config["linux"]["cgroupsPath"].as_str().unwrap().trim_start_matches('/').to_owned();
    let roots = fs::read_dir("/sys/fs/cgroup").unwrap().flatten().map(|entry| entry.path());
    let roots = roots.chain([PathBuf::from("/sys/fs/cgroup")]);
    roots.map(|root| root.join(&own)).filter(|path| path.is_dir()).collect()
}

fn join(directory: &Path, pid: u32) {
    fs::write(directory.join("cgroup.procs"), pid.to_string()).unwrap();
}

/// A process that is unrelated to the container.
struct Stranger(Child);

impl Stranger {
    fn new() -> Self {
        Self(Command::new(guest()).arg("hang").spawn().unwrap())
    }

    fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).unwrap();
    }
}

#[test]
fn container_whose_cgroup_was_removed_can_be_used_and_deleted() {
    need!(is_root(), "needs root to create cgroups");
    let bundle = rich("hang");
    let runtime = Runtime::under_test();
    started(&runtime, &bundle);
    // Its process is moved out, and the empty cgroup is removed.
    for directory in cgroups(&bundle) {
        join(directory.parent().unwrap(), pid(&runtime).unsigned_abs());
        fs::remove_dir(&directory).unwrap();
    }
    assert_eq!(runtime.status(), "running");
    for seen in ["pause c", "update --pids-limit 5 c", "resume c"].map(|words| said(&runtime, words)) {
        fails_in_words(&seen);
    }
    // With version 2 it joins the cgroup to which the first process was moved.
    let exec = said(&runtime, "exec c /guest exit 0");
    if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        exec.succeeds();
    } else {
        fails_in_words(&exec);
    }
    said(&runtime, "kill c KILL").succeeds();
    said(&runtime, "wait c");
    said(&runtime, "delete c").succeeds();
    assert_eq!(left(&runtime, &bundle), [""; 0]);
}

/// Calls a verb with its arguments.
fn said(runtime: &Runtime, words: &str) -> Seen {
    let words: Vec<_> = words.split(' ').collect();
    runtime.call(words[0], &words[1..])
}

/// Freezes the container by its cgroup, without the runtime.
fn freeze(bundle: &Bundle) {
    for directory in cgroups(bundle) {
        for (file, state) in [("freezer.state", "FROZEN"), ("cgroup.freeze", "1")] {
            if directory.join(file).exists() {
                fs::write(directory.join(file), state).unwrap();
            }
        }
    }
}

#[test]
fn container_frozen_by_others_can_be_killed_and_deleted() {
    need!(is_root(), "needs root to create cgroups");
    for (before, verb) in
        [("create", "delete --force c"), ("start", "delete --force c"), ("start", "kill c KILL")]
    {
        let bundle = rich("hang");
        let runtime = Runtime::under_test();
        runtime.create(&bundle).succeeds();
        if before == "start" {
            runtime.call("start", &["c"]).succeeds();
        }
        freeze(&bundle);
        assert_eq!(runtime.status(), "paused");
        for words in ["start c", "exec c /guest exit 0", "pause c", "delete c"] {
            fails_in_words(&said(&runtime, words));
        }
        said(&runtime, verb).succeeds();
        if verb.starts_with("kill") {
            said(&runtime, "wait c");
            said(&runtime, "delete c").succeeds();
        }
        assert_eq!(left(&runtime, &bundle), [""; 0]);
    }
}

// `--force` kills a process that was moved into the cgroup. Without it, the error names the process.
#[test]
fn foreign_process_in_the_cgroup_blocks_delete_unless_forced() {
    need!(is_root(), "needs root to create cgroups");
    need!(is_husk(), "runc does not delete a container with a foreign process");
    let bundle = rich("hang");
    let runtime = Runtime::under_test();
    started(&runtime, &bundle);
    let mut stranger = Stranger::new();
    cgroups(&bundle).iter().for_each(|directory| join(directory, stranger.0.id()));
    said(&runtime, "kill c KILL").succeeds();
    said(&runtime, "wait c");
    let seen = said(&runtime, "delete c");
    fails_in_words(&seen);
    seen.says(&format!("remaining processes: {}", stranger.0.id()));
    assert!(stranger.is_alive());
    assert_eq!(runtime.status(), "stopped");
    said(&runtime, "delete --force c").succeeds();
    assert_eq!(left(&runtime, &bundle), [""; 0]);
}

// An open file description lock belongs to no process (fcntl(2)): the kernel reports -1 instead of the owner's pid.
#[test]
fn delete_is_refused_while_another_program_holds_the_lock() {
    need!(is_husk(), "the lock is husk's");
    need!(Path::new("/usr/bin/perl").exists(), "needs perl, for a call that no crate here makes");
    let runtime = Runtime::started(&Bundle::running("hang"));
    // fcntl(F_OFD_SETLK) of F_RDLCK, by its number: perl cannot open a directory as a file.
    let fcntl = if cfg!(target_arch = "x86_64") { 72 } else { 25 };
    let lock = format!(
        "use POSIX; my $fd = 0 + POSIX::open(shift, O_RDONLY); my $lock = pack('ssx4qqlx4', 0, 0, 0, 0, 0); \
         syscall({fcntl}, $fd, 37, $lock) == 0 or die $!; exit(system(@ARGV) >> 8)"
    );
    let delete = runtime.command("delete");
    let mut locked = Command::new("/usr/bin/perl");
    locked.args(["-e", &lock]).arg(runtime.root().join("c")).arg(delete.get_program());
    locked.args(delete.get_args()).args(["--force", "c"]);
    runtime.detached(locked).fails(1, "the container's directory is locked by a program that is not husk");
    assert_eq!(runtime.status(), "running");
    runtime.call("delete", &["--force", "c"]).succeeds();
}
