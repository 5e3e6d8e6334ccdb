//! Checks the line that a listing and an error message show for every kind of step.

use husk_listing::Line;
use husk_script::sys::at::Node;
use husk_script::sys::file::{Mode, OFlags};
use husk_script::sys::limits::{Resource, Rlimit, SchedAttr};
use husk_script::sys::mount::{AttributeChange, Extent, MountAttributes, MountFlags, MountPropagationFlags};
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::process::{Capabilities, KeepCaps};
use husk_script::sys::signal::{Signal, SignalSet};
use husk_script::sys::{CArray, CPtr, Errno, Fd, Gid, Pid, Uid};
use husk_script::{Devices, HookCommand, MountPoint, PathInRoot, Reg, Request, Step};
use std::collections::BTreeSet;

const R3: Reg = Reg::new(3).unwrap();

fn fd(number: i32) -> Fd {
    Fd::new(number).unwrap()
}

#[test]
fn every_step_has_a_line() {
    let batch = SchedAttr { policy: 3, ..SchedAttr::default() };
    let groups = [5, 7].map(Gid::from_raw);
    let arguments = [CPtr::from(c"program"), CPtr::from(c"argument"), CPtr::NULL];
    let argv = CArray::new(&arguments).unwrap();
    let envp = CArray::new(&arguments[2..]).unwrap();
    let (resource, maximum) = (Resource::Nofile, None);
    let root = Reg::new(0).unwrap();
    let target = PathInRoot { path: c"dev" };
    let (mode, uid, gid) = (Mode::from(0o666), Uid::from_raw(0), Gid::from_raw(0));

    let hook = HookCommand {
        path: c"/bin/hook",
        argv,
        envp,
        state: [b"", b""],
        streams: [None; 2],
        timeout_seconds: Some(5),
    };
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
            "propagation / rprivate",
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
        (Step::ExitOnSignal { signal: Signal::TERM }, "signal 15 exit"),
        (Step::IgnoreSignal { signal: Signal::HUP }, "signal 1 ignore"),
        (Step::SignalMask { blocked: SignalSet::EMPTY.with(Signal::TERM) }, "signal-mask 0x4000"),
        (Step::ParentDeathSignal { signal: Signal::KILL, parent: None }, "parent-death-signal 9"),
        (Step::Unshare { namespaces: Namespaces::ALL }, "unshare user,mnt,pid,net,ipc,uts,cgroup,time"),
        (Step::Setns { fd: fd(7).into(), namespaces: Namespaces::NET }, "join net 7"),
        (Step::CloneParent { namespaces: Namespaces::EMPTY }, "clone-parent"),
        (Step::CloneParent { namespaces: Namespaces::PID }, "clone-parent with new pid"),
        (Step::CloneAndReap { space: None }, "clone-and-reap"),
        (Step::CloneAndReap { space: Some(c"/dev") }, "clone-and-reap space /dev"),
        (Step::VforkAndReap { space: None }, "vfork-and-reap"),
        (Step::VforkAndReap { space: Some(c"/dev") }, "vfork-and-reap space /dev"),
        (Step::Setdomainname { name: b"net" }, r#"domainname "net""#),
        (Step::LoopbackUp, "loopback up"),
        (Step::NewNet { loopback: false }, "begin new net"),
        (Step::NewNet { loopback: true }, "begin new net, loopback up"),
        (Step::JoinNewNet, "join new net"),
        (Step::ForgetMemory, "forget-memory"),
        (Step::Undumpable, "undumpable"),
        (Step::FsconfigFd { fs: R3, key: c"pidns", fd: fd(9).into() }, "fsconfig r3 pidns=9"),
        (Step::Sethostname { name: b"box" }, r#"hostname "box""#),
        (Step::Request { what: Request::IdMaps }, "request id-maps"),
        (Step::Request { what: Request::Cgroup }, "request cgroup"),
        (
            Step::Setrlimit { resource, limit: Rlimit { current: Some(64), maximum } },
            "rlimit nofile 64 unlimited",
        ),
        (Step::Setpriority { nice: -5 }, "nice -5"),
        (Step::SchedSetattr { attr: batch }, "scheduler SCHED_BATCH nice 0"),
        (
            Step::SchedSetattr { attr: SchedAttr { policy: 2, priority: 7, ..batch } },
            "scheduler SCHED_RR priority 7",
        ),
        (
            Step::SchedSetattr { attr: SchedAttr { policy: 6, runtime: 1, deadline: 2, period: 3, ..batch } },
            "scheduler SCHED_DEADLINE runtime 1 deadline 2 period 3",
        ),
        (Step::SchedSetaffinity { mask: &[5, 1] }, "affinity 0000000000000001 0000000000000005"),
        (Step::IoprioSet { class: 2, level: 6 }, "io-priority 2 6"),
        (Step::Setgroups { groups: &groups }, "groups 5 7"),
        (Step::Setgroups { groups: &[] }, "groups"),
        (Step::Setresgid { gid: Gid::from_raw(11) }, "gid 11"),
        (Step::Setresuid { uid: Uid::from_raw(12) }, "uid 12"),
        (Step::NoNewPrivs, "no-new-privileges"),
        (Step::Execve { path: c"/bin/program", argv, envp }, "exec /bin/program"),
        (Step::CloseOthers { first: fd(3), keep: None }, "close others"),
        (Step::CloseOthers { first: fd(3), keep: Some(fd(7)) }, "close others but 7"),
        (Step::CloseOthers { first: fd(5), keep: Some(fd(7)) }, "close others from 5 but 7"),
        (Step::OpenProc { out: R3 }, "r3 = open /proc"),
        (Step::FchownStreams { uid, devices: Devices::Hosts }, "owner of streams 0"),
        (
            Step::OpenInProc {
                proc: R3.into(),
                path: c"thread-self/attr/exec",
                flags: OFlags::WRONLY,
                out: R3,
            },
            "r3 = open in proc thread-self/attr/exec",
        ),
        (
            Step::JoinSessionKeyring { name: c"_ses.c", permissions: 8, tolerate: None },
            "session-keyring _ses.c",
        ),
        (Step::SchedSetaffinity { mask: &[u64::MAX; 2] }, "affinity all"),
        (Step::SetMempolicy { mode: 0x8003, nodes: &[5, 1] }, "memory-policy 0x8003 nodes 0,2,64"),
        (Step::Personality { persona: 8 }, "personality 0x8"),
        (Step::OpenInRoot { root: root.into(), path: c"etc/passwd", out: R3 }, "r3 = find etc/passwd"),
        (Step::EnsureDirectory { root: root.into(), target, out: R3 }, "r3 = directory dev"),
        (
            Step::Attach { mount: R3, root: root.into(), target, place: MountPoint::Directory },
            "attach r3 -> dev",
        ),
        (
            Step::Mknod { directory: R3.into(), name: c"null", node: Node::Character(1, 3), mode, uid, gid },
            "mknod null c 1:3 666",
        ),
        (
            Step::Mknod { directory: R3.into(), name: c"disk", node: Node::Block(8, 0), mode, uid, gid },
            "mknod disk b 8:0 666",
        ),
        (
            Step::Mknod { directory: R3.into(), name: c"pipe", node: Node::Fifo, mode, uid, gid },
            "mknod pipe p 666",
        ),
        (
            Step::SymlinkIn { directory: R3.into(), name: c"fd", target: c"/proc/self/fd", tolerate: None },
            "symlink fd -> /proc/self/fd",
        ),
        (Step::Fsopen { fstype: c"tmpfs", out: R3 }, "r3 = fsopen tmpfs"),
        (Step::FsconfigString { fs: R3, key: c"mode", value: c"755" }, "fsconfig r3 mode=755"),
        (Step::FsconfigFlag { fs: R3, key: c"ro" }, "fsconfig r3 ro"),
        (Step::Fsmount { fs: R3, attributes: MountAttributes::EMPTY }, "fsmount r3"),
        (
            Step::Fsmount {
                fs: R3,
                attributes: MountAttributes::STRICTATIME | MountAttributes::NODEV | MountAttributes::NOSUID,
            },
            "fsmount r3 nosuid,nodev,strictatime",
        ),
        (
            Step::Fsmount { fs: R3, attributes: MountAttributes::NOSYMFOLLOW | MountAttributes::NODIRATIME },
            "fsmount r3 nodiratime,nosymfollow",
        ),
        (Step::OpenTree { path: c"/srv", extent: Extent::Top, out: R3 }, "r3 = open-tree /srv"),
        (Step::OpenTree { path: c"/srv", extent: Extent::All, out: R3 }, "r3 = open-tree /srv recursive"),
        (
            Step::MountSetattr {
                mount: R3.into(),
                extent: Extent::All,
                change: AttributeChange {
                    set: MountAttributes::RDONLY | MountAttributes::NOATIME,
                    clear: MountAttributes::NOSUID | MountAttributes::ATIME,
                },
                propagation: MountPropagationFlags::DOWNSTREAM,
            },
            "attributes r3 recursive +ro,noatime -nosuid,atime slave",
        ),
        (Step::MoveMount { mount: R3.into(), target: fd(9).into() }, "move-mount r3 -> 9"),
        (
            Step::Mask { root: root.into(), path: c"proc/kcore", null: R3.into(), empty: R3 },
            "mask proc/kcore",
        ),
        (Step::ReadOnly { root: root.into(), path: c"proc/sys" }, "read-only proc/sys"),
        (Step::Fchdir { directory: R3.into() }, "cwd r3"),
        (
            Step::Enter { root: root.into(), path: c"srv", entered: R3, tolerate: Some(Errno::ACCESS) },
            "r3 = enter srv below r0",
        ),
        (Step::DropBounding { keep: 0x21 }, "bounding 0x21"),
        (Step::KeepCaps { keep: KeepCaps::Yes }, "keep-capabilities"),
        (Step::KeepCaps { keep: KeepCaps::No }, "lose-capabilities"),
        (
            Step::Capset { capabilities: Capabilities { effective: 1, permitted: 3, inheritable: 0 } },
            "capabilities effective 0x1 permitted 0x3 inheritable 0x0",
        ),
        (Step::RaiseAmbient { capabilities: 1 }, "ambient 0x1"),
        (Step::LandlockRuleset { handled: 0xfffe, scoped: 3, out: R3 }, "r3 = landlock 0xfffe scoped 0x3"),
        (
            Step::LandlockAllow { ruleset: R3.into(), beneath: root.into(), rights: 0xfffe, tolerate: None },
            "landlock r3 allow r0 0xfffe",
        ),
        (Step::LandlockRestrict { ruleset: R3.into() }, "landlock r3 restrict"),
        (Step::Seccomp { flags: 0, program: &[] }, "seccomp 0 instructions"),
        (Step::SeccompListener { flags: 8, program: &[] }, "seccomp 0 instructions, with a listener"),
        (
            Step::OpenSeccompListener { flags: 8, program: &[], out: R3 },
            "r3 = seccomp 0 instructions, with a listener",
        ),
        (Step::Request { what: Request::Listener }, "request listener"),
        (Step::Request { what: Request::NetDevices }, "request net-devices"),
        (Step::CheckExecutable { candidates: &[c"/bin/sh", c"/usr/bin/sh"] }, "find /bin/sh or /usr/bin/sh"),
        (Step::ExecveFirst { candidates: &[c"/bin/sh"], argv, envp }, "exec /bin/sh"),
        (Step::Request { what: Request::Tree }, "request tree"),
        (
            Step::OpenTreeOrRequest { path: c"/srv", extent: Extent::All, mount: 2, out: R3 },
            "r3 = open-tree /srv recursive or request tree 2",
        ),
        (
            Step::OpenDevice { path: c"/dev/null", node: Node::Character(1, 3), out: R3 },
            "r3 = open-device /dev/null c 1:3",
        ),
        (Step::RequestTree { mount: 2, out: R3 }, "r3 = request tree 2"),
        (Step::FsconfigModeOf { fs: R3, root: root.into(), path: c"tmp" }, "fsconfig r3 mode of tmp"),
        (Step::CopyUp { root: root.into(), path: c"etc", mount: R3 }, "copy etc -> r3"),
        (Step::Fspick { mount: R3.into(), out: root }, "r0 = fspick r3"),
        (Step::Label { mount: R3, label: b"a:b" }, r#"label r3 "a:b""#),
        (Step::Hide { path: c"/proc" }, "hide /proc"),
        (Step::UnlinkIn { directory: R3.into(), name: c"ptmx" }, "unlink ptmx"),
        (Step::Reconfigure { fs: R3 }, "reconfigure r3"),
        (
            Step::MountSetattrUnlocked {
                mount: R3.into(),
                change: AttributeChange { set: MountAttributes::RDONLY, clear: MountAttributes::NOSUID },
                unlocked: MountAttributes::NODEV | MountAttributes::NOEXEC,
            },
            "attributes r3 +ro -nosuid ?nodev,noexec",
        ),
        (
            Step::MountSetattrAbove { directory: R3.into(), propagation: MountPropagationFlags::PRIVATE },
            "attributes above r3 private",
        ),
        (Step::Request { what: Request::Parked }, "request parked"),
        (Step::Request { what: Request::Hooks }, "request hooks"),
        (Step::Hook { hook: &HookCommand { timeout_seconds: None, ..hook } }, "hook /bin/hook"),
        (Step::Hook { hook: &hook }, "hook /bin/hook at most 5 s"),
        (
            Step::Hook { hook: &HookCommand { streams: [None, Some(R3.into())], ..hook } },
            "hook /bin/hook stderr -> r3 at most 5 s",
        ),
        (Step::RequestWith { what: Request::Terminal, fd: R3.into() }, "request terminal r3"),
        (
            Step::OpenPty { root: root.into(), path: c"dev/pts", master: R3, slave: root },
            "r3, r0 = open-pty dev/pts",
        ),
        (Step::Tiocswinsz { terminal: R3.into(), rows: 24, columns: 80 }, "window-size r3 24 80"),
        (Step::OpenTreeOf { fd: R3.into(), extent: Extent::Top, out: R3 }, "r3 = open-tree r3"),
        (Step::OpenTreeOf { fd: R3.into(), extent: Extent::All, out: R3 }, "r3 = open-tree r3 recursive"),
        (Step::Park { listener: fd(4) }, "park"),
    ];
    for (step, line) in &lines {
        assert_eq!(Line(step).to_string(), *line);
    }
    let seen: BTreeSet<_> = lines.iter().map(|(step, _)| name(step)).collect();
    let missing: Vec<_> = NAMES.iter().filter(|name| !seen.contains(*name)).collect();
    assert!(missing.is_empty(), "no line for {missing:?}");
}

/// Defines a function that names the kind of a step, and the list of all names. A new kind does not compile until it
/// is in this list, and the test above fails until it has a line.
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
    ResetHandlers DefaultAction ExitOnSignal IgnoreSignal SignalMask ParentDeathSignal
    Unshare Setns Sethostname Request
    Setrlimit Setpriority SchedSetattr SchedSetaffinity IoprioSet
    Setgroups Setresgid Setresuid NoNewPrivs
    Execve
    CloseOthers OpenInRoot EnsureDirectory Attach Mknod SymlinkIn Fsopen FsconfigString FsconfigFlag Fsmount
    OpenTree MountSetattr MoveMount Mask ReadOnly Enter Fchdir DropBounding KeepCaps Capset RaiseAmbient Seccomp
    CheckExecutable ExecveFirst Park Hook
    SeccompListener OpenSeccompListener OpenProc
    FchownStreams OpenInProc JoinSessionKeyring SetMempolicy Personality
    CloneParent CloneAndReap VforkAndReap Setdomainname LoopbackUp NewNet JoinNewNet ForgetMemory Undumpable FsconfigFd
    OpenDevice OpenTreeOrRequest RequestTree FsconfigModeOf CopyUp Fspick Reconfigure MountSetattrUnlocked MountSetattrAbove
    Label Hide UnlinkIn
    LandlockRuleset LandlockAllow LandlockRestrict
    OpenPty Tiocswinsz OpenTreeOf RequestWith
}
