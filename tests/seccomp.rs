//! Checks filters of system calls, and agents that decide about the calls that a filter passes to them.

use crate::util::{Bundle, Runtime, is_husk, is_root, need};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde_json::{Value, json};
use std::fs;
use std::io::{IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Stdio;
use std::thread::{Scope, ScopedJoinHandle};

/// Returns a bundle whose program calls getcwd, with this action and this agent's socket.
fn notifying(agent: &Path, action: Value) -> Bundle {
    let profile = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "listenerPath": agent,
        "listenerMetadata": "for the agent",
        "syscalls": [{ "names": ["getcwd"], "action": action }]
    });
    Bundle::running("cwd")
        .with("/linux/seccomp", profile)
        .with("/annotations", json!({ "org.example.key": "value" }))
}

/// Returns the state that an agent is sent, and the listener.
fn accept(agent: &UnixListener) -> (Value, OwnedFd) {
    let (mut socket, _) = agent.accept().unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut text = vec![0; 4096];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let length = recvmsg(&socket, &mut [IoSliceMut::new(&mut text)], &mut ancillary, flags).unwrap().bytes;
    let received = ancillary.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    let [listener] = <[OwnedFd; 1]>::try_from(received.collect::<Vec<_>>()).expect("one descriptor");
    text.truncate(length);
    socket.read_to_end(&mut text).unwrap();
    (serde_json::from_slice(&text).unwrap(), listener)
}

/// Acts while the agent waits, then connects to the agent, which would otherwise wait forever if no container did.
fn meanwhile<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    agent: &'s Path,
    act: impl FnOnce() -> T + Send + 's,
) -> ScopedJoinHandle<'s, T> {
    scope.spawn(move || {
        let done = act();
        // Tolerated: usually the runtime has connected already, and the agent is gone.
        drop(UnixStream::connect(agent));
        done
    })
}

/// Waits until a process makes a call that the agent decides about.
fn until_asked(listener: &OwnedFd) {
    let mut events = [PollFd::new(listener, PollFlags::IN)];
    poll(&mut events, None).unwrap();
    assert!(events[0].revents().contains(PollFlags::IN), "the listener was closed");
}

#[track_caller]
fn is_listener(listener: &OwnedFd) {
    let link = fs::read_link(format!("/proc/self/fd/{}", listener.as_raw_fd())).unwrap();
    assert_eq!(link, Path::new("anon_inode:seccomp notify"));
}

#[test]
fn agent_decides_about_calls() {
    need!(is_husk(), "runc calls getcwd itself, which this agent denies");
    let runtime = Runtime::under_test();
    let directory = tempfile::tempdir().unwrap();
    for no_new_privileges in [true, false] {
        need!(no_new_privileges || is_root(), "needs root to load a filter without no_new_privs");
        let path = directory.path().join(format!("agent-{no_new_privileges}"));
        let agent = UnixListener::bind(&path).unwrap();
        let bundle = notifying(&path, json!("SCMP_ACT_NOTIFY"))
            .with("/process/noNewPrivileges", json!(no_new_privileges))
            .with("/process/capabilities", json!({}));
        let seen = std::thread::scope(|scope| {
            let run = meanwhile(scope, &path, || runtime.run(&bundle));
            let (state, listener) = accept(&agent);
            is_listener(&listener);
            let pid = &state["pid"];
            let wanted = json!({
                "ociVersion": state["ociVersion"],
                "fds": ["seccompFd"],
                "pid": pid,
                "metadata": "for the agent",
                "state": {
                    "ociVersion": state["ociVersion"],
                    "id": "c",
                    "status": "creating",
                    "pid": pid,
                    "bundle": bundle.path(),
                    "annotations": { "org.example.key": "value" }
                }
            });
            assert_eq!(state, wanted);
            assert!(pid.as_i64().is_some_and(|pid| pid > 0), "{pid}");
            until_asked(&listener);
            // When the agent closes the listener, the kernel answers every call with ENOSYS.
            drop(listener);
            run.join().unwrap()
        });
        seen.fails(1, "os error 38");
    }
}

