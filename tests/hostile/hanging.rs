//! Tests with other processes that block a verb: hooks, agents and receivers that never end, read or accept. Also a
//! container's root that stops each process that joins. `delete --force` must end a container that is being created,
//! and a signal must end the verb. Neither may leave anything behind.

use super::concurrent::Said;
use super::faults::left;
use super::watched::{self, HANGS, Verdict};
use crate::util::{Bundle, Runtime, ends, guest, is_husk, is_root, need};
use husk_spawn::sys::process::SockFilter;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, mknodat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket, socket_with,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ChildStdout, Command, ExitStatus};
use std::thread;

/// Waits until a descriptor is readable or a connection can be accepted, for at most 30 seconds.
#[track_caller]
fn until_ready(fd: impl AsFd) {
    let most = Timespec { tv_sec: 30, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&most)).unwrap();
    assert_eq!(ready, 1, "nothing arrived");
}

/// Creates a fifo and opens it so that reading does not depend on a writer.
fn fifo(path: &Path) -> File {
    mknodat(CWD, path, FileType::Fifo, 0o666.into(), 0).unwrap();
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// Returns a bundle that hangs in a hook of this kind, and the fifo by which the hook reports it.
fn hanging(kind: &str) -> (Bundle, File) {
    let bundle = Bundle::running("hang");
    let path = bundle.rootfs().join("fifo");
    let said = fifo(&path);
    let hook = json!([{ "path": guest(), "args": ["guest", "hang-at", path] }]);
    (bundle.with("/hooks", json!({ kind: hook })), said)
}

/// Returns a bundle whose first process hangs in a system call before it is created. The seccomp agent, also returned,
/// never answers.
fn unanswered() -> (Bundle, UnixListener) {
    let bundle = Bundle::running("hang");
    let path = bundle.path().join("agent");
    let agent = UnixListener::bind(&path).unwrap();
    (with_agent(bundle, &path), agent)
}

fn with_agent(bundle: Bundle, path: &Path) -> Bundle {
    let rule = json!([{ "names": ["prctl"], "action": "SCMP_ACT_NOTIFY" }]);
    let profile = json!({ "defaultAction": "SCMP_ACT_ALLOW", "listenerPath": path, "syscalls": rule });
    bundle.with("/linux/seccomp", profile)
}

/// Returns a command for the container `c`.
fn command(runtime: &Runtime, bundle: &Bundle, words: &[&str]) -> Command {
    bundle.write();
    let mut command = runtime.command(words[0]);
    command.args(&words[1..]).arg("--bundle").arg(bundle.path()).arg("c");
    command
}

/// Waits for a verb. Returns its status and messages. Kills it and fails the test if it does not end.
#[track_caller]
fn ended(said: Said) -> (ExitStatus, String) {
    let pid = said.process.id().cast_signed();
    let has_ended = ends(pid);
    if !has_ended {
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }
    let ended = said.ended();
    assert!(has_ended, "it hangs");
    ended
}

/// A bundle whose creation another process blocks, and a descriptor that becomes ready once it does.
type Obstacle = (Bundle, Box<dyn AsFd>);

/// Returns everything that can block this verb.
fn obstacles(verb: &str) -> Vec<Obstacle> {
    let mut obstacles: Vec<Obstacle> = Vec::new();
    for kind in ["prestart", "createRuntime", "createContainer"] {
        let (bundle, said) = hanging(kind);
        obstacles.push((bundle, Box::new(said)));
    }
    // With `run`, the first process makes no such call before its program starts.
    if verb == "create" {
        let (bundle, agent) = unanswered();
        obstacles.push((bundle, Box::new(agent)));
    }
    obstacles
}

const VERBS: [&[&str]; 3] = [&["create"], &["run"], &["run", "--detach"]];

/// Starts each verb with each obstacle, and lets `end` end it once it hangs. `end` gets the verb, the runtime and its
/// pid, and returns the expected exit code and message. Nothing may be left of the container.
fn end_each(end: impl Fn(&[&str], &Runtime, Pid) -> (i32, &'static str)) {
    for words in VERBS {
        for (bundle, hangs) in obstacles(words[0]) {
            let runtime = Runtime::under_test();
            let verb = Said::new(&mut command(&runtime, &bundle, words));
            until_ready(&*hangs);
            let pid = Pid::from_raw(verb.process.id().cast_signed()).unwrap();
            let (code, message) = end(words, &runtime, pid);
            let (status, said) = ended(verb);
            assert_eq!(status.code(), Some(code), "{words:?}: {said}");
            assert!(said.contains(message), "{words:?}: {said}");
            assert_eq!(left(&runtime, &bundle), [""; 0], "{words:?}");
        }
    }
}

#[test]
fn delete_ends_a_container_that_hangs_in_creation() {
    need!(is_husk(), "the message is husk's");
    end_each(|_, runtime, _| {
        runtime.call("delete", &["--force", "c"]).succeeds();
        (1, "container \"c\" was deleted by another command")
    });
}

#[test]
fn signal_ends_a_waiting_verb() {
    need!(is_husk(), "the message is husk's");
    end_each(|words, _, pid| {
        kill_process(pid, Signal::TERM).unwrap();
        // In the foreground the signal counts as the end of the program.
        if words == ["run"] { (128 + 15, "") } else { (1, "ended by signal 15") }
    });
}

// husk starts with ignored signals, as under nohup(1). A blocked signal is queued even if it is ignored.
#[test]
fn ignored_signal_ends_no_verb() {
    need!(is_husk(), "Go keeps the ignored signals of the caller");
    let bundle = Bundle::running("hang");
    let path = bundle.path().join("fifo");
    mknodat(CWD, &path, FileType::Fifo, 0o666.into(), 0).unwrap();
    let hook = json!([{ "path": guest(), "args": ["guest", "cat", path] }]);
    let bundle = bundle.with("/hooks", json!({ "createRuntime": hook }));
    let runtime = Runtime::under_test();
    let verb = command(&runtime, &bundle, &["create"]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(verb.get_program()).args(verb.get_args());
    let verb = Said::new(&mut shell);
    // Opening waits until the hook reads. The hook ends when this is closed.
    let hold = OpenOptions::new().write(true).open(&path).unwrap();
    let pid = Pid::from_raw(verb.process.id().cast_signed()).unwrap();
    kill_process(pid, Signal::HUP).unwrap();
    drop(hold);
    let (status, said) = ended(verb);
    assert!(status.success(), "{said}");
    assert_eq!(runtime.status(), "created");
}

// The child of `run` does not die with its creator. A hook that is a step of the child's list keeps it waiting.
#[test]
fn container_of_a_creator_killed_in_a_hook_can_be_deleted() {
    need!(is_husk(), "runc writes its record too late");
    for (words, globals) in [(VERBS[1], &[][..]), (VERBS[2], &[]), (VERBS[1], &["--cgroup-manager=disabled"])]
    {
        let (bundle, hangs) = hanging("createContainer");
        let mut runtime = Runtime::under_test();
        runtime.globals = globals;
        let verb = Said::new(&mut command(&runtime, &bundle, words));
        until_ready(&hangs);
        kill_process(Pid::from_raw(verb.process.id().cast_signed()).unwrap(), Signal::KILL).unwrap();
        ended(verb);
        assert_eq!(runtime.status(), "creating");
        runtime.call("delete", &["--force", "c"]).succeeds();
        assert_eq!(left(&runtime, &bundle), [""; 0], "{words:?}");
    }
}

/// Returns the only child of a process; `None` if it has none.
fn child_of(process: i32) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    children.trim().parse().ok()
}

/// Waits until this descriptor is readable, or a process waits in a call that receives a message, or has ended.
fn until_ready_or_waiting(fd: impl AsFd, process: i32) {
    const RECEIVING: [&str; 3] = ["0 ", "45 ", "47 "];
    let breath = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    while poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&breath)).unwrap() == 0 {
        let call = fs::read_to_string(format!("/proc/{process}/syscall"));
        if call.map_or(true, |call| RECEIVING.iter().any(|number| call.starts_with(number))) {
            return;
        }
    }
}

