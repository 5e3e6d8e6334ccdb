//! Runs tests that hang on purpose, each in its own run, and checks that they are killed.

#![expect(clippy::unwrap_used, reason = "tests")]

use husk_deadline::{VARIABLE, watch};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::env;
use std::io::pipe;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Output, Stdio};

/// An environment variable that makes the tests hang.
const ON_PURPOSE: &str = "HANG_ON_PURPOSE";

/// Waits for a minute, which is longer than the limit, but ends if the limit does not work.
fn hang_on(fd: impl AsFd) {
    let minute = Timespec { tv_sec: 60, tv_nsec: 0 };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&minute)).unwrap();
}

fn is_on_purpose() -> bool {
    env::var_os(ON_PURPOSE).is_some()
}

/// Starts a process that ends at the end of its input.
fn cat() -> Child {
    Command::new("cat").stdin(Stdio::piped()).spawn().unwrap()
}

#[test]
#[ignore = "hangs on purpose"]
fn hangs_with_a_process() {
    if !is_on_purpose() {
        return;
    }
    watch(&[]);
    let mut cat = cat();
    hang_on(pidfd_open(Pid::from_child(&cat), PidfdFlags::empty()).unwrap());
    // The process has been killed or still runs, but has not ended by itself.
    let ended = cat.try_wait().unwrap();
    cat.kill().unwrap();
    assert_eq!(ended.map(|status| status.signal()), None, "the test fails by its own assertion");
}

#[test]
#[ignore = "hangs on purpose"]
fn hangs_by_itself() {
    if is_on_purpose() {
        watch(&[]);
        let (reader, _writer) = pipe().unwrap();
        hang_on(reader);
    }
}

#[test]
#[ignore = "hangs on purpose"]
fn hangs_unregistered() {
    if is_on_purpose() {
        // Only another thread registers, and it ends.
        std::thread::spawn(|| watch(&[])).join().unwrap();
        let (reader, _writer) = pipe().unwrap();
        hang_on(reader);
    }
}

/// Runs one of the tests above with a time limit of one second.
fn run(test: &str) -> (Output, String) {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored"]).env(ON_PURPOSE, "").env(VARIABLE, "1");
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    (output, said)
}

#[test]
fn hanging_test_with_a_process_fails_with_its_name_and_stacks() {
    let (output, said) = run("hangs_with_a_process");
    // libtest itself ends the run, after the other tests.
    assert_eq!(output.status.code(), Some(101), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("the test fails by its own assertion"));
    assert!(
        said.contains("deadline: hangs_with_a_process takes too long. What it started is killed.\n"),
        "{said}"
    );
    for line in ["its thread", "process ", "cmdline  cat\n", "status   State S (sleeping), PPid ", "syscall "]
    {
        assert!(said.contains(&format!("\n  {line}")), "{line}: {said}");
    }
}

#[test]
fn run_ends_if_a_test_hangs_without_a_process() {
    for (test, name) in [("hangs_by_itself", "hangs_by_itself"), ("hangs_unregistered", "hangs_unregiste")] {
        let (output, said) = run(test);
        assert_eq!(output.status.signal(), Some(9), "{said}");
        assert!(said.contains(&format!("deadline: {name} takes too long")), "{said}");
        assert!(said.contains(&format!("deadline: {name} is still there. The run ends.\n")), "{said}");
    }
}