#[test]
fn agent_receives_the_listener_at_create() {
    let runtime = Runtime::under_test();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("agent.sock");
    let agent = UnixListener::bind(&path).unwrap();
    let bundle = notifying(&path, json!("SCMP_ACT_NOTIFY"));
    let mut command = runtime.shell("exec \"$@\"", "create", &bundle, &[]);
    let mut created = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let listener = std::thread::scope(|scope| {
        let create = meanwhile(scope, &path, || created.wait().unwrap());
        let (_, listener) = accept(&agent);
        assert!(create.join().unwrap().success());
        listener
    });
    assert_eq!(runtime.status(), "created");
    runtime.call("start", &["c"]).succeeds();
    until_asked(&listener);
    drop(listener);
    let mut said = String::new();
    created.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("os error 38"), "{said}");
}

#[test]
fn missing_agent_fails_create() {
    let runtime = Runtime::under_test();
    let directory = tempfile::tempdir().unwrap();
    let bundle = notifying(&directory.path().join("nobody"), json!("SCMP_ACT_NOTIFY"));
    runtime.run(&bundle).fails(1, "no such file or directory");
    assert!(runtime.is_empty());
    let profile = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{ "names": ["getcwd"], "action": "SCMP_ACT_NOTIFY" }]
    });
    let bundle = Bundle::running("cwd").with("/linux/seccomp", profile);
    runtime.run(&bundle).fails(1, "seccomp listenerPath is not set");
    assert!(runtime.is_empty());
    // If no rule notifies the agent, husk does not connect to it.
    let bundle = notifying(&directory.path().join("nobody"), json!("SCMP_ACT_ALLOW"));
    runtime.run(&bundle).prints("/");
}

#[test]
fn notify_rule_that_cannot_work_is_refused() {
    need!(is_husk(), "runc's messages name no field");
    let runtime = Runtime::under_test();
    let path = Path::new("/no/such");
    let refused = |pointer: &str, value: Value, message: &str| {
        let bundle = notifying(path, json!("SCMP_ACT_NOTIFY")).with(pointer, value);
        runtime.run(&bundle).fails(1, message);
    };
    // The write that announces the listener's number would itself wait for the listener.
    let write = json!([
        { "names": ["getcwd"], "action": "SCMP_ACT_ERRNO" },
        { "names": ["write"], "action": "SCMP_ACT_NOTIFY" }
    ]);
    refused(
        "/linux/seccomp/syscalls",
        write,
        "linux.seccomp.syscalls[1]: SCMP_ACT_NOTIFY cannot be used for the write syscall",
    );
    refused(
        "/linux/seccomp/defaultAction",
        json!("SCMP_ACT_NOTIFY"),
        "linux.seccomp.defaultAction: SCMP_ACT_NOTIFY cannot be the default",
    );
    let conflict = json!([
        { "names": ["ioctl"], "action": "SCMP_ACT_LOG", "args": [{ "index": 0, "value": 1, "op": "SCMP_CMP_EQ" }] },
        { "names": ["ioctl"], "action": "SCMP_ACT_TRAP", "args": [{ "index": 0, "value": 1, "op": "SCMP_CMP_EQ" }] }
    ]);
    refused(
        "/linux/seccomp/syscalls",
        conflict,
        "linux.seccomp.syscalls[1].args: an earlier entry has another action",
    );
    refused("/linux/seccomp/listenerPath", json!("agent"), "linux.seccomp.listenerPath: \"agent\" is not");
    refused("/linux/seccomp/listenerPath", json!(""), "linux.seccomp.listenerMetadata: needs listenerPath");
}

