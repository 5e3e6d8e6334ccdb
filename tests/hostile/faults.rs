//! Runs each verb many times. Each time one of its system calls fails, or the process that made the call is killed
//! there. The error must be reported, other containers must be unaffected, and nothing may be left behind.
//!
//! `HOSTILE_FAULTS=all` tries every call, otherwise only some of them.

use super::watched::{self, HANGS, NotifiedCall, Verdict};
use super::{bind, devpts, tell, tmpfs};
use crate::util::{Bundle, Runtime, Seen, ends, guest, is_husk, is_root, need, program};
use husk_spawn::sys::process::SockFilter;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The fault at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Fails,
    Kills,
}

/// Calls that are always made (x86-64). The kernel cannot fail some of them, such as those for ids, paths and random
/// bytes. Others wait, or are the allocator's, which ends a program when memory runs out.
const MADE: [u32; 22] =
    [3, 7, 9, 11, 12, 15, 24, 35, 39, 60, 95, 102, 104, 107, 108, 110, 186, 202, 231, 232, 271, 318];
const WRITE: u32 = 1;
const EXECVE: u32 = 59;
const WRITEV: u32 = 20;
const PRLIMIT: u32 = 302;
/// musl ends a program without a message if it fails, before the program begins.
const ARCH_PRCTL: u32 = 158;

/// Returns a filter that notifies of all calls except `MADE` and two kinds that stay unaffected. Short writes may be
/// messages between parent and child, and reading a limit cannot fail.
pub(crate) fn filter() -> &'static [SockFilter] {
    let (load, equal, greater, answer) = (0x20, 0x15, 0x25, 0x06);
    let (allow, notify) = (0x7fff_0000, 0x7fc0_0000);
    let third_argument = 32;
    let mut program = vec![SockFilter { code: load, jt: 0, jf: 0, k: 0 }];
    for number in MADE {
        program.push(SockFilter { code: equal, jt: 0, jf: 1, k: number });
        program.push(SockFilter { code: answer, jt: 0, jf: 0, k: allow });
    }
    program.push(SockFilter { code: equal, jt: 0, jf: 3, k: PRLIMIT });
    program.push(SockFilter { code: load, jt: 0, jf: 0, k: third_argument });
    program.push(SockFilter { code: equal, jt: 0, jf: 5, k: 0 });
    program.push(SockFilter { code: answer, jt: 0, jf: 0, k: allow });
    program.push(SockFilter { code: equal, jt: 0, jf: 3, k: WRITE });
    program.push(SockFilter { code: load, jt: 0, jf: 0, k: third_argument });
    program.push(SockFilter { code: greater, jt: 1, jf: 0, k: 16 });
    program.push(SockFilter { code: answer, jt: 0, jf: 0, k: allow });
    program.push(SockFilter { code: answer, jt: 0, jf: 0, k: notify });
    program.leak()
}

/// Runs a command with the fault at the call with this index, if it makes as many. Returns how many calls it made, and
/// the number of the faulty one.
fn run(command: &Command, at: u32, fault: Fault) -> (Seen, u32, u32) {
    let which = Arc::new(AtomicU32::new(0));
    let found = Arc::clone(&which);
    let (seen, count) = stopped_at(command, at, move |call| {
        found.store(call.number, Ordering::Relaxed);
        match fault {
            Fault::Fails => Verdict::Fail(Errno::IO),
            Fault::Kills => {
                let process = Pid::from_raw(call.process).expect("a pid");
                kill_process(process, Signal::KILL).expect("a waiting process");
                Verdict::GoOn
            }
        }
    });
    (seen, count, which.load(Ordering::Relaxed))
}

/// Runs a command that waits at the call with this index, if it makes as many, until `decide` returns. Also returns how
/// many calls it made.
pub(crate) fn stopped_at(
    command: &Command,
    at: u32,
    mut decide: impl FnMut(&NotifiedCall) -> Verdict + Send + 'static,
) -> (Seen, u32) {
    let count = Arc::new(AtomicU32::new(0));
    let mut programs = BTreeSet::new();
    let mut has_begun = false;
    let counted = Arc::clone(&count);
    let seen = watched::run(command, filter(), move |call: &NotifiedCall| {
        // Before its first exec the process is not yet the runtime.
        if !has_begun || programs.contains(&call.process) {
            has_begun |= call.number == EXECVE;
            return Verdict::GoOn;
        }
        // After exec the process is neither the runtime nor a hook that is about to start.
        if call.number == EXECVE {
            programs.insert(call.process);
        }
        if counted.fetch_add(1, Ordering::Relaxed) == at { decide(call) } else { Verdict::GoOn }
    });
    (seen, count.load(Ordering::Relaxed))
}

