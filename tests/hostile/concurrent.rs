//! Stops a verb at one of its system calls, runs another on the same container, and lets the first continue. Each must
//! end as it could alone, and nothing may be lost or left behind.
//!
//! `HOSTILE_FAULTS=all` stops it at every call, otherwise at some of them.

use super::faults::{created, filter, known, left, rich, started, stopped_at};
use super::tell;
use super::watched::{self, HANGS, Verdict};
use crate::util::{Bundle, Runtime, ends, guest, is_husk, is_root, need};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, mknodat};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::json;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;

/// A verb that is stopped, and the verbs that run meanwhile.
struct Meeting {
    prepare: fn(&Runtime, &Bundle),
    stopped: &'static str,
    meanwhile: &'static [&'static str],
    /// Whether this end is permitted: success of the stopped verb, success of the others, and the container's final
    /// status.
    agrees: fn(bool, &[bool], &str) -> bool,
}

/// Returns the command for these words.
fn command(runtime: &Runtime, bundle: &Bundle, words: &str) -> Command {
    let (verb, rest) = words.split_once(' ').expect("a verb and its arguments");
    let mut command = runtime.command(verb);
    if verb == "create" {
        command.arg("--bundle").arg(bundle.path());
    }
    command.args(rest.split(' '));
    command
}

/// A running verb and its messages.
pub(crate) struct Said {
    pub(crate) process: Child,
    words: File,
}

impl Said {
    pub(crate) fn new(command: &mut Command) -> Self {
        let words = tempfile::tempfile().unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(words.try_clone().unwrap());
        Self { process: command.spawn().unwrap(), words }
    }

    /// Waits until the verb ends, or waits for a lock itself. Returns whether it has ended.
    fn ends_or_waits(&mut self) -> bool {
        const FLOCK: &str = "73 ";
        let pid = self.process.id();
        let pidfd = pidfd_open(Pid::from_raw(pid.cast_signed()).unwrap(), PidfdFlags::empty()).unwrap();
        let breath = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        loop {
            if poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&breath)).unwrap() == 1 {
                return true;
            }
            if fs::read_to_string(format!("/proc/{pid}/syscall")).is_ok_and(|call| call.starts_with(FLOCK)) {
                return false;
            }
        }
    }

    pub(crate) fn ended(mut self) -> (ExitStatus, String) {
        let status = self.process.wait().unwrap();
        let mut words = String::new();
        self.words.rewind().and_then(|()| self.words.read_to_string(&mut words)).unwrap();
        (status, words)
    }
}

impl Meeting {
    fn walk(&self) {
        need!(is_husk(), "other runtimes wait differently");
        need!(is_root(), "needs root to create cgroups");
        need!(cfg!(target_arch = "x86_64"), "knows the call numbers of x86-64 only");
        let all = std::env::var_os("HOSTILE_FAULTS").is_some_and(|value| value == "all");
        let bundle = rich("hang");
        let runtime = Runtime::under_test();
        bundle.write();
        let mut found = Vec::new();
        let mut at = 0;
        loop {
            (self.prepare)(&runtime, &bundle);
            let mut commands = self.meanwhile.iter().map(|words| command(&runtime, &bundle, words));
            let mut commands = commands.by_ref().collect::<Vec<_>>().into_iter();
            let (tell, told) = mpsc::channel();
            let (seen, count) = stopped_at(&command(&runtime, &bundle, self.stopped), at, move |call| {
                let mut said = Vec::new();
                for mut command in commands.by_ref() {
                    said.push(Said::new(&mut command));
                    if !said.last_mut().is_some_and(Said::ends_or_waits) {
                        break;
                    }
                }
                tell.send((call.number, said, std::mem::take(&mut commands))).expect("the receiver exists");
                Verdict::GoOn
            });
            if at >= count {
                break;
            }
            let (call, said, rest) = told.recv().expect("the results of the other verbs");
            let mut others: Vec<_> = said.into_iter().map(Said::ended).collect();
            others.extend(rest.map(|mut command| Said::new(&mut command).ended()));
            let is_well: Vec<_> = others.iter().map(|(status, _)| status.success()).collect();
            others.push((seen.0.status, String::from_utf8_lossy(&seen.0.stderr).into_owned()));

            let mut complain = |what: &str| {
                found.push(format!("{} at {at} of {count} (call {call}): {what}: {others:?}", self.stopped));
            };
            for (status, words) in &others {
                // A program that was killed with its container prints no error. Nor does a creator that a deleter kills
                // because the test has stopped it.
                let is_killed = status.code() == Some(128 + 9) || status.signal() == Some(9);
                let is_silent = !status.success() && !is_killed && words.trim().is_empty();
                if is_silent || words.contains("panicked") || words.contains(HANGS) {
                    complain("unclear error message");
                }
            }
            let status = || known(&runtime).remove("c").unwrap_or_default();
            if self.meanwhile.iter().zip(&is_well).any(|(words, well)| words.starts_with("kill") && *well)
                && matches!(&*status(), "created" | "running")
            {
                // The killed process may not have ended yet.
                runtime.call("wait", &["c"]);
            }
            let status = status();
            if !(self.agrees)(seen.0.status.success(), &is_well, &status) {
                complain(&format!("its status is '{status}'"));
            }
            runtime.call("delete", &["--force", "c"]).succeeds();
            let left = left(&runtime, &bundle);
            if !left.is_empty() {
                complain(&format!("left {left:?}"));
            }
            at += if all { 1 } else { (count / 4).max(1) };
        }
        let meanwhile: Vec<_> = self.meanwhile.iter().map(|words| format!("`{words}`")).collect();
        let fault = format!("`{}` is stopped while these run: {}", self.stopped, meanwhile.join(", "));
        tell(&fault, "each result is valid; nothing is lost or left behind", &found);
    }
}