#[test]
fn filter_that_kills_execve_fails_start() {
    need!(is_husk(), "runc's start does not report the failure");
    const DIED: &str = "linux.seccomp: container process died: killed by signal 31 (bad system call) by its seccomp filter before the program began";
    let profile = |action: &str| {
        json!({
            "defaultAction": "SCMP_ACT_ALLOW",
            "syscalls": [{ "names": ["execve", "execveat"], "action": action }]
        })
    };
    let filters = [
        ("SCMP_ACT_KILL_PROCESS", true),
        ("SCMP_ACT_KILL_THREAD", true),
        ("SCMP_ACT_TRAP", true),
        // Only root may load a filter for a program that may gain privileges. husk loads that filter earlier.
        ("SCMP_ACT_KILL_PROCESS", !is_root()),
    ];
    for (action, no_new_privileges) in filters {
        let bundle = || {
            Bundle::running("exit 0")
                .with("/linux/seccomp", profile(action))
                .with("/process/noNewPrivileges", json!(no_new_privileges))
        };
        let runtime = Runtime::under_test();
        runtime.run(&bundle()).fails(1, DIED);
        runtime.run_detached(&bundle(), &[]).fails(1, DIED);
        assert!(runtime.is_empty());
        // The process's reaper may be faster than `start`, which then does not know the signal, or even that the
        // program never began.
        let is_known = (0..50).any(|_| {
            runtime.create(&bundle()).succeeds();
            let started = runtime.call("start", &["c"]);
            assert_eq!(runtime.status(), "stopped");
            runtime.call("delete", &["c"]).succeeds();
            assert!(runtime.is_empty());
            let is_known = !started.0.status.success();
            if is_known {
                started.fails(1, "before the program began");
            }
            is_known
        });
        assert!(is_known, "{action}");
    }
    // A program that its filter kills has begun, even if its very first call kills it.
    let killed = |call: &str| {
        json!({
            "defaultAction": "SCMP_ACT_ALLOW",
            "syscalls": [{ "names": [call], "action": "SCMP_ACT_KILL_PROCESS" }]
        })
    };
    for call in ["brk", "getcwd"] {
        let bundle = Bundle::running("cwd").with("/linux/seccomp", killed(call));
        let seen = Runtime::under_test().run(&bundle);
        assert_eq!((seen.0.status.code(), seen.0.stderr.as_slice()), (Some(128 + 31), &b""[..]), "{call}");
        let runtime = Runtime::under_test();
        runtime.create(&bundle).succeeds();
        runtime.call("start", &["c"]).succeeds();
    }
    exec_fails(&profile("SCMP_ACT_KILL_PROCESS"), DIED);
}

/// Asserts that `exec` fails with this message in a container that was started without a filter. The configuration gets
/// the filter after that.
fn exec_fails(profile: &Value, message: &str) {
    let mut bundle = Bundle::running("wait");
    let runtime = Runtime::started(&bundle);
    bundle.config["linux"]["seccomp"] = profile.clone();
    bundle.write();
    runtime.call("exec", &["c", "/guest", "exit", "0"]).fails(255, message);
    runtime.call("exec", &["--detach", "c", "/guest", "exit", "0"]).fails(255, message);
    assert_eq!(runtime.status(), "running");
}

#[test]
fn every_flag_and_architecture_is_accepted() {
    need!(is_husk(), "what runc accepts depends on its libseccomp");
    let profile = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32", "SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"],
        "flags": [
            "SECCOMP_FILTER_FLAG_TSYNC",
            "SECCOMP_FILTER_FLAG_LOG",
            "SECCOMP_FILTER_FLAG_SPEC_ALLOW",
            "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV"
        ],
        "syscalls": [{ "names": ["getcwd"], "action": "SCMP_ACT_ERRNO", "errnoRet": 7 }]
    });
    let bundle = Bundle::running("cwd").with("/linux/seccomp", profile);
    Runtime::under_test().run(&bundle).fails(1, "os error 7");
}

#[test]
fn unknown_syscalls_are_refused_by_annotation() {
    need!(is_husk(), "the annotation is crun's");
    let profile = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{ "names": ["no_such_call"], "action": "SCMP_ACT_ERRNO" }]
    });
    let bundle = |value| {
        let annotations = json!({ "run.oci.seccomp_fail_unknown_syscall": value });
        Bundle::running("exit 0").with("/linux/seccomp", profile.clone()).with("/annotations", annotations)
    };
    Runtime::under_test().run(&bundle("0")).succeeds();
    Runtime::under_test().run(&bundle("1")).fails(1, "no_such_call");
}
