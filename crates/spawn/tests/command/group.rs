//! Signals to a child's process group.

use crate::support::{guest, observe, program};
use husk_spawn::sys::process::SockFilter;
use husk_spawn::{Command, Signal, Stdio};
use rustix::io::Errno;
use std::os::unix::process::ExitStatusExt as _;

/// Makes `pidfd_send_signal` with the flag for a process group fail with EINVAL, as before Linux 6.9.
const WITHOUT_GROUPS: [SockFilter; 6] = [
    SockFilter { code: 0x20, jt: 0, jf: 0, k: 0 },
    SockFilter { code: 0x15, jt: 0, jf: 3, k: 424 },
    // The lower half of the fourth argument.
    SockFilter { code: 0x20, jt: 0, jf: 0, k: 16 + 3 * 8 },
    SockFilter { code: 0x15, jt: 0, jf: 1, k: 4 },
    SockFilter { code: 0x06, jt: 0, jf: 0, k: 0x0005_0000 | 22 },
    SockFilter { code: 0x06, jt: 0, jf: 0, k: 0x7fff_0000 },
];

#[test]
fn group_is_killed_before_and_after_its_leader_was_waited_for() {
    let printed = |command: &Command| {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let with_number = "Ok(())\nOk(Some(9)) true\nOk(Some(0))\n\
        Err(\"signal 9 to group PID: its leader has been waited for; needs Linux 6.9\")\n";
    assert_eq!(printed(guest("kill-group").seccomp_filter(0, &WITHOUT_GROUPS)), with_number);

    let with_pidfd = printed(&guest("kill-group"));
    if with_pidfd != with_number {
        assert_eq!(with_pidfd, "Ok(())\nOk(Some(9)) true\nOk(Some(0))\nOk(())\ntrue\nOk(())\n");
    }
}

#[test]
fn group_gets_a_signal_as_soon_as_the_child_exists() {
    let dir = crate::support::Dir::new();
    let mut command = Command::new(dir.program("holds", program::holds(0)));
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).kill_on_drop();
    // At least one of these children has not created its group when this process signals it.
    for _ in 0..50 {
        let mut child = command.spawn().unwrap();
        let _input = child.stdin.take();
        child.signal_group(Signal::USR1).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::USR1.number()));
        child.signal_group(Signal::USR1).unwrap();
    }
}

#[test]
fn child_that_leads_no_group_is_killed_alone() {
    let mut other = observe(|command| command);
    let error = other.child.signal_group(Signal::TERM).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::SRCH.raw_os_error()));
    assert_eq!(error.act(), format!("signal 15 to group {}", other.child.id()));
    // This process is in the same group.
    other.child.kill_group().unwrap();
    assert_eq!(other.child.wait().unwrap().signal(), Some(9));
}
