//! Errors: which act they name, and why.

use super::{failure, is_readable};
use crate::support::{Held, observe, until_asleep};
use husk_spawn::{Adopted, Command, Error, IdMap, Namespaces, Reason, Signal, Step};
use rustix::process::{Pid, kill_process_group};
use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::thread;

#[test]
fn first_query_reports_what_failed() {
    let absent = "exec /no/such: No such file or directory (os error 2)";
    let command = Command::new("/no/such");
    assert_eq!(failure(&command), absent);
    assert_eq!(command.output().unwrap_err().to_string(), absent);
    assert_eq!(command.spawn_and_exec().unwrap_err().to_string(), absent);
    assert_eq!(command.spawn().unwrap().wait().unwrap_err().to_string(), absent);
    assert_eq!(command.spawn().unwrap().wait_for_exec().unwrap_err().to_string(), absent);

    let mut child = command.spawn().unwrap();
    assert!(is_readable(&child, None));
    assert_eq!(child.try_wait().unwrap_err().to_string(), absent);
    assert_eq!(child.wait().unwrap_err().to_string(), absent, "the error is reported again");
}

#[test]
fn error_names_the_step() {
    let mut command = Command::new("true");
    assert_eq!(
        failure(command.current_dir("/no/such\n")),
        "cwd /no/such\\n: No such file or directory (os error 2)"
    );
    let mut command = Command::new("/");
    assert_eq!(failure(&command), "exec /: Permission denied (os error 13)");
    command = Command::new("true");
    command.step(Step::Symlink { target: c"a", path: c"/proc/self/exe" });
    assert_eq!(failure(&command), "symlink /proc/self/exe -> a: File exists (os error 17)");
}

#[test]
fn nul_byte_in_a_string_is_an_error() {
    let failures = [
        failure(Command::new("true").arg("a\0b")),
        failure(Command::new("true").arg0("a\0b")),
        failure(Command::new("true").env("NAME", "a\0b")),
        failure(Command::new("true").current_dir("a\0b")),
        failure(&Command::new("/a\0b")),
    ];
    for (failure, act) in failures.iter().zip(["a\0b", "a\0b", "NAME=a\0b", "a\0b", "/a\0b"]) {
        assert_eq!(*failure, format!("string {act:?}: contains a NUL byte"));
    }
}

#[test]
fn contradicting_settings_are_refused() {
    let one = [IdMap { inside: 0, outside: 0, count: 1 }];
    let null = || File::open("/dev/null").unwrap();
    let mut terminal = Command::new("true");
    let mut join = Command::new("true");
    // Only this process can map these ids, so the child waits for it while it waits for the child.
    let others = [IdMap { inside: 0, outside: 4711, count: 1 }];
    let mut join_time = Command::new("true");
    join_time.new_namespaces(Namespaces::USER).uid_map(&others).join(null(), Namespaces::TIME);
    let failures = [
        failure(Command::new("true").uid_map(&one)),
        failure(Command::new("true").gid_map(&one)),
        failure(Command::new("true").hostname("mine")),
        failure(terminal.controlling_terminal()),
        failure(join.join(null(), Namespaces::PID).new_namespaces(Namespaces::PID)),
        failure(Command::new("true").join(null(), Namespaces::PID).pids(&[4711])),
        failure(&join_time),
    ];
    let wanted = [
        "id maps: only a new user namespace has its ids mapped",
        "id maps: only a new user namespace has its ids mapped",
        "hostname: would be set for the whole host, without a UTS namespace",
        "controlling terminal: only a new session can take one",
        "join: a pid or time namespace cannot be both joined and new",
        "pids: cannot be chosen in a pid namespace that is joined",
        "join time: cannot be had with a child that waits for us",
    ];
    assert_eq!(failures, wanted);
}

#[test]
fn io_error_keeps_the_kind() {
    let kind = |error: Error| {
        let kind = error.kind();
        let number = error.raw_os_error();
        let text = error.to_string();
        let error = io::Error::from(error);
        assert_eq!((error.kind(), error.to_string()), (kind, text));
        (kind, number)
    };
    let status = |program: &str, argument: &str| Command::new(program).arg(argument).status().unwrap_err();
    assert_eq!(kind(status("/no/such", "")), (io::ErrorKind::NotFound, Some(2)));
    assert_eq!(kind(status("/", "")), (io::ErrorKind::PermissionDenied, Some(13)));
    assert_eq!(kind(status("true", "\0")), (io::ErrorKind::InvalidInput, None));
    assert_eq!(kind(died()), (io::ErrorKind::Other, None));
}

/// Returns the error of a child that is killed between clone and exec.
fn died() -> Error {
    let mut command = Command::new("true");
    let held = Held::before_exec(&mut command);
    let mut child = command.spawn().unwrap();
    held.wait(&child);
    // Wait until the child is in the step after the one that woke this process.
    until_asleep(&format!("/proc/{}", child.id()));
    child.kill().unwrap();
    child.wait().unwrap_err()
}

#[test]
fn child_killed_before_exec_is_reported_with_its_step() {
    let error = died();
    assert_eq!(error.reason(), Reason::Died(ExitStatus::from_raw(9)));
    assert!(error.act().starts_with("await "), "{error}");
    assert!(error.to_string().ends_with(": killed by signal 9 before exec"), "{error}");
}

#[test]
fn wait_for_exec_fails_if_the_child_is_killed() {
    let mut command = Command::new("true");
    let held = Held::before_exec(&mut command);
    let mut child = command.spawn().unwrap();
    held.wait(&child);
    child.kill().unwrap();
    let error = child.wait_for_exec().unwrap_err();
    assert_eq!(error.reason(), Reason::Died(ExitStatus::from_raw(9)));

    // Here the caller is suspended and knows no pid, so the child is killed by its process group.
    let leader = observe(|command| command.process_group(0));
    let group = leader.child.id().cast_signed();
    command.process_group(group);
    thread::scope(|scope| {
        let starts = scope.spawn(|| command.spawn_and_exec().map(drop));
        held.wait_unseen();
        kill_process_group(Pid::from_raw(group).unwrap(), rustix::process::Signal::KILL).unwrap();
        let error = starts.join().unwrap().unwrap_err();
        assert_eq!(error.reason(), Reason::Died(ExitStatus::from_raw(9)));
    });
}

#[test]
fn adopted_child_can_be_waited_for() {
    let adopted = |script: &str| {
        // Only the pid is known to the test.
        let child = std::process::Command::new("sh").args(["-c", script]).spawn();
        Adopted::new(child.unwrap().id().cast_signed()).unwrap()
    };
    let mut other = adopted("exit 7");
    assert_eq!(other.wait().unwrap().code(), Some(7));
    assert_eq!(other.try_wait().unwrap().and_then(|status| status.code()), Some(7));
    other.signal(Signal::KILL).unwrap();

    let mut other = adopted("exec sleep 1000");
    assert!(PathBuf::from(format!("/proc/{}", other.id())).exists());
    assert_eq!(other.try_wait().unwrap(), None);
    other.signal(Signal::TERM).unwrap();
    assert_eq!(other.wait().unwrap().signal(), Some(15));

    // Invalid pids, and a process that is not a child of this one.
    for pid in [0, -1, 1] {
        assert!(Adopted::new(pid).is_err(), "{pid}");
    }
}