/// Returns a filter that notifies of calls that rename a file.
fn renaming() -> &'static [SockFilter] {
    let (load, equal, answer, allow, notify) = (0x20, 0x15, 0x06, 0x7fff_0000, 0x7fc0_0000);
    let step = |code, jt, jf, k| SockFilter { code, jt, jf, k };
    let [rename, renameat, renameat2] = [82, 264, 316];
    let program = [
        step(load, 0, 0, 0),
        step(equal, 3, 0, rename),
        step(equal, 2, 0, renameat),
        step(equal, 1, 0, renameat2),
        step(answer, 0, 0, allow),
        step(answer, 0, 0, notify),
    ];
    Vec::from(program).leak()
}

// The creator is stopped after it has started the child, at the call that puts the record with the child's pid in place.
#[test]
fn no_hook_runs_before_its_container_is_recorded() {
    need!(is_husk(), "runc writes its record too late");
    need!(is_root(), "reads which call a process makes");
    need!(cfg!(target_arch = "x86_64"), "knows the call numbers of x86-64 only");
    for words in VERBS {
        for globals in [&[][..], &["--cgroup-manager=disabled"]] {
            let (bundle, hangs) = hanging("createContainer");
            let mut runtime = Runtime::under_test();
            runtime.globals = globals;
            let began = hangs.try_clone().unwrap();
            let seen = watched::run(&command(&runtime, &bundle, words), renaming(), move |call| {
                if let Some(child) = child_of(call.process) {
                    until_ready_or_waiting(&began, child);
                    kill_process(Pid::from_raw(call.process).unwrap(), Signal::KILL).unwrap();
                    return Verdict::Fail(Errno::IO);
                }
                Verdict::GoOn
            });
            assert_eq!(seen.0.status.signal(), Some(9), "{words:?}: {:?}", seen.0);
            assert!(!String::from_utf8_lossy(&seen.0.stderr).contains(HANGS), "{words:?}: killed too late");
            runtime.call("delete", &["--force", "c"]).succeeds();
            assert_eq!(left(&runtime, &bundle), [""; 0], "{words:?} {globals:?}");
        }
    }
}

