//! Waiting for a child, signalling it, and dropping it.

use super::is_readable;
use crate::support::{Dir, needs_root, observe, program};
use husk_spawn::{Command, Namespaces, Signal, Stdio};
use rustix::event::Timespec;
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::thread;
use std::time::Duration;

#[test]
fn child_can_be_waited_for_more_than_once() {
    let dir = Dir::new();
    let mut child = Command::new(dir.program("exits", program::exits(7))).spawn().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(7));
    assert_eq!(child.wait().unwrap().code(), Some(7));
    assert_eq!(child.try_wait().unwrap(), Some(ExitStatus::from_raw(7 << 8)));
    // Signals arrive too late, which is not an error.
    child.kill().unwrap();
    child.signal(Signal::TERM).unwrap();
}

#[test]
fn running_child_has_no_status() {
    let mut observed = observe(|command| command);
    let child = &mut observed.child;
    assert_eq!(child.try_wait().unwrap(), None);
    assert!(!is_readable(&*child, Some(&Timespec::default())));
    child.kill().unwrap();
    assert!(is_readable(&*child, None), "the descriptor is readable after the exit");
    assert_eq!(child.try_wait().unwrap().unwrap().signal(), Some(9));
}

#[test]
fn child_gets_the_signal() {
    let mut observed = observe(|command| command);
    observed.child.signal(Signal::USR1).unwrap();
    assert_eq!(observed.child.wait().unwrap().signal(), Some(Signal::USR1.number()));
}

#[test]
fn child_with_kill_on_drop_is_killed_when_dropped() {
    let dir = Dir::new();
    let mut command = Command::new(dir.program("holds", program::holds(7)));
    command.stdin(Stdio::piped()).stdout(Stdio::null());

    // The child's input is closed, so it ends by itself without being waited for.
    let child = command.spawn().unwrap();
    let pidfd = child.as_fd().try_clone_to_owned().unwrap();
    drop(child);
    let ended = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED).unwrap().unwrap();
    assert_eq!(ended.exit_status(), Some(7));

    let mut child = command.kill_on_drop().spawn().unwrap();
    let (pidfd, stdin) = (child.as_fd().try_clone_to_owned().unwrap(), child.stdin.take());
    drop(child);
    let waited = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
    assert_eq!(waited.unwrap_err(), Errno::CHILD, "the child has been reaped");
    drop(stdin);
}

#[test]
fn command_can_be_started_from_several_threads() {
    let dir = Dir::new();
    let command = Command::new(dir.program("exits", program::exits(7)));
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| command.status().unwrap().code())).collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), Some(7));
        }
    });
}

#[test]
fn wait_ends_at_its_timeout_or_with_the_child() {
    let mut observed = observe(|command| command);
    let child = &mut observed.child;
    // Closing its input would end it.
    let input = child.stdin.take();
    assert_eq!(child.wait_timeout(Duration::ZERO).unwrap(), None);
    assert_eq!(child.wait_timeout(Duration::from_millis(1)).unwrap(), None);
    drop(input);
    assert_eq!(child.wait_timeout(Duration::MAX).unwrap().unwrap().code(), Some(0));
    assert_eq!(child.wait_timeout(Duration::ZERO).unwrap().unwrap().code(), Some(0));

    let mut observed = observe(|command| command);
    assert!(observed.child.wait_timeout(Duration::from_secs(600)).unwrap().is_some(), "its input was closed");

    let error = Command::new("/no/such").spawn().unwrap().wait_timeout(Duration::MAX).unwrap_err();
    assert_eq!(error.to_string(), "exec /no/such: No such file or directory (os error 2)");
}

#[test]
fn wait_with_a_timeout_follows_a_second_process() {
    needs_root!();
    let kinds = Namespaces::PID;
    let other = observe(|command| command.new_namespaces(kinds));
    let pidfd = other.child.as_fd().try_clone_to_owned().unwrap();
    let mut joined = Command::new("sh").args(["-c", "exit 7"]).join(pidfd, kinds).spawn().unwrap();
    assert_eq!(joined.wait_timeout(Duration::MAX).unwrap().unwrap().code(), Some(7));
}

#[test]
fn debug_shows_the_command_as_a_shell_would_run_it() {
    let mut command = Command::new("ls");
    command.arg("-l").arg("two \"words\"").current_dir("/srv").env("A", "b c").env_remove("D");
    assert_eq!(format!("{command:?}"), r#"cd "/srv" && env -u D A="b c" "ls" "-l" "two \"words\"""#);
    let mut clear = Command::new("ls");
    clear.env("A", "b").env_clear().env("C", "d").arg0("dir");
    assert_eq!(format!("{clear:?}"), r#"env -i C="d" ["ls"] "dir""#);

    let plain = format!("{:#?}", Command::new("ls"));
    assert_eq!(plain, "Command {\n    program: \"ls\",\n    args: [],\n    ..\n}");
    let settings = format!("{:#?}", command.process_group(0).nice(3).kill_on_drop().uid(7));
    for line in ["cwd: Some(", "process_group: 0", "nice: Some(", "kill_on_drop: true", "uid: Some("] {
        assert!(settings.contains(line), "{settings}");
    }
}