/// Returns a bundle that uses a little of every feature.
pub(crate) fn rich(words: &str) -> Bundle {
    let bundle = Bundle::running(words);
    let ours = guest();
    let hook = json!([{ "path": ours, "args": ["guest", "exit", "0"] }]);
    let source = bundle.path().join("source");
    fs::create_dir(&source).unwrap();
    let profile = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{ "names": ["getcwd"], "action": "SCMP_ACT_ERRNO" }]
    });
    let bundle = bundle
        .mounting(devpts())
        .mounting(tmpfs("/made/here"))
        .mounting(bind(&source, "/shown"))
        .with("/hooks", json!({ "createRuntime": hook, "createContainer": hook, "poststop": hook }))
        .with("/process/rlimits", json!([{ "type": "RLIMIT_CORE", "soft": 0, "hard": 0 }]))
        .with("/linux/maskedPaths", json!(["/proc/fs", "/proc/version"]))
        .with("/linux/readonlyPaths", json!(["/proc/sys"]))
        .with("/linux/sysctl", json!({ "net.ipv4.ip_forward": "1" }))
        .with("/linux/seccomp", profile);
    if !is_root() {
        return bundle;
    }
    bundle
        .with("/process/user", json!({ "uid": 1000, "gid": 1000 }))
        .with("/linux/resources", json!({ "pids": { "limit": 100 } }))
}

/// Returns the processes, cgroups, mounts and files that remain of a deleted container.
pub(crate) fn left(runtime: &Runtime, bundle: &Bundle) -> Vec<String> {
    let cgroup = bundle.config["linux"]["cgroupsPath"]
        .as_str()
        .unwrap_or("/no cgroup")
        .trim_start_matches('/')
        .to_owned();
    let mut left = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
        let text = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
        let root = runtime.root().to_string_lossy();
        let is_ours = String::from_utf8_lossy(&text("cmdline")).contains(&*root)
            || String::from_utf8_lossy(&text("cgroup")).contains(&cgroup);
        if is_ours && !ends(pid) {
            left.push(format!(
                "process {pid}: {}",
                String::from_utf8_lossy(&text("cmdline")).replace('\0', " ")
            ));
        }
    }
    for controller in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
        let places = [controller.path().join(&cgroup), Path::new("/sys/fs/cgroup").join(&cgroup)];
        left.extend(places.iter().filter(|place| place.exists()).map(|place| place.display().to_string()));
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let path = bundle.path().to_string_lossy();
    left.extend(mounts.lines().filter(|line| line.contains(&*path)).map(str::to_owned));
    let entries = fs::read_dir(runtime.root()).unwrap().flatten().map(|entry| entry.path());
    left.extend(entries.filter(|path| !path.ends_with(OTHER)).map(|path| path.display().to_string()));
    left
}

// A runtime that cannot open the files that show that a container lives must not take it for dead.
#[test]
fn container_is_not_lost_when_descriptors_run_out() {
    need!(is_husk(), "the option is husk's");
    // Without a cgroup, which would show that the container lives.
    let bundle = Bundle::running("hang");
    let mut runtime = Runtime::under_test();
    runtime.globals = &["--cgroup-manager=disabled"];
    started(&runtime, &bundle);
    let state: Value = serde_json::from_str(&runtime.call("state", &["c"]).succeeds()).unwrap();
    let pid = i32::try_from(state["pid"].as_i64().unwrap()).unwrap();
    let (mut refused, mut is_there) = (0, true);
    for most in 3..40 {
        let script = format!("ulimit -n {most}; exec \"$@\"");
        let mut shell = Command::new("sh");
        let delete = runtime.command("delete");
        shell
            .args(["-c", &script, "sh"])
            .arg(delete.get_program())
            .args(delete.get_args())
            .args(["--force", "c"]);
        is_there = !shell.output().unwrap().status.success();
        if !is_there {
            break;
        }
        refused += 1;
        // The container may have been killed, but must still be known.
        runtime.call("state", &["c"]).succeeds();
    }
    assert!(refused > 0 && !is_there, "refused {refused} times");
    assert!(ends(pid), "the container was forgotten but still runs");
}

/// A verb and its preparation.
struct Verb {
    name: &'static str,
    prepare: fn(&Runtime, &Bundle),
    arguments: fn(&Bundle) -> Vec<String>,
    words: &'static str,
    /// The statuses of a container in which the verb can be repeated.
    again: &'static [&'static str],
}

