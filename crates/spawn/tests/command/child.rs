//! Waiting for a child, signalling it, and dropping it.

use super::is_readable;
use crate::support::{Dir, observe, program};
use husk_spawn::{Command, Signal, Stdio};
use rustix::event::Timespec;
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::thread;

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