/// Returns a listener that accepts no connections, with the connections that fill its queue.
fn full(path: &Path) -> Vec<OwnedFd> {
    let address = SocketAddrUnix::new(path).unwrap();
    let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&listener, &address).unwrap();
    listen(&listener, 0).unwrap();
    let mut all = vec![listener];
    loop {
        let flags = SocketFlags::NONBLOCK;
        let next = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        match connect(&next, &address) {
            Ok(()) => all.push(next),
            Err(Errno::AGAIN) => return all,
            Err(errno) => panic!("{errno}"),
        }
    }
}

/// Returns a bundle for `create`, and options that name this socket.
type Attempt = fn(&Path) -> (Bundle, Vec<String>);

#[test]
fn socket_that_accepts_no_connection_does_not_block_forever() {
    need!(is_husk(), "runc blocks forever");
    let attempts: [Attempt; 3] = [
        |socket| (with_agent(Bundle::running("hang"), socket), Vec::new()),
        |socket| {
            let bundle = Bundle::running("hang").with("/process/terminal", json!(true));
            (bundle.mounting(super::devpts()), vec![format!("--console-socket={}", socket.display())])
        },
        |socket| (Bundle::running("hang"), vec![format!("--pidfd-socket={}", socket.display())]),
    ];
    let threads = attempts.map(|attempt| {
        thread::spawn(move || {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("socket");
            let _full = full(&path);
            let (bundle, options) = attempt(&path);
            let runtime = Runtime::under_test();
            let words: Vec<_> = ["create"].into_iter().chain(options.iter().map(String::as_str)).collect();
            let (status, said) = ended(Said::new(&mut command(&runtime, &bundle, &words)));
            assert_eq!(status.code(), Some(1), "{said}");
            assert!(said.contains("no connection was accepted"), "{said}");
            assert_eq!(left(&runtime, &bundle), [""; 0]);
        })
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Starts an `exec` that the container's root stops before its program starts. `stdout` is that of the container, which
/// runs `stop-joining`.
fn stopped(runtime: &Runtime, stdout: ChildStdout, options: &[&str]) -> Said {
    let output = stdout.as_fd().try_clone_to_owned().unwrap();
    let mut lines = BufReader::new(stdout).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "begun");
    // Some end before they can be stopped.
    for _ in 0..2000 {
        let mut exec = runtime.command("exec");
        let exec = Said::new(exec.args(options).args(["c", "/guest", "exit", "0"]));
        let process = exec.process.id().cast_signed();
        let process = rustix::process::pidfd_open(
            Pid::from_raw(process).unwrap(),
            rustix::process::PidfdFlags::empty(),
        );
        let process = process.unwrap();
        let mut events = [PollFd::new(&process, PollFlags::IN), PollFd::new(&output, PollFlags::IN)];
        poll(&mut events, None).unwrap();
        if !events[1].revents().is_empty() {
            assert_eq!(lines.next().unwrap().unwrap(), "stopped");
            return exec;
        }
        exec.ended();
    }
    panic!("all were too quick");
}

#[test]
fn signal_ends_an_exec_that_the_containers_root_has_stopped() {
    need!(is_husk(), "runc blocks forever");
    for (options, code) in [(&[][..], 128 + 15), (&["--detach"], 255)] {
        let runtime = Runtime::under_test();
        let bundle = Bundle::running("stop-joining");
        let mut container = runtime.running(&bundle);
        let exec = stopped(&runtime, container.stdout.take().unwrap(), options);
        let pid = Pid::from_raw(exec.process.id().cast_signed()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let (status, said) = ended(exec);
        assert_eq!(status.code(), Some(code), "{said}");
        // Without root no cgroup knows the container's processes.
        if is_root() {
            let processes: Value =
                serde_json::from_str(&runtime.call("ps", &["--format", "json", "c"]).succeeds()).unwrap();
            assert_eq!(processes.as_array().unwrap().len(), 1, "the stopped process still runs");
        }
        runtime.call("delete", &["--force", "c"]).succeeds();
        container.wait().unwrap();
    }
}
