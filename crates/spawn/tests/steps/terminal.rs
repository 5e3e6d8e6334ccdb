//! Steps that create a terminal and pass it on.

use super::{OPEN_ZERO, R0, after_in_namespaces, failure, fd, list, mounts, text, with_privileges};
use crate::support::{Dir, needs_namespaces};
use husk_script::{MountPoint, PathInRoot, Request};
use husk_spawn::sys::Errno;
use husk_spawn::sys::file::{Mode, OFlags};
use husk_spawn::sys::mount::{Extent, MountFlags};
use husk_spawn::{Command, Reason, Reg, Step};
use rustix::termios::tcgetwinsize;
use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

const R1: Reg = Reg::new(1).unwrap();
const R2: Reg = Reg::new(2).unwrap();

fn root(dir: &Dir) -> Step<'static> {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    Step::Open { path: text(dir.path()), flags, mode: Mode::empty(), out: R0 }
}

fn open_pty_in_pts() -> Step<'static> {
    Step::OpenPty { root: R0.into(), path: c"pts", master: R1, slave: R2 }
}

#[test]
pub(crate) fn open_pty() {
    needs_namespaces!();
    let dir = Dir::new();
    fs::create_dir(dir.join("pts")).unwrap();
    let (target, flags) = (text(dir.join("pts")), MountFlags::empty());
    let devpts = Step::Mount { source: c"devpts", target, fstype: c"devpts", flags, data: c"newinstance" };
    let observed = after_in_namespaces([
        devpts,
        root(&dir),
        open_pty_in_pts(),
        Step::Tiocswinsz { terminal: R1.into(), rows: 12, columns: 34 },
        Step::Dup3 { from: R1.into(), to: fd(509) },
        Step::Dup3 { from: R2.into(), to: fd(510) },
    ]);
    let found = observed.fds();
    assert_eq!([&found[&509], &found[&510]], [&dir.join("pts/ptmx"), &dir.join("pts/0")]);
    assert_eq!(observed.stat(7), 0, "the terminal controls no session yet");
    let slave = Path::new("/proc").join(observed.child.id().to_string()).join("fd/510");
    let no_tty = OFlags::NOCTTY.bits().cast_signed();
    let slave = OpenOptions::new().read(true).custom_flags(no_tty).open(slave).unwrap();
    let size = tcgetwinsize(slave).unwrap();
    assert_eq!((size.ws_row, size.ws_col), (12, 34));

    // Anything else at that path is not opened.
    fs::write(dir.join("pts/ptmx"), "").unwrap();
    let refused = failure([root(&dir), open_pty_in_pts()]);
    assert_eq!(refused, "r1, r2 = open-pty pts: No such device (os error 19)");
    let over = Step::MountBind { source: c"/dev/null", target: text(dir.join("pts/ptmx")) };
    let mut command = Command::new("true");
    let error = with_privileges(&mut command)
        .final_steps(list([devpts, over, root(&dir), open_pty_in_pts()]))
        .status();
    assert_eq!(error.unwrap_err().reason(), Reason::Errno(Errno::XDEV));
}

#[test]
pub(crate) fn open_tree_of() {
    needs_namespaces!();
    let dir = Dir::new();
    fs::write(dir.join("file"), "seen").unwrap();
    let path = text(dir.join("file"));
    let place = |name| {
        let target = PathInRoot { path: name };
        Step::Attach { mount: R2, root: R0.into(), target, place: MountPoint::Entry }
    };
    let shown = |name| {
        let open = Step::Open { path, flags: OFlags::RDONLY, mode: Mode::empty(), out: R1 };
        [root(&dir), open, Step::OpenTreeOf { fd: R1.into(), extent: Extent::Top, out: R2 }, place(name)]
    };
    for _ in ["made", "found"] {
        let observed = after_in_namespaces(shown(c"console"));
        let [(at, _)] = &mounts(&observed, dir.path())[..] else { panic!("one mount") };
        assert_eq!(Path::new(at), dir.join("console"));
        assert!(fs::symlink_metadata(dir.join("console")).unwrap().is_file());
    }
    std::os::unix::fs::symlink("made", dir.join("link")).unwrap();
    let mut command = Command::new("true");
    let error = with_privileges(&mut command).final_steps(list(shown(c"link"))).status();
    assert_eq!(error.unwrap_err().reason(), Reason::Errno(Errno::LOOP));
    assert!(!dir.join("made").exists());
}

#[test]
pub(crate) fn request_with() {
    let ask = Step::RequestWith { what: Request::Terminal, fd: R0.into() };
    let mut child =
        Command::new("true").notify_release().final_steps(list([OPEN_ZERO, ask])).spawn().unwrap();
    assert_eq!(child.next_request().unwrap(), Some(Request::Terminal));
    let mut zero = File::from(child.requested_fd().unwrap());
    let mut byte = [1];
    zero.read_exact(&mut byte).unwrap();
    assert_eq!(byte, [0]);
    child.go_on().unwrap();
    assert_eq!(child.next_request().unwrap(), None);
    assert!(child.requested_fd().is_err());
    assert!(child.wait().unwrap().success());
}
