//! The steps that set what a container's process is: its keyring, its policies, the owner of its streams.

use super::{R0, after, after_in_namespaces, failure, fd, list, mount_tmpfs, text, with_privileges};
use crate::support::{Dir, needs_namespaces, needs_root, observe, skip};
use husk_spawn::sys::file::{Mode, OFlags};
use husk_spawn::sys::{Errno, Fd, Uid};
use husk_spawn::{Command, Reason, Step};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

#[test]
pub(crate) fn fchown_streams() {
    needs_root!();
    let dir = Dir::new();
    let (path, flags) = (text(dir.join("out")), OFlags::RDWR | OFlags::CREATE);
    let owner = |path| fs::metadata(path).unwrap().uid();
    let null = Step::Open { path: c"/dev/null", flags: OFlags::RDWR, mode: Mode::empty(), out: R0 };
    let zero = Step::Open { path: c"/dev/zero", flags: OFlags::RDWR, mode: Mode::empty(), out: R0 };
    let error = |open| {
        let steps = [
            open,
            Step::Dup3 { from: R0.into(), to: Fd::STDIN },
            Step::Open { path, flags, mode: Mode::from(0o600), out: R0 },
            Step::Dup3 { from: R0.into(), to: Fd::STDERR },
            Step::FchownStreams { uid: Uid::from_raw(12) },
        ];
        Command::new("true").final_steps(list(steps)).status().unwrap();
    };
    error(null);
    assert_eq!(owner(dir.join("out")), 12);
    error(zero);
    // Nobody gets a device of the host.
    assert_eq!([owner("/dev/null".into()), owner("/dev/zero".into())], [0, 0]);
}

#[test]
pub(crate) fn open_in_proc() {
    let open = |path| Step::OpenInProc { path, flags: OFlags::RDONLY, out: R0 };
    let observed = after([open(c"self/status"), Step::Dup3 { from: R0.into(), to: fd(509) }]);
    let status = Path::new("/proc").join(observed.child.id().to_string()).join("status");
    assert_eq!(observed.fds()[&509], status, "it is the child's own");
    for (path, errno) in [(c"self/cwd/x", 40), (c"../etc/passwd", 18), (c"no/such", 2)] {
        let refused = failure([open(path)]);
        assert!(refused.ends_with(&format!("(os error {errno})")), "{refused}");
    }
    // What somebody mounted there is no procfs, and what he mounted in it is not what was meant.
    needs_namespaces!();
    let reason = |steps: [Step<'static>; 2]| {
        let mut command = Command::new("true");
        with_privileges(&mut command).final_steps(list(steps)).status().unwrap_err().reason()
    };
    let fake = mount_tmpfs(Path::new("/proc"));
    assert_eq!(reason([fake, open(c"self/status")]), Reason::Errno(Errno::NODEV));
    let over = Step::MountBind { source: c"/dev/null", target: c"/proc/uptime" };
    assert_eq!(reason([over, open(c"uptime")]), Reason::Errno(Errno::XDEV));
    after_in_namespaces([over, open(c"self/status")]);
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
    // As the observer is of the same user, it sees what its user may view.
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
