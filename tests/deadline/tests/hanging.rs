//! Tests that hang on purpose are ended, each in a run of its own.

#![expect(clippy::unwrap_used, reason = "tests")]

use husk_deadline::{VARIABLE, watch};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::env;
use std::io::pipe;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Output, Stdio};

/// Set in the runs in which a test is to hang.
const ON_PURPOSE: &str = "HANG_ON_PURPOSE";

/// Waits as good as for ever: long enough to be ended, and with an end if nobody ends it.
fn hang_on(fd: impl AsFd) {
    let minute = Timespec { tv_sec: 60, tv_nsec: 0 };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&minute)).unwrap();
}

fn is_on_purpose() -> bool {
    env::var_os(ON_PURPOSE).is_some()
}

/// A process that ends when its input does.
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
    // It has been killed, or is alive and did not end by itself.
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
        // Another thread is known, and ends.
        std::thread::spawn(|| watch(&[])).join().unwrap();
        let (reader, _writer) = pipe().unwrap();
        hang_on(reader);
    }
}

/// Runs one of the tests above, where a test may take a second.
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
    // libtest's own end: the other tests of a run go on.
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
