//! Checks containers that report readiness to the socket in `NOTIFY_SOCKET`.

use crate::util::{Bundle, Runtime, is_husk, need};
use rustix::io::IoSliceMut;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde_json::json;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};

/// Listens as a service manager does.
struct Manager {
    directory: tempfile::TempDir,
    socket: UnixDatagram,
}

impl Manager {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(directory.path().join("sock")).unwrap();
        Self { directory, socket }
    }

    /// Makes the command, and with it its containers, send notifications to this manager.
    fn hears_of(&self, mut command: Command) -> Command {
        command.env("NOTIFY_SOCKET", self.directory.path().join("sock"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        command
    }

    /// Returns the next message, and the descriptor that came with it.
    fn next(&self) -> (String, Option<OwnedFd>) {
        let mut bytes = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut came = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let received = recvmsg(&self.socket, &mut parts, &mut came, RecvFlags::CMSG_CLOEXEC).unwrap();
        let fd = came.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        (String::from_utf8(bytes[..received.bytes].to_vec()).unwrap(), fd)
    }

    /// Asserts that only the readiness of this process and a barrier arrive, then releases the barrier.
    fn hears(&self, pid: u32) {
        assert_eq!(self.next().0, "READY=1\n");
        assert_eq!(self.next().0, format!("MAINPID={pid}\n"));
        let (barrier, fd) = self.next();
        assert_eq!(barrier, "BARRIER=1");
        drop(fd.expect("something to close"));
    }

    fn heard_no_more(&self) {
        self.socket.set_nonblocking(true).unwrap();
        assert!(self.socket.recv(&mut [0; 1]).is_err());
    }
}

fn command(runtime: &Runtime, verb: &str, bundle: &Bundle, options: &[&str]) -> Command {
    bundle.write();
    let mut command = runtime.command(verb);
    command.arg("--bundle").arg(bundle.path()).args(options).arg("c");
    command
}

fn pid(runtime: &Runtime) -> u32 {
    let state: serde_json::Value = serde_json::from_str(&runtime.call("state", &["c"]).succeeds()).unwrap();
    state["pid"].as_u64().and_then(|pid| pid.try_into().ok()).unwrap()
}

#[test]
fn one_in_the_foreground_is_told_on_with_ours() {
    let (runtime, manager) = (Runtime::under_test(), Manager::new());
    let bundle = Bundle::running("notify STATUS=away FDSTORE=1 READY=1");
    let mut run = manager.hears_of(command(&runtime, "run", &bundle, &[])).spawn().unwrap();
    manager.hears(run.id());
    assert!(run.wait().unwrap().success());
    manager.heard_no_more();
    assert!(runtime.is_empty());
}

#[test]
fn one_that_says_more_at_once_is_heard_too() {
    need!(is_husk(), "runc looks at what a message begins with");
    let (runtime, manager) = (Runtime::under_test(), Manager::new());
    let bundle = Bundle::running("notify STATUS=here,READY=1,MAINPID=7");
    let mut run = manager.hears_of(command(&runtime, "run", &bundle, &[])).spawn().unwrap();
    manager.hears(run.id());
    assert!(run.wait().unwrap().success());
    manager.heard_no_more();
}

#[test]
fn a_detached_run_waits_for_it() {
    let (runtime, manager) = (Runtime::under_test(), Manager::new());
    let bundle = Bundle::running("notify READY=1");
    let file = runtime.root().join("pid");
    let options = ["--detach", "--pid-file", file.to_str().unwrap()];
    let mut run = manager.hears_of(command(&runtime, "run", &bundle, &options)).spawn().unwrap();
    assert_eq!(manager.next().0, "READY=1\n");
    let pid = std::fs::read_to_string(&file).unwrap();
    assert_eq!(manager.next().0, format!("MAINPID={pid}\n"));
    assert!(run.try_wait().unwrap().is_none(), "it waits until it was heard");
    drop(manager.next());
    assert!(run.wait().unwrap().success());
    std::fs::remove_file(file).unwrap();
}

#[test]
fn start_waits_for_it() {
    let (runtime, manager) = (Runtime::under_test(), Manager::new());
    let bundle = Bundle::running("notify READY=1");
    assert!(manager.hears_of(command(&runtime, "create", &bundle, &[])).status().unwrap().success());
    let pid = pid(&runtime);
    let mut start = runtime.command("start");
    start.arg("c");
    let mut start = manager.hears_of(start).spawn().unwrap();
    manager.hears(pid);
    assert!(start.wait().unwrap().success());
    // `delete` also removes everything that was set up for notifications.
    runtime.call("delete", &["--force", "c"]).succeeds();
    assert!(runtime.is_empty());
}

#[test]
fn one_that_ends_without_a_word_keeps_nobody_waiting() {
    need!(is_husk(), "runc waits for ever for a word");
    let (runtime, manager) = (Runtime::under_test(), Manager::new());
    let bundle = Bundle::running("exit 0");
    assert!(manager.hears_of(command(&runtime, "run", &bundle, &["--detach"])).status().unwrap().success());
    manager.heard_no_more();
    need!(is_husk(), "runc waits for ever in the foreground");
    runtime.call("delete", &["--force", "c"]).succeeds();
    let seen = manager.hears_of(command(&runtime, "run", &bundle, &[])).status().unwrap();
    assert!(seen.success());
    manager.heard_no_more();
}

#[test]
fn the_container_is_shown_a_socket_and_no_more() {
    need!(is_husk(), "runc waits for ever for a word, and lets no configuration say where");
    let (runtime, manager) = (Runtime::under_test(), Manager::new());
    let look = |words: &str, variables: &[&str]| {
        let bundle = Bundle::running(words).with("/process/env", json!(variables));
        let mut run = manager.hears_of(command(&runtime, "run", &bundle, &[]));
        String::from_utf8(run.stdout(Stdio::piped()).output().unwrap().stdout).unwrap()
    };
    assert_eq!(look("list /run/notify", &[]), "notify.sock\n");
    assert!(look("env", &[]).contains("NOTIFY_SOCKET=/run/notify/notify.sock\n"));
    let options = look("mount /run/notify", &[]);
    for option in ["ro", "nosuid", "nodev", "noexec"] {
        assert!(options.contains(option), "{options}");
    }
    assert!(look("env", &["NOTIFY_SOCKET=/other"]).contains("NOTIFY_SOCKET=/other\n"));
}

#[test]
fn without_the_variable_there_is_nothing() {
    let bundle = Bundle::running("list /");
    let found = Runtime::under_test().run(&bundle).succeeds();
    assert!(!found.lines().any(|name| name == "run"), "{found}");
    assert!(!Runtime::under_test().run(&Bundle::running("env")).succeeds().contains("NOTIFY_SOCKET"));
}

// The variable may name the socket of a service manager that has ended.
#[test]
fn unreachable_notify_socket_is_a_warning() {
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("env");
    let stale = |mut command: Command| {
        runtime.detached({
            command.env("NOTIFY_SOCKET", "/no/socket");
            command
        })
    };
    let seen = stale(command(&runtime, "run", &bundle, &[]));
    assert!(!seen.succeeds().contains("NOTIFY_SOCKET") || !is_husk());
    need!(is_husk(), "runc goes on without a word");
    seen.says("warning: NOTIFY_SOCKET: connect /no/socket: no such file or directory; readiness will not be");
    assert!(runtime.is_empty());

    // The same holds for a container that was created with a socket.
    let manager = Manager::new();
    assert!(manager.hears_of(command(&runtime, "create", &bundle, &[])).status().unwrap().success());
    let mut start = runtime.command("start");
    start.arg("c");
    let seen = stale(start);
    seen.succeeds();
    seen.says("warning: NOTIFY_SOCKET: connect /no/socket");
}