fn nothing(_: &Runtime, _: &Bundle) {}

#[test]
fn one_of_two_concurrent_creates_succeeds() {
    let agrees = |one: bool, others: &[bool], status: &str| one != others[0] && status == "created";
    Meeting { prepare: nothing, stopped: "create c", meanwhile: &["create c"], agrees }.walk();
}

#[test]
fn container_being_created_can_be_killed_and_started() {
    let agrees = |one: bool, others: &[bool], status: &str| match (one, others) {
        (true, [true, _]) => status == "stopped",
        (true, [_, true]) => status == "running",
        (true, _) => status == "created",
        _ => status.is_empty(),
    };
    Meeting { prepare: nothing, stopped: "create c", meanwhile: &["kill c KILL", "start c"], agrees }.walk();
}

#[test]
fn container_being_created_can_be_deleted() {
    let agrees = |one: bool, others: &[bool], status: &str| {
        // If the creator was stopped before it reserved the name, `delete` finds nothing to delete.
        others[0] && (status.is_empty() || one && status == "created")
    };
    Meeting { prepare: nothing, stopped: "create c", meanwhile: &["delete --force c"], agrees }.walk();
}

// The container's process cannot end with its creator here: it waits in its first call, before it has asked for a
// parent-death signal.
#[test]
fn process_that_is_not_recorded_yet_is_killed_with_its_creator() {
    need!(is_husk(), "other runtimes wait differently");
    need!(is_root(), "needs root to create cgroups");
    need!(cfg!(target_arch = "x86_64"), "knows the call numbers of x86-64 only");
    let bundle = rich("hang");
    let runtime = Runtime::under_test();
    bundle.write();
    let mut deleter = Some(command(&runtime, &bundle, "delete --force c"));
    let mut creator = None;
    let (tell, told) = mpsc::channel();
    watched::run(&command(&runtime, &bundle, "create c"), filter(), move |call| {
        if *creator.get_or_insert(call.process) != call.process
            && let Some(mut deleter) = deleter.take()
        {
            tell.send(Said::new(&mut deleter).ended()).expect("the receiver exists");
        }
        Verdict::GoOn
    });
    let (status, words) = told.recv().expect("the container's process makes a call");
    assert!(status.success(), "delete: {status}: {words}");
    let left = left(&runtime, &bundle);
    assert!(left.is_empty(), "left {left:?}");
}

