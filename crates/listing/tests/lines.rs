//! Every kind of step as the line that a listing and an error message show.

use husk_listing::Line;
use husk_script::sys::file::{Mode, OFlags};
use husk_script::sys::limits::{Resource, Rlimit, SchedAttr};
use husk_script::sys::mount::{MountFlags, MountPropagationFlags};
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::signal::{Signal, SignalSet};
use husk_script::sys::{CArray, CPtr, Errno, Fd, Gid, Pid, Uid};
use husk_script::{Reg, Request, Step};
use std::collections::BTreeSet;

const R3: Reg = Reg::new(3).unwrap();

fn fd(number: i32) -> Fd {
    Fd::new(number).unwrap()
}

#[test]
fn every_step_has_its_line() {
    let mut batch = SchedAttr::default();
    batch.policy = 3;
    let groups = [5, 7].map(Gid::from_raw);
    let arguments = [CPtr::from(c"program"), CPtr::from(c"argument"), CPtr::NULL];
    let argv = CArray::new(&arguments).unwrap();
    let envp = CArray::new(&arguments[2..]).unwrap();
    let (resource, maximum) = (Resource::Nofile, None);

    let lines = [
        (
            Step::Open { path: c"/dev/null", flags: OFlags::RDWR, mode: Mode::empty(), out: R3 },
            "r3 = open /dev/null",
        ),
        (Step::Close { fd: R3.into() }, "close r3"),
        (Step::Close { fd: fd(9).into() }, "close 9"),
        (Step::CloseRange { first: fd(3), last: fd(9) }, "close 3-9"),
        (Step::CloseRangeOnExec { first: fd(3), last: Fd::MAX }, "close-on-exec 3-2147483647"),
        (Step::Dup { from: fd(1).into(), least: fd(10), out: R3 }, "r3 = dup 1 at least 10"),
        (Step::Dup3 { from: R3.into(), to: fd(2) }, "dup r3 -> 2"),
        (Step::KeepOnExec { fd: fd(5) }, "keep 5"),
        (Step::Await { fd: fd(5).into() }, "await 5"),
        (Step::Write { fd: fd(5).into(), bytes: b"say \"a\"\n" }, r#"write 5 "say \"a\"\n""#),
        (
            Step::WriteFile { path: c"/proc/self/setgroups", bytes: b"deny", tolerate: Some(Errno::NOENT) },
            r#"write /proc/self/setgroups "deny""#,
        ),
        (Step::Mkdir { path: c"/run/x", mode: Mode::from(0o1755), tolerate: None }, "mkdir /run/x 1755"),
        (Step::Mkdir { path: c"", mode: Mode::from(0o7), tolerate: None }, r#"mkdir "" 007"#),
        (Step::Symlink { target: c"/proc/self/fd", path: c"/dev/fd" }, "symlink /dev/fd -> /proc/self/fd"),
        (
            Step::Mount {
                source: c"shm",
                target: c"/dev/shm",
                fstype: c"tmpfs",
                flags: MountFlags::NOSUID | MountFlags::NODEV,
                data: c"size=64k",
            },
            "mount tmpfs shm /dev/shm nodev,nosuid,size=64k",
        ),
        (
            Step::Mount {
                source: c"proc",
                target: c"/proc",
                fstype: c"proc",
                flags: MountFlags::empty(),
                data: c"",
            },
            "mount proc proc /proc",
        ),
        (Step::MountBind { source: c"/usr", target: c"/mnt/usr" }, "bind /usr /mnt/usr"),
        (
            Step::MountChange {
                target: c"/",
                flags: MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
            },
            "propagation / private,rec",
        ),
        (Step::UmountDetach { target: c"/old" }, "umount /old"),
        (Step::PivotRoot { new_root: c"/new", put_old: c"/new/old" }, "pivot-root /new /new/old"),
        (Step::Chdir { path: c"/with\nline\xff" }, r"cwd /with\nline\xff"),
        (Step::Chroot { path: c"/srv" }, "chroot /srv"),
        (Step::Umask { mask: Mode::from(0o22) }, "umask 022"),
        (Step::Setsid, "setsid"),
        (Step::Setpgid { group: None }, "process-group new"),
        (Step::Setpgid { group: Pid::from_raw(71) }, "process-group 71"),
        (Step::Tiocsctty { terminal: fd(0) }, "controlling-terminal 0"),
        (Step::Tcsetpgrp { terminal: fd(0) }, "foreground 0"),
        (Step::ResetHandlers, "signals default"),
        (Step::DefaultAction { signal: Signal::PIPE }, "signal 13 default"),
        (Step::IgnoreSignal { signal: Signal::HUP }, "signal 1 ignore"),
        (Step::SignalMask { blocked: SignalSet::EMPTY.with(Signal::TERM) }, "signal-mask 0x4000"),
        (Step::ParentDeathSignal { signal: Signal::KILL, parent: None }, "parent-death-signal 9"),
        (Step::Unshare { namespaces: Namespaces::ALL }, "unshare user,mnt,pid,net,ipc,uts,cgroup,time"),
        (Step::Setns { fd: fd(7), namespaces: Namespaces::NET }, "join net 7"),
        (Step::Sethostname { name: b"box" }, r#"hostname "box""#),
        (Step::Request { what: Request::IdMaps }, "request id-maps"),
        (
            Step::Setrlimit { resource, limit: Rlimit { current: Some(64), maximum } },
            "rlimit nofile 64 unlimited",
        ),
        (Step::Setpriority { nice: -5 }, "nice -5"),
        (Step::SchedSetattr { attr: batch }, "scheduler 3 priority 0"),
        (Step::SchedSetaffinity { mask: &[5, 1] }, "affinity 0000000000000001 0000000000000005"),
        (Step::IoprioSet { class: 2, level: 6 }, "io-priority 2 6"),
        (Step::Setgroups { groups: &groups }, "groups 5 7"),
        (Step::Setgroups { groups: &[] }, "groups"),
        (Step::Setresgid { gid: Gid::from_raw(11) }, "gid 11"),
        (Step::Setresuid { uid: Uid::from_raw(12) }, "uid 12"),
        (Step::NoNewPrivs, "no-new-privileges"),
        (Step::Execve { path: c"/bin/program", argv, envp }, "exec /bin/program"),
    ];
    for (step, line) in &lines {
        assert_eq!(Line(step).to_string(), *line);
    }
    let seen: BTreeSet<_> = lines.iter().map(|(step, _)| name(step)).collect();
    let missing: Vec<_> = NAMES.iter().filter(|name| !seen.contains(*name)).collect();
    assert!(missing.is_empty(), "no line for {missing:?}");
}

/// A function that names the kind of a step, and all its names: a new kind does not compile until
/// it is in this list, and the test above fails until it has a line.
macro_rules! names {
    ($($name:ident)*) => {
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        fn name(step: &Step<'_>) -> &'static str {
            match step {
                $(Step::$name { .. } => stringify!($name),)*
            }
        }
    };
}

names! {
    Open Close CloseRange CloseRangeOnExec Dup Dup3 KeepOnExec Await Write WriteFile
    Mkdir Symlink Mount MountBind MountChange UmountDetach PivotRoot Chdir Chroot Umask
    Setsid Setpgid Tiocsctty Tcsetpgrp
    ResetHandlers DefaultAction IgnoreSignal SignalMask ParentDeathSignal
    Unshare Setns Sethostname Request
    Setrlimit Setpriority SchedSetattr SchedSetaffinity IoprioSet
    Setgroups Setresgid Setresuid NoNewPrivs
    Execve
}
