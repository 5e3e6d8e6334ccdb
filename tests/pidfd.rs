//! Checks `--pidfd-socket`, which sends the pidfd of the new process to the caller.

use crate::util::{Bundle, Receiver, Runtime, is_husk, need};
use rustix::process::{Signal, pidfd_send_signal};
use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};

/// Returns the pid that a pidfd refers to.
fn pid(process: &OwnedFd) -> String {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).unwrap();
    info.lines().find_map(|line| line.strip_prefix("Pid:\t")).expect("a pidfd").to_owned()
}

fn until_gone(process: &OwnedFd) {
    let mut events = [rustix::event::PollFd::new(process, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut events, None).unwrap();
}

#[test]
fn create_and_run_send_a_pidfd_of_their_process() {
    let runtime = Runtime::under_test();
    let receiver = Receiver::new();
    for verb in ["create", "run"] {
        let file = runtime.root().join("pid");
        let options = ["--pidfd-socket", &receiver.path(), "--pid-file", file.to_str().unwrap()];
        let bundle = Bundle::running("hang");
        match verb {
            "create" => runtime.create_with(&bundle, &options).succeeds(),
            _ => runtime.run_detached(&bundle, &[&options[..], &["--detach"]].concat()).succeeds(),
        };
        let process = receiver.received().0;
        assert_eq!(pid(&process), fs::read_to_string(&file).unwrap(), "{verb}");
        pidfd_send_signal(&process, Signal::KILL).unwrap();
        until_gone(&process);
        assert_eq!(runtime.status(), "stopped");
        runtime.call("delete", &["c"]).succeeds();
        fs::remove_file(file).unwrap();
    }
}

#[test]
fn exec_sends_a_pidfd_of_its_process() {
    let runtime = Runtime::under_test();
    let receiver = Receiver::new();
    let bundle = Bundle::running("wait");
    runtime.create(&bundle).succeeds();
    runtime.call("start", &["c"]).succeeds();
    let file = runtime.root().join("pid");
    let (socket, path) = (receiver.path(), file.to_str().unwrap());
    let options = ["--detach", "--pidfd-socket", &socket, "--pid-file", path, "c", "/guest", "hang"];
    runtime.call("exec", &options).succeeds();
    let process = receiver.received().0;
    assert_eq!(pid(&process), fs::read_to_string(&file).unwrap());
    pidfd_send_signal(&process, Signal::KILL).unwrap();
    until_gone(&process);
    assert_eq!(runtime.status(), "running");
    fs::remove_file(file).unwrap();
}

#[test]
fn unreachable_pidfd_socket_is_an_error_before_a_process_exists() {
    need!(is_husk(), "runc prints other messages");
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("exit 0");
    let wanted = "--pidfd-socket: connect /no/socket: no such file or directory";
    runtime.create_with(&bundle, &["--pidfd-socket", "/no/socket"]).fails(1, wanted);
    assert!(runtime.is_empty());
}

#[test]
fn create_accepts_no_subreaper() {
    need!(is_husk(), "runc's create does not support the option");
    let runtime = Runtime::under_test();
    runtime.create_with(&Bundle::running("exit 0"), &["--no-subreaper"]).succeeds();
}