/// A second container, which the verbs do not concern.
const OTHER: &str = "other";

struct Other<'a>(&'a Runtime);

impl<'a> Other<'a> {
    fn running(runtime: &'a Runtime, bundle: &Bundle) -> Self {
        bundle.write();
        let path = bundle.path().to_str().expect("text");
        runtime.call("run", &["--detach", "--bundle", path, OTHER]).succeeds();
        Self(runtime)
    }
}

impl Drop for Other<'_> {
    fn drop(&mut self) {
        self.0.call("delete", &["--force", OTHER]);
    }
}

fn of_bundle(bundle: &Bundle) -> Vec<String> {
    vec!["--bundle".to_owned(), bundle.path().display().to_string(), "c".to_owned()]
}

fn words(words: &str) -> Vec<String> {
    words.split(' ').map(str::to_owned).collect()
}

pub(crate) fn created(runtime: &Runtime, bundle: &Bundle) {
    runtime.create(bundle).succeeds();
}

pub(crate) fn started(runtime: &Runtime, bundle: &Bundle) {
    created(runtime, bundle);
    runtime.call("start", &["c"]).succeeds();
}

fn paused(runtime: &Runtime, bundle: &Bundle) {
    started(runtime, bundle);
    runtime.call("pause", &["c"]).succeeds();
}

/// Returns the status of each container that a runtime knows.
pub(crate) fn known(runtime: &Runtime) -> BTreeMap<String, String> {
    let list: Value =
        serde_json::from_str(&runtime.call("list", &["--format", "json"]).succeeds()).expect("a list");
    let text = |container: &Value, name: &str| container[name].as_str().expect("text").to_owned();
    let list = list.as_array().into_iter().flatten();
    list.map(|container| (text(container, "id"), text(container, "status"))).collect()
}

impl Verb {
    fn walk(&self) {
        need!(cfg!(target_arch = "x86_64"), "knows the call numbers of x86-64 only");
        let all = std::env::var_os("HOSTILE_FAULTS").is_some_and(|value| value == "all");
        let (bundle, other) = (rich(self.words), Bundle::running("hang"));
        let runtime = Runtime::under_test();
        bundle.write();
        let _other = Other::running(&runtime, &other);
        for fault in [Fault::Fails, Fault::Kills] {
            let (mut at, mut tolerated) = (0, 0);
            let mut found = Vec::new();
            loop {
                (self.prepare)(&runtime, &bundle);
                let mut command = runtime.command(self.name);
                command.args((self.arguments)(&bundle));
                let (seen, count, which) = run(&command, at, fault);
                tolerated += u32::from(seen.0.status.success());
                let complaints = self.complaints(&runtime, &bundle, &seen, (fault, which));
                found.extend(complaints.into_iter().map(|what| {
                    format!("{} {fault:?} at {at} of {count} (call {which}): {what}", self.name)
                }));
                if at >= count {
                    if !seen.0.status.success() {
                        let err = String::from_utf8_lossy(&seen.0.stderr);
                        found.push(format!("{} without a fault: {err}", self.name));
                    }
                    break;
                }
                at += if all || self.name == "pause" { 1 } else { (count / 6).max(1) };
            }
            eprintln!("{} {fault:?}: {at} calls, {tolerated} made no difference", self.name);
            let (fault, expected) = match fault {
                Fault::Fails => {
                    let fault = format!("`{}`: a system call fails", self.name);
                    (fault, "the error is reported; nothing is lost or left behind")
                }
                Fault::Kills => {
                    (format!("`{}`: the process is killed", self.name), "nothing is lost or left behind")
                }
            };
            tell(&fault, expected, &found);
        }
    }

