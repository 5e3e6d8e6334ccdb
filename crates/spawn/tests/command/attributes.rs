//! Sessions, signals, limits, scheduling and identity of the program.

use super::failure;
use crate::support::{Dir, Terminal, is_root, needs_namespaces, needs_root, observe, own_root, skip};
use husk_script::sys::Gid;
use husk_script::sys::process::setgroups;
use husk_spawn::{Command, Reason, Resource, SchedAttr, Signal, SignalSet, Stdio};
use rustix::io::Errno;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::thread;

// Session, terminal, signals. Fields of stat: 5 process group, 6 session, 7 terminal, 8 foreground.

#[test]
fn new_session_and_process_group_are_set() {
    let leader = observe(|command| command.new_session());
    assert_eq!(leader.stat(6), i64::from(leader.child.id()));
    let leader = observe(|command| command.process_group(0));
    let group = leader.child.id();
    assert_eq!(leader.stat(5), i64::from(group));
    let member = observe(|command| command.process_group(group.cast_signed()));
    assert_eq!(member.stat(5), i64::from(group));
}

#[test]
fn controlling_terminal_is_set() {
    let terminal = Terminal::new();
    let observed =
        observe(|command| command.new_session().stdin(terminal.slave()).controlling_terminal().foreground());
    assert_ne!(observed.stat(7), 0);
    assert_eq!(observed.stat(8), i64::from(observed.child.id()));
    assert_eq!(observed.link("fd/0"), terminal.path);
}

#[test]
fn controlling_terminal_must_be_a_terminal() {
    let mut command = Command::new("true");
    command.new_session().controlling_terminal().stdin(Stdio::null());
    let error = command.status().unwrap_err();
    assert_eq!((error.act(), error.reason()), ("controlling-terminal 0", Reason::Errno(Errno::NOTTY)));
}

#[test]
fn program_dies_with_the_thread_that_started_it() {
    let start = || observe(|command| command.parent_death_signal(Signal::TERM));
    assert_eq!(thread::spawn(start).join().unwrap().ended_by(), Some(15));

    if is_root() {
        // Even after a change of identity, which makes the kernel clear the signal.
        let start = || observe(|command| command.parent_death_signal(Signal::TERM).uid(1));
        assert_eq!(thread::spawn(start).join().unwrap().ended_by(), Some(15));
    }
}

#[test]
fn signals_are_blocked() {
    let blocked = SignalSet::EMPTY.with(Signal::INT);
    assert_eq!(observe(|command| command.blocked_signals(blocked)).status("SigBlk"), "0000000000000002");
}

#[test]
fn broken_pipe_kills_the_program() {
    // `yes` writes forever, so it does not matter that another thread's child may have a copy of this
    // process's end until it execs.
    let mut child = Command::new("yes").stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::PIPE.number()));
}

// Limits and scheduling.

#[test]
fn rlimits_and_umask_are_set() {
    let observed = observe(|command| {
        command
            .rlimit(Resource::Nofile, Some(61), Some(62))
            .rlimit(Resource::Core, Some(0), Some(0))
            .umask(0o137)
    });
    assert_eq!(observed.limit("Max open files"), ("61".into(), "62".into()));
    assert_eq!(observed.limit("Max core file size"), ("0".into(), "0".into()));
    assert_eq!(observed.status("Umask"), "0137");
}

#[test]
fn rlimit_with_soft_above_hard_is_an_error() {
    let mut command = Command::new("true");
    command.rlimit(Resource::Nofile, Some(2), Some(1));
    assert_eq!(failure(&command), "rlimit nofile 2 1: Invalid argument (os error 22)");
}

#[test]
fn scheduler_and_priorities_are_set() {
    const BATCH: u32 = 3;
    let mut attr = SchedAttr::default();
    (attr.policy, attr.nice) = (BATCH, 5);
    let observed = observe(|command| command.scheduler(attr));
    assert_eq!((observed.stat(41), observed.stat(19)), (i64::from(BATCH), 5));
    assert_eq!(observe(|command| command.nice(7)).stat(19), 7);

    let mut ionice = Command::new("ionice");
    let Ok(output) = ionice.io_priority(2, 6).output() else { skip!("needs ionice for I/O priority") };
    assert_eq!(output.stdout, b"best-effort: prio 6\n");
}

#[test]
fn affinity_is_set() {
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let last: usize = own.rsplit([',', '-']).next().unwrap().parse().unwrap();
    let observed = observe(|command| command.affinity([last]));
    assert_eq!(observed.status("Cpus_allowed_list"), last.to_string());
    assert_eq!(observe(|command| command).status("Cpus_allowed_list"), own);
    // A mask of several words: a CPU that exists, and one beyond those of any machine.
    let observed = observe(|command| command.affinity([last, 8000]));
    assert_eq!(observed.status("Cpus_allowed_list"), last.to_string());
}

// Identity.

#[test]
fn user_and_groups_are_set() {
    needs_root!();
    // Sets the groups of this thread only.
    setgroups(&[5].map(Gid::from_raw)).unwrap();
    assert_eq!(observe(|command| command).status("Groups"), "5");

    let observed = observe(|command| command.uid(12).gid(11));
    assert_eq!(observed.status("Uid"), "12 12 12 12");
    assert_eq!(observed.status("Gid"), "11 11 11 11");
    assert_eq!(observed.status("Groups"), "", "root's groups are dropped");
    assert_eq!(observed.status("CapPrm"), "0000000000000000");

    assert_eq!(observe(|command| command.uid(12).groups(&[7, 9])).status("Groups"), "7 9");
    assert_eq!(observe(|command| command.groups(&[7])).status("Groups"), "7");
}

#[test]
fn working_directory_is_entered_with_the_programs_identity() {
    needs_root!();
    let dir = Dir::new();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
    let mut command = Command::new("true");
    command.uid(1).current_dir(dir.path());
    let path = dir.path().display();
    assert_eq!(failure(&command), format!("cwd {path}: Permission denied (os error 13)"));
}

#[test]
fn change_of_identity_needs_privileges() {
    needs_namespaces!();
    // A user namespace in which uid 1 is not mapped.
    let mut command = Command::new("true");
    own_root(&mut command).uid(1);
    assert_eq!(failure(&command), "uid 1: Invalid argument (os error 22)");
}

#[test]
fn no_new_privs_is_set() {
    assert_eq!(observe(|command| command.no_new_privs()).status("NoNewPrivs"), "1");
}
