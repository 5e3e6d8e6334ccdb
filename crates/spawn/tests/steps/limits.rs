//! Steps for limits and identity, and exec.

use super::{after, list};
use crate::support::{Dir, needs_root, observe, program, skip};
use husk_spawn::sys::limits::Rlimit;
use husk_spawn::sys::{CArray, CPtr, Gid, Uid};
use husk_spawn::{Command, Resource, SchedAttr, Step};
use std::fs;

// Limits.

#[test]
pub(super) fn setrlimit() {
    let limit = Rlimit { current: Some(61), maximum: Some(62) };
    let observed = after([Step::Setrlimit { resource: Resource::Nofile, limit }]);
    assert_eq!(observed.limit("Max open files"), ("61".into(), "62".into()));
}

#[test]
pub(super) fn setpriority() {
    assert_eq!(after([Step::Setpriority { nice: 7 }]).stat(19), 7);
}

#[test]
pub(super) fn sched_setattr() {
    const BATCH: u32 = 3;
    let attr = SchedAttr { policy: BATCH, ..SchedAttr::default() };
    assert_eq!(after([Step::SchedSetattr { attr }]).stat(41), i64::from(BATCH));
}

#[test]
pub(super) fn sched_setaffinity() {
    // Uses the last CPU that this process may use, so that the mask is not "all" on machines with several.
    let ours = fs::read_to_string("/proc/self/status").unwrap();
    let ours = ours.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let last: usize = ours.rsplit([',', '-']).next().unwrap().parse().unwrap();
    let mut mask = vec![0; last / 64 + 1];
    mask[last / 64] = 1 << (last % 64);
    let observed = after([Step::SchedSetaffinity { mask: mask.leak() }]);
    assert_eq!(observed.status("Cpus_allowed_list"), last.to_string());
}

#[test]
pub(super) fn ioprio_set() {
    let mut command = Command::new("ionice");
    let Ok(before) = command.output() else { skip!("needs ionice") };
    let after = command.final_steps(list([Step::IoprioSet { class: 2, level: 6 }])).output().unwrap();
    assert_eq!(after.stdout, b"best-effort: prio 6\n");
    assert_ne!(before.stdout, after.stdout);
}

// Identity.

#[test]
pub(super) fn identity() {
    needs_root!();
    let groups: &[Gid] = [5, 7].map(Gid::from_raw).to_vec().leak();
    let observed = after([
        Step::Setgroups { groups },
        Step::Setresgid { gid: Gid::from_raw(11) },
        Step::Setresuid { uid: Uid::from_raw(12) },
    ]);
    assert_eq!(observed.status("Groups"), "5 7");
    assert_eq!(observed.status("Gid"), "11 11 11 11");
    assert_eq!(observed.status("Uid"), "12 12 12 12");
    assert_eq!(observed.status("CapEff"), "0000000000000000");
}

#[test]
pub(super) fn no_new_privs() {
    assert_eq!(after([]).status("NoNewPrivs"), "0");
    assert_eq!(after([Step::NoNewPrivs]).status("NoNewPrivs"), "1");
}

// The end.

#[test]
pub(super) fn execve() {
    let dir = Dir::new();
    let path = dir.program("held", program::holds(0));
    let observed = observe(|command| {
        command.final_steps(move |writer| {
            let path = writer.text(&path)?;
            let argv = [c"zero".into(), c"one".into(), CPtr::NULL];
            let envp = [c"A=b".into(), CPtr::NULL];
            let argv = CArray::new(writer.slice(&argv)).unwrap();
            let envp = CArray::new(writer.slice(&envp)).unwrap();
            writer.push(Step::Execve { path, argv, envp });
            Ok(())
        })
    });
    assert_eq!(observed.link("exe"), dir.join("held"));
    assert_eq!(observed.bytes("cmdline"), b"zero\0one\0");
    assert_eq!(observed.bytes("environ"), b"A=b\0");
}