// The reverse: the deleter is stopped, and the container that is being created is completed meanwhile.
#[test]
fn container_created_during_delete_is_deleted() {
    need!(is_husk(), "other runtimes wait differently");
    need!(is_root(), "needs root to create cgroups");
    need!(cfg!(target_arch = "x86_64"), "knows the call numbers of x86-64 only");
    let all = std::env::var_os("HOSTILE_FAULTS").is_some_and(|value| value == "all");
    let mut bundle = rich("hang");
    let fifo = bundle.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, 0o600.into(), 0).unwrap();
    bundle.config["hooks"] =
        json!({ "createRuntime": [{ "path": guest(), "args": ["guest", "cat", fifo] }] });
    bundle.write();
    let mut found = Vec::new();
    let mut at = 0;
    loop {
        let runtime = Runtime::under_test();
        let mut create = Said::new(&mut command(&runtime, &bundle, "create c"));
        // Opening waits until the hook reads. The hook ends when this is closed.
        let hold = OpenOptions::new().write(true).open(&fifo).unwrap();
        let (tell, told) = mpsc::channel();
        let mut meeting = Some((create.process.id(), hold));
        let (delete, count) = stopped_at(&command(&runtime, &bundle, "delete --force c"), at, move |_| {
            if let Some((pid, hold)) = meeting.take() {
                drop(hold);
                tell.send(ends(pid.cast_signed())).expect("the receiver exists");
            }
            Verdict::GoOn
        });
        if at < count && !told.recv().expect("the result of create") {
            found.push(format!("at {at} of {count}: create hangs"));
            create.process.kill().unwrap();
        }
        let (status, words) = create.ended();
        let is_told = status.success() || words.contains("container \"c\" was deleted by another command");
        let left = left(&runtime, &bundle);
        if !delete.0.status.success() || !is_told || !left.is_empty() {
            let err = String::from_utf8_lossy(&delete.0.stderr);
            found.push(format!("at {at} of {count}: {err}; create {status}: {words}; left {left:?}"));
        }
        if at >= count {
            break;
        }
        at += if all { 1 } else { (count / 6).max(1) };
    }
    let fault = "`delete --force c` is stopped while an earlier `create c` completes";
    tell(fault, "the container is deleted; nothing is lost or left behind", &found);
}

// After the deletion another container may have the name.
#[test]
fn delete_during_create_spares_the_successor() {
    let agrees = |one: bool, others: &[bool], status: &str| {
        others[1] <= others[0] && status == if one || others[1] { "created" } else { "" }
    };
    let meanwhile = &["delete --force c", "create c"];
    Meeting { prepare: nothing, stopped: "create c", meanwhile, agrees }.walk();
}

#[test]
fn one_of_two_concurrent_starts_succeeds() {
    let agrees = |one: bool, others: &[bool], status: &str| one != others[0] && status == "running";
    Meeting { prepare: created, stopped: "start c", meanwhile: &["start c"], agrees }.walk();
}

#[test]
fn container_being_started_can_be_killed() {
    let agrees = |_: bool, others: &[bool], status: &str| others[0] && status == "stopped";
    Meeting { prepare: created, stopped: "start c", meanwhile: &["kill c KILL"], agrees }.walk();
}

#[test]
fn container_being_started_can_be_deleted() {
    let agrees = |_: bool, others: &[bool], status: &str| others[0] && status.is_empty();
    Meeting { prepare: created, stopped: "start c", meanwhile: &["delete --force c"], agrees }.walk();
}

const EXEC: &str = "exec c /guest exit 0";

#[test]
fn container_can_be_killed_during_exec() {
    let agrees = |_: bool, others: &[bool], status: &str| others[0] && status == "stopped";
    Meeting { prepare: started, stopped: EXEC, meanwhile: &["kill c KILL"], agrees }.walk();
}

// The first process remains until the joined process has been reaped, which the stopped verb does not do. `delete` then
// reports that.
#[test]
fn container_can_be_deleted_during_exec() {
    let agrees = |_: bool, others: &[bool], status: &str| others[0] == status.is_empty();
    Meeting { prepare: started, stopped: EXEC, meanwhile: &["delete --force c"], agrees }.walk();
}

#[test]
fn container_can_be_paused_during_exec() {
    let agrees = |one: bool, others: &[bool], status: &str| one && others == [true; 2] && status == "running";
    Meeting { prepare: started, stopped: EXEC, meanwhile: &["pause c", "resume c"], agrees }.walk();
}

#[test]
fn both_of_two_concurrent_deletes_succeed() {
    let agrees = |one: bool, others: &[bool], status: &str| one && others[0] && status.is_empty();
    let stopped = "delete --force c";
    Meeting { prepare: started, stopped, meanwhile: &["delete --force c"], agrees }.walk();
}

#[test]
fn container_being_paused_can_be_killed() {
    let agrees = |_: bool, others: &[bool], status: &str| others[0] && matches!(status, "stopped" | "paused");
    Meeting { prepare: started, stopped: "pause c", meanwhile: &["kill c KILL"], agrees }.walk();
}

#[test]
fn container_being_updated_can_be_deleted() {
    let agrees = |_: bool, others: &[bool], status: &str| others[0] && status.is_empty();
    let stopped = "update --pids-limit 50 c";
    Meeting { prepare: started, stopped, meanwhile: &["delete --force c"], agrees }.walk();
}
