//! Steps for the session, its terminal, and signals.

use super::{R0, after, failure, fd, list, text};
use crate::support::{Observed, Terminal, guest, observe, own_root};
use husk_script::Request;
use husk_spawn::sys::Pid;
use husk_spawn::sys::file::{Mode, OFlags};
use husk_spawn::sys::signal::SignalSet;
use husk_spawn::{Command, Namespaces, Reason, Signal, Step};
use std::thread;

// Session and terminal. Fields of stat: 5 process group, 6 session, 7 terminal, 8 foreground group.

#[test]
pub(super) fn setsid() {
    let observed = after([Step::Setsid]);
    let pid = i64::from(observed.child.id());
    assert_eq!([observed.stat(5), observed.stat(6)], [pid, pid]);
}

#[test]
pub(super) fn setpgid() {
    let leader = after([Step::Setpgid { group: None }]);
    let pid = i64::from(leader.child.id());
    assert_eq!(leader.stat(5), pid);
    let group = Pid::from_raw(leader.child.id().cast_signed());
    assert_eq!(after([Step::Setpgid { group }]).stat(5), pid);
}

#[test]
pub(super) fn tiocsctty() {
    let terminal = Terminal::new();
    let path = text(&terminal.path);
    let open = Step::Open { path, flags: OFlags::RDWR | OFlags::NOCTTY, mode: Mode::empty(), out: R0 };
    let observed = after([
        open,
        Step::Dup3 { from: R0.into(), to: fd(509) },
        Step::Setsid,
        Step::Tiocsctty { terminal: fd(509) },
    ]);
    assert_ne!(observed.stat(7), 0);
    assert_eq!(after([Step::Setsid]).stat(7), 0);
}

#[test]
pub(super) fn tcsetpgrp() {
    // Only a process of the terminal's session may do this, so the test creates one.
    let terminal = Terminal::new();
    let mut session = guest("foreground");
    let output = session.new_session().stdin(terminal.slave()).controlling_terminal().output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "from its own group to the child's\n");
}

// Signals.

#[test]
pub(super) fn reset_handlers() {
    // Visible only in a child of `clone`: `clone3` resets the handlers before the first step.
    let said = guest("handlers-without-clone3").output().unwrap().stdout;
    assert!(said.ends_with(b"\nfalse\n"));
}

#[test]
pub(super) fn ignore_signal_and_default_action() {
    let signal = Signal::VTALRM;
    let bit = SignalSet::EMPTY.with(signal).bits();
    let is_ignored =
        |observed: Observed| u64::from_str_radix(&observed.status("SigIgn"), 16).unwrap() & bit != 0;
    assert!(!is_ignored(after([])));
    assert!(is_ignored(after([Step::IgnoreSignal { signal }])));
    assert!(!is_ignored(after([Step::IgnoreSignal { signal }, Step::DefaultAction { signal }])));
}

#[test]
pub(super) fn exit_on_signal() {
    // The first process of a pid namespace gets a signal while all are blocked, and then unblocks them.
    let signal = Signal::TERM;
    let ends_with = |disposition| {
        let ask = Step::Request { what: Request::Hooks };
        let through = Step::SignalMask { blocked: SignalSet::EMPTY };
        let mut command = Command::new("true");
        own_root(&mut command).new_namespaces(Namespaces::PID).notify_release();
        let mut child = command.final_steps(list([disposition, ask, through])).spawn().unwrap();
        assert_eq!(child.next_request().unwrap(), Some(Request::Hooks));
        child.signal(signal).unwrap();
        child.go_on().unwrap();
        child.wait().map_err(|error| error.reason())
    };
    assert!(
        ends_with(Step::DefaultAction { signal }).unwrap().success(),
        "the step does not change the process"
    );
    let Err(Reason::Died(status)) = ends_with(Step::ExitOnSignal { signal }) else { panic!("it went on") };
    assert_eq!(status.code(), Some(128 + signal.number()));
}

#[test]
pub(super) fn signal_mask() {
    let blocked = SignalSet::EMPTY.with(Signal::HUP).with(Signal::TERM);
    let observed = observe(|command| command.blocked_signals(blocked));
    assert_eq!(observed.status("SigBlk"), "0000000000004001");
}

#[test]
pub(super) fn parent_death_signal() {
    // The parent that dies is the thread that starts the child.
    let starts = || after([Step::ParentDeathSignal { signal: Signal::TERM, parent: None }]);
    assert_eq!(thread::spawn(starts).join().unwrap().ended_by(), Some(15));

    let gone = Step::ParentDeathSignal { signal: Signal::TERM, parent: Pid::from_raw(1 << 22) };
    assert_eq!(failure([gone]), "parent-death-signal 15: No such process (os error 3)");
}
