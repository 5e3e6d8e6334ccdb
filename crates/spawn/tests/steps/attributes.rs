//! Steps that set attributes of a container's process: keyring, policies, and the owner of its streams.

use super::{R0, after, after_in_namespaces, failure, fd, list, mount_tmpfs, text, with_privileges};
use crate::support::{Dir, needs_namespaces, needs_root, observe, skip};
use husk_script::{Devices, Request};
use husk_spawn::sys::file::{Mode, OFlags};
use husk_spawn::sys::process::SockFilter;
use husk_spawn::sys::{Errno, Fd, Uid};
use husk_spawn::{Command, Error, Reason, Step, Writer};
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use std::ffi::OsString;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

#[test]
pub(crate) fn fchown_streams() {
    needs_root!();
    let dir = Dir::new();
    let (path, flags) = (text(dir.join("out")), OFlags::RDWR | OFlags::CREATE);
    let owner = |path| fs::metadata(path).unwrap().uid();
    let (node, zero) = (dir.join("node"), rustix::fs::makedev(1, 5));
    let kind = rustix::fs::FileType::CharacterDevice;
    rustix::fs::mknodat(rustix::fs::CWD, &node, kind, Mode::from(0o600), zero).unwrap();
    let node = text(node);
    let give = |device, devices| {
        let steps = [
            Step::Open { path: device, flags: OFlags::RDONLY, mode: Mode::empty(), out: R0 },
            Step::Dup3 { from: R0.into(), to: Fd::STDIN },
            Step::Open { path, flags, mode: Mode::from(0o600), out: R0 },
            Step::Dup3 { from: R0.into(), to: Fd::STDERR },
            Step::FchownStreams { uid: Uid::from_raw(12), devices },
        ];
        Command::new("true").final_steps(list(steps)).status().unwrap();
    };
    give(node, Devices::Hosts);
    assert_eq!(owner(dir.join("out")), 12);
    // The owner of a host device, such as a terminal, never changes.
    assert_eq!(owner(dir.join("node")), 0);
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    unlockpt(&master).unwrap();
    let terminal = PathBuf::from(OsString::from_vec(ptsname(&master, Vec::new()).unwrap().into_bytes()));
    give(text(&terminal), Devices::Hosts);
    assert_eq!(owner(terminal.clone()), 0);
    give(text(&terminal), Devices::Containers);
    assert_eq!(owner(terminal), 12);
}

#[test]
pub(crate) fn open_in_proc() {
    let proc = Step::OpenProc { out: R0 };
    let open = |path| Step::OpenInProc { proc: R0.into(), path, flags: OFlags::RDONLY, out: R0 };
    let observed = after([proc, open(c"self/status"), Step::Dup3 { from: R0.into(), to: fd(509) }]);
    let status = Path::new("/proc").join(observed.child.id().to_string()).join("status");
    assert_eq!(observed.fds()[&509], status, "the file describes the child");
    for (path, errno) in [(c"self/cwd/x", 40), (c"../etc/passwd", 18), (c"no/such", 2)] {
        let refused = failure([proc, open(path)]);
        assert!(refused.ends_with(&format!("(os error {errno})")), "{refused}");
    }
    // Anything mounted over /proc must be rejected if it is not a procfs. So must mounts inside it.
    needs_namespaces!();
    let reason = |steps: [Step<'static>; 3]| {
        let mut command = Command::new("true");
        with_privileges(&mut command).final_steps(list(steps)).status().unwrap_err().reason()
    };
    let fake = mount_tmpfs(Path::new("/proc"));
    assert_eq!(reason([fake, proc, open(c"self/status")]), Reason::Errno(Errno::NODEV));
    let over = Step::MountBind { source: c"/dev/null", target: c"/proc/uptime" };
    assert_eq!(reason([over, proc, open(c"uptime")]), Reason::Errno(Errno::XDEV));
    // A descriptor opened earlier still refers to the original procfs.
    after_in_namespaces([proc, fake, open(c"self/status")]);
}

#[test]
pub(crate) fn join_session_keyring() {
    let join =
        |permissions| Step::JoinSessionKeyring { name: c"_ses.husk-test", permissions, tolerate: None };
    let has_keyrings = Path::new("/proc/keys").exists();
    if !has_keyrings {
        let refused = failure([join(0)]);
        assert!(refused.ends_with("Function not implemented (os error 38)"), "{refused}");
        let tolerate = Some(Errno::NOSYS);
        after([Step::JoinSessionKeyring { name: c"_ses.husk-test", permissions: 0, tolerate }]);
        skip!("needs keyrings");
    }
    // The observer runs as the same user, so it sees the flags that apply to that user.
    let view_for_others = 0x1;
    let observed = after([join(view_for_others)]);
    let keys = fs::read_to_string("/proc/keys").unwrap();
    let line = keys.lines().find(|line| line.contains("_ses.husk-test")).expect("the keyring");
    let permissions = line.split_whitespace().nth(4).unwrap();
    let permissions = u32::from_str_radix(permissions, 16).unwrap();
    assert_eq!(permissions & 0x3f00_0001, 0x3f00_0001, "{line}");
    drop(observed);
}

