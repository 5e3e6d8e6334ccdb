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
    fn with_socket(&self, mut command: Command) -> Command {
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
    fn receives_readiness_of(&self, pid: u32) {
        assert_eq!(self.next().0, "READY=1\n");
        assert_eq!(self.next().0, format!("MAINPID={pid}\n"));
        let (barrier, fd) = self.next();
        assert_eq!(barrier, "BARRIER=1");
        drop(fd.expect("a descriptor to close"));
    }

    fn received_nothing_more(&self) {
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
fn readiness_in_the_foreground_is_forwarded_with_the_pid() {
    let (runtime, manager) = (Runtime::under_test(), Manager::new());
    let bundle = Bundle::running("notify STATUS=away FDSTORE=1 READY=1");
    let mut run = manager.with_socket(command(&runtime, "run", &bundle, &[])).spawn().unwrap();
    manager.receives_readiness_of(run.id());
    assert!(run.wait().unwrap().success());
    manager.received_nothing_more();
    assert!(runtime.is_empty());
}

#[test]
fn readiness_among_other_fields_is_recognized() {
    need!(is_husk(), "runc only looks at the start of a message");
    let (runtime, manager) = (Runtime::under_test(), Manager::new());
    let bundle = Bundle::running("notify STATUS=here,READY=1,MAINPID=7");
    let mut run = manager.with_socket(command(&runtime, "run", &bundle, &[])).spawn().unwrap();
    manager.receives_readiness_of(run.id());
    assert!(run.wait().unwrap().success());
    manager.received_nothing_more();
}

#[test]
fn detached_run_waits_for_readiness() {
    let (runtime, manager) = (Runtime::under_test(), Manager::new());
    let bundle = Bundle::running("notify READY=1");
    let file = runtime.root().join("pid");
    let options = ["--detach", "--pid-file", file.to_str().unwrap()];
    let mut run = manager.with_socket(command(&runtime, "run", &bundle, &options)).spawn().unwrap();
    assert_eq!(manager.next().0, "READY=1\n");
    let pid = std::fs::read_to_string(&file).unwrap();
    assert_eq!(manager.next().0, format!("MAINPID={pid}\n"));
    assert!(run.try_wait().unwrap().is_none(), "the runtime does not wait for the barrier");
    drop(manager.next());
    assert!(run.wait().unwrap().success());
    std::fs::remove_file(file).unwrap();
}

#[test]
fn start_waits_for_readiness() {
    let (runtime, manager) = (Runtime::under_test(), Manager::new());
    let bundle = Bundle::running("notify READY=1");
    assert!(manager.with_socket(command(&runtime, "create", &bundle, &[])).status().unwrap().success());
    let pid = pid(&runtime);
    let mut start = runtime.command("start");
    start.arg("c");
    let mut start = manager.with_socket(start).spawn().unwrap();
    manager.receives_readiness_of(pid);
    assert!(start.wait().unwrap().success());
    // `delete` also removes everything that was set up for notifications.
    runtime.call("delete", &["--force", "c"]).succeeds();
    assert!(runtime.is_empty());
}

#[test]
fn container_that_ends_without_readiness_does_not_block() {
    need!(is_husk(), "runc blocks until it receives a message");
    let (runtime, manager) = (Runtime::under_test(), Manager::new());
    let bundle = Bundle::running("exit 0");
    assert!(
        manager.with_socket(command(&runtime, "run", &bundle, &["--detach"])).status().unwrap().success()
    );
    manager.received_nothing_more();
    need!(is_husk(), "runc blocks forever in the foreground");
    runtime.call("delete", &["--force", "c"]).succeeds();
    let seen = manager.with_socket(command(&runtime, "run", &bundle, &[])).status().unwrap();
    assert!(seen.success());
    manager.received_nothing_more();
}

#[test]
fn container_sees_only_the_socket() {
    need!(is_husk(), "runc blocks until it receives a message, and the path cannot be configured");
    let (runtime, manager) = (Runtime::under_test(), Manager::new());
    let look = |words: &str, variables: &[&str]| {
        let bundle = Bundle::running(words).with("/process/env", json!(variables));
        let mut run = manager.with_socket(command(&runtime, "run", &bundle, &[]));
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
fn nothing_is_mounted_without_the_variable() {
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
    need!(is_husk(), "runc ignores it silently");
    seen.says("warning: NOTIFY_SOCKET: connect /no/socket: no such file or directory; readiness will not be");
    assert!(runtime.is_empty());

    // `start` warns too, although the container was created with a socket that worked.
    let manager = Manager::new();
    assert!(manager.with_socket(command(&runtime, "create", &bundle, &[])).status().unwrap().success());
    let mut start = runtime.command("start");
    start.arg("c");
    let seen = stale(start);
    seen.succeeds();
    seen.says("warning: NOTIFY_SOCKET: connect /no/socket");
}