    /// Cleans up after a fault and returns everything that is not as it should be.
    fn complaints(
        &self,
        runtime: &Runtime,
        bundle: &Bundle,
        seen: &Seen,
        (fault, which): (Fault, u32),
    ) -> Vec<String> {
        let mut found = Vec::new();
        let err = String::from_utf8_lossy(&seen.0.stderr);
        let is_musls = cfg!(target_env = "musl") && which == ARCH_PRCTL;
        let said = !err.trim().is_empty() || is_musls || [WRITE, WRITEV].contains(&which);
        // This panic is intended: the runtime must not continue with memory that others can read.
        let is_meant = err.contains("dumpable.rs");
        if err.contains("panicked") && !is_meant
            || err.contains(HANGS)
            || (fault == Fault::Fails && !seen.0.status.success() && !said)
        {
            found.push(format!("{:?}: {err:?}", seen.0.status));
        }
        let status = || known(runtime).get("c").cloned().unwrap_or_default();
        if self.name == "pause" && fault == Fault::Fails && !seen.0.status.success() && status() == "paused" {
            found.push(format!("it failed, and the container is paused: {err}"));
        }
        if self.again.contains(&&*status()) {
            let words = (self.arguments)(bundle);
            let again = runtime.call(self.name, &words.iter().map(String::as_str).collect::<Vec<_>>());
            // The container's process may have been killed, but not have ended yet.
            if !again.0.status.success() && self.again.contains(&&*status()) {
                found.push(format!("again: {}", String::from_utf8_lossy(&again.0.stderr)));
            }
        }
        if known(runtime).get(OTHER).map(String::as_str) != Some("running") {
            found.push("another container changed".to_owned());
        }
        let deleted = runtime.call("delete", &["--force", "c"]);
        if !deleted.0.status.success() {
            found.push(format!("delete: {}", String::from_utf8_lossy(&deleted.0.stderr)));
        }
        let left = left(runtime, bundle);
        if !left.is_empty() {
            found.push(format!("left: {left:?} after {err}"));
        }
        found
    }
}

#[test]
fn failed_call_in_run_leaves_nothing() {
    need!(is_husk(), "runc leaves its cgroups when it is killed");
    Verb { name: "run", prepare: |_, _| {}, arguments: of_bundle, words: "exit 0", again: &[] }.walk();
}

#[test]
fn failed_call_in_create_leaves_nothing() {
    need!(is_husk(), "runc leaves its cgroups when it is killed");
    Verb { name: "create", prepare: |_, _| {}, arguments: of_bundle, words: "wait", again: &[] }.walk();
}

#[test]
fn failed_call_in_start_leaves_nothing() {
    let arguments = |_: &Bundle| words("c");
    Verb { name: "start", prepare: created, arguments, words: "hang", again: &["created"] }.walk();
}

#[test]
fn failed_call_in_exec_leaves_nothing() {
    let arguments = |_: &Bundle| words("c /guest exit 0");
    Verb { name: "exec", prepare: started, arguments, words: "hang", again: &["running"] }.walk();
}

#[test]
fn failed_call_in_kill_leaves_nothing() {
    let arguments = |_: &Bundle| words("c KILL");
    let (prepare, again): (fn(&_, &_), _) =
        if is_root() { (paused, &["running", "paused"]) } else { (started, &["running", "paused"]) };
    Verb { name: "kill", prepare, arguments, words: "hang", again }.walk();
}

#[test]
fn failed_call_in_pause_leaves_nothing() {
    need!(is_root(), "needs root to create cgroups");
    let arguments = |_: &Bundle| words("c");
    Verb { name: "pause", prepare: started, arguments, words: "hang", again: &["running"] }.walk();
}

#[test]
fn failed_call_in_resume_leaves_nothing() {
    need!(is_root(), "needs root to create cgroups");
    let arguments = |_: &Bundle| words("c");
    Verb { name: "resume", prepare: paused, arguments, words: "hang", again: &["paused"] }.walk();
}

#[test]
fn failed_call_in_update_leaves_nothing() {
    need!(is_root(), "needs root to create cgroups");
    let arguments = |_: &Bundle| words("--pids-limit 50 c");
    Verb { name: "update", prepare: started, arguments, words: "hang", again: &["running"] }.walk();
}

#[test]
fn failed_call_in_delete_leaves_nothing() {
    let arguments = |_: &Bundle| words("--force c");
    Verb { name: "delete", prepare: started, arguments, words: "hang", again: &[] }.walk();
}

// Runs these tests once more as an ordinary user.
#[test]
fn failed_call_for_an_ordinary_user_leaves_nothing() {
    need!(is_root(), "is another user's");
    let ours = std::env::current_exe().unwrap();
    let user = |program: &Path| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups"]).arg(program);
        command
    };
    let reaches =
        |program: &Path| user(program).arg("--help").output().is_ok_and(|output| output.status.success());
    need!(reaches(&ours) && reaches(Path::new(&program())), "needs files that other users may read");
    let home = tempfile::tempdir().unwrap();
    chown(home.path(), Some(1000), Some(1000)).unwrap();
    let output = user(&ours)
        .args(["hostile::faults::", "--nocapture"])
        .env("TMPDIR", home.path())
        .env("HOME", home.path())
        .output()
        .unwrap();
    let said =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{said}");
}