#[test]
pub(crate) fn set_mempolicy() {
    if !Path::new("/proc/self/numa_maps").exists() {
        skip!("needs a kernel with NUMA");
    }
    let interleave = 3;
    let observed = after([Step::SetMempolicy { mode: interleave, nodes: &[1] }]);
    let maps = observed.file("numa_maps");
    assert!(maps.lines().all(|line| line.contains(" interleave:0")), "{maps}");
    let refused = failure([Step::SetMempolicy { mode: interleave, nodes: &[] }]);
    assert_eq!(refused, "memory-policy 0x3: Invalid argument (os error 22)");
    let refused = failure([Step::SetMempolicy { mode: 0, nodes: &[1] }]);
    assert_eq!(refused, "memory-policy 0x0 nodes 0: Invalid argument (os error 22)");
}

#[test]
pub(crate) fn personality() {
    let linux32 = 8;
    let observed = observe(|command| command.final_steps(list([Step::Personality { persona: linux32 }])));
    assert_eq!(observed.file("personality").trim(), "00000008");
}

#[test]
pub(crate) fn seccomp_listener() {
    let filter = Step::SeccompListener { flags: NEW_LISTENER, program: notifies_of_getcwd() };
    is_given_a_listener(list([Step::NoNewPrivs, filter, Step::Chdir { path: c"/no/such" }]));
}

/// The parent gets the listener though it may not trace the child.
#[test]
pub(crate) fn open_seccomp_listener() {
    is_given_a_listener(list([
        Step::Undumpable,
        Step::NoNewPrivs,
        Step::OpenSeccompListener { flags: NEW_LISTENER, program: notifies_of_getcwd(), out: R0 },
        Step::RequestWith { what: Request::Listener, fd: R0.into() },
        Step::Chdir { path: c"/no/such" },
    ]));
}

/// `SECCOMP_FILTER_FLAG_NEW_LISTENER`.
const NEW_LISTENER: u32 = 8;

/// Returns a filter that allows every other call.
fn notifies_of_getcwd() -> &'static [SockFilter] {
    let (load, equal, answer, notify, allow) = (0x20, 0x15, 0x06, 0x7fc0_0000, 0x7fff_0000);
    let getcwd = if cfg!(target_arch = "x86_64") { 79 } else { 17 };
    vec![
        SockFilter { code: load, jt: 0, jf: 0, k: 0 },
        SockFilter { code: equal, jt: 0, jf: 1, k: getcwd },
        SockFilter { code: answer, jt: 0, jf: 0, k: notify },
        SockFilter { code: answer, jt: 0, jf: 0, k: allow },
    ]
    .leak()
}

/// Starts a child whose last step fails.
#[track_caller]
fn is_given_a_listener(write: impl for<'b> Fn(&mut Writer<'b>) -> Result<(), Error> + Send + Sync + 'static) {
    let mut command = Command::of_steps(write);
    let mut child = command.kill_on_drop().spawn().unwrap();
    assert_eq!(child.next_request().unwrap(), Some(Request::Listener));
    let listener = child.requested_fd().unwrap();
    let is = fs::read_link(format!("/proc/self/fd/{}", listener.as_raw_fd())).unwrap();
    assert_eq!(is, Path::new("anon_inode:seccomp notify"));
    child.go_on().unwrap();
    assert_eq!(child.next_request().unwrap(), None);
    assert!(child.requested_fd().is_err(), "the last request sends no descriptor");
    assert_eq!(child.wait().unwrap_err().act(), "cwd /no/such");
}

#[test]
fn child_exits_though_its_filter_forbids_it() {
    // Rejects every call with EPERM, even exit_group.
    let program: &[SockFilter] = &[SockFilter { code: 0x06, jt: 0, jf: 0, k: 0x0005_0001 }];
    let filter = Step::Seccomp { flags: 0, program };
    let refused = failure([Step::NoNewPrivs, filter, Step::Chdir { path: c"/" }]);
    assert_eq!(refused, "cwd /: Operation not permitted (os error 1)");
}
