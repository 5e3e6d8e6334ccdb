//! Steps that prepare a container's mounts, apart from those that attach them.

use super::{
    OPEN_NULL, R0, after, after_in_namespaces, failure, list, mount_tmpfs, mounts, permissions, text,
    with_privileges,
};
use crate::support::{Dir, needs_namespaces, needs_root, observe, own_root};
use husk_script::{MountPoint, PathInRoot, Request};
use husk_spawn::sys::file::{Mode, OFlags};
use husk_spawn::sys::mount::{AttributeChange, Extent, MountAttributes, MountPropagationFlags};
use husk_spawn::sys::{Errno, Fd};
use husk_spawn::{Command, Namespaces, Reason, Reg, Step};
use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

const R1: Reg = Reg::new(1).unwrap();

fn open(path: &Path, out: Reg) -> Step<'static> {
    Step::Open { path: text(path), flags: OFlags::PATH, mode: Mode::empty(), out }
}

/// Opens a tmpfs in the second register.
const NEW: [Step<'static>; 2] = [
    Step::Fsopen { fstype: c"tmpfs", out: R1 },
    Step::Fsmount { fs: R1, attributes: MountAttributes::EMPTY },
];

fn attach(path: &str) -> Step<'static> {
    let target = PathInRoot { path: text(path) };
    Step::Attach { mount: R1, root: R0.into(), target, place: MountPoint::Directory }
}

#[test]
pub(crate) fn requests_of_trees() {
    needs_namespaces!();
    let dir = Dir::new();
    fs::create_dir(dir.join("closed")).unwrap();
    fs::write(dir.join("closed/file"), "").unwrap();
    let closed = text(dir.join("closed/file"));
    let ask = |path| Step::OpenTreeOrRequest { path, extent: Extent::Top, mount: 7, out: R1 };
    // The child opens an accessible path itself: it does not ask the parent, and has no channel.
    after_in_namespaces([ask(closed)]);
    let mut command = Command::new("true");
    let missing = with_privileges(&mut command).final_steps(list([ask(c"/no/such")])).status().unwrap_err();
    assert_eq!(missing.reason(), Reason::Errno(Errno::NOENT));

    // The child uses the descriptor that the parent sends.
    let sent = File::open("/dev/zero").unwrap();
    let asks = |step: Step<'static>, answers: bool| {
        let steps = [step, Step::Dup3 { from: R1.into(), to: Fd::STDIN }];
        let mut command = Command::new("true");
        let mut child = command.notify_release().kill_on_drop().final_steps(list(steps)).spawn().unwrap();
        assert_eq!((child.next_request().unwrap(), child.about()), (Some(Request::Tree), Some(7)));
        if answers { child.go_on_with(sent.as_fd()) } else { child.go_on() }.unwrap();
        child.wait().map(|status| status.success()).map_err(|error| error.reason())
    };
    let request = Step::RequestTree { mount: 7, out: R1 };
    assert_eq!(asks(request, true), Ok(true));
    assert_eq!(asks(request, false), Err(Reason::Errno(Errno::BADMSG)));
    if !rustix::process::geteuid().is_root() {
        fs::set_permissions(dir.join("closed"), fs::Permissions::from_mode(0o0)).unwrap();
        assert_eq!(asks(ask(closed), true), Ok(true));
        fs::set_permissions(dir.join("closed"), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
pub(crate) fn mode_and_copy() {
    needs_namespaces!();
    let dir = Dir::new();
    fs::create_dir_all(dir.join("covered/a/b")).unwrap();
    fs::write(dir.join("covered/a/b/file"), "copied").unwrap();
    fs::set_permissions(dir.join("covered"), fs::Permissions::from_mode(0o2715)).unwrap();
    std::os::unix::fs::symlink("/etc", dir.join("covered/link")).unwrap();
    let new = |path| {
        [
            Step::Fsopen { fstype: c"tmpfs", out: R1 },
            Step::FsconfigModeOf { fs: R1, root: R0.into(), path },
            Step::Fsmount { fs: R1, attributes: MountAttributes::EMPTY },
            Step::CopyUp { root: R0.into(), path, mount: R1 },
        ]
    };
    let [fsopen, mode, fsmount, copy] = new(c"covered");
    let observed =
        after_in_namespaces([open(dir.path(), R0), fsopen, mode, fsmount, copy, attach("covered")]);
    let root = Path::new("/proc").join(observed.child.id().to_string()).join("root");
    let seen = |name: &str| root.join(dir.join(name).strip_prefix("/").unwrap());
    assert_eq!(permissions(seen("covered")), 0o2715);
    assert_eq!(fs::read_to_string(seen("covered/a/b/file")).unwrap(), "copied");
    assert_eq!(fs::read_link(seen("covered/link")).unwrap(), Path::new("/etc"));
    let device = |name: &str| fs::symlink_metadata(seen(name)).unwrap().dev();
    assert_eq!(device("covered/a/b/file"), device("covered"), "the mount is on the new file system");
    // A path that does not exist needs no action; anything that is not a directory has no content.
    let [fsopen, mode, fsmount, copy] = new(c"not/there");
    after_in_namespaces([open(dir.path(), R0), fsopen, mode, fsmount, copy]);
    let copy = Step::CopyUp { root: R0.into(), path: c"covered/a/b/file", mount: R1 };
    let mut command = Command::new("true");
    with_privileges(&mut command).final_steps(list([open(dir.path(), R0), NEW[0], NEW[1], copy]));
    assert_eq!(command.status().unwrap_err().reason(), Reason::Errno(Errno::NOTDIR));
}

#[test]
pub(crate) fn reconfiguration() {
    needs_namespaces!();
    let dir = Dir::new();
    fs::create_dir(dir.join("at")).unwrap();
    let observed = after_in_namespaces([
        mount_tmpfs(&dir.join("at")),
        open(&dir.join("at"), R0),
        Step::Fspick { mount: R0.into(), out: R1 },
        Step::FsconfigString { fs: R1, key: c"size", value: c"128k" },
        Step::FsconfigFlag { fs: R1, key: c"ro" },
        Step::Reconfigure { fs: R1 },
    ]);
    let [(_, line)] = &mounts(&observed, &dir.join("at"))[..] else { panic!("one mount") };
    assert!(line.contains(" ro,size=128k"), "{line}");
    let steps = [open(dir.path(), R0), Step::Fspick { mount: R0.into(), out: R1 }];
    let mut command = Command::new("true");
    let error = with_privileges(&mut command).final_steps(list(steps)).status().unwrap_err();
    assert_eq!(error.reason(), Reason::Errno(Errno::INVAL), "the path is not the root of a mount");
}

#[test]
pub(crate) fn attributes_that_are_locked() {
    needs_namespaces!();
    let dir = Dir::new();
    fs::create_dir(dir.join("at")).unwrap();
    let at = dir.join("at");
    // In a mount namespace of another user namespace, attributes that were set before are locked.
    let changed = |locked: bool, change, unlocked| {
        let change = Step::MountSetattrUnlocked { mount: R0.into(), change, unlocked };
        let mut steps = vec![mount_tmpfs(&at)];
        if locked {
            let namespaces = Namespaces::USER | Namespaces::MOUNT;
            steps.push(Step::Unshare { namespaces });
        }
        steps.extend([open(&at, R0), change]);
        move |command: &mut Command| {
            with_privileges(command).final_steps(move |writer| {
                steps.iter().for_each(|step| writer.push(*step));
                Ok(())
            });
        }
    };
    let read_only = AttributeChange::set(MountAttributes::RDONLY);
    let line = |locked, unlocked| {
        let observed = observe(|command| {
            changed(locked, read_only, unlocked)(command);
            command
        });
        mounts(&observed, &at)[0].1.clone()
    };
    let unlocked = MountAttributes::NOSUID | MountAttributes::NODEV;
    assert!(line(false, unlocked).starts_with("ro,relatime"));
    assert!(line(true, unlocked).starts_with("ro,nosuid,nodev,relatime"));
    let mut command = Command::new("true");
    let change = AttributeChange { clear: MountAttributes::NODEV, ..read_only };
    changed(true, change, MountAttributes::NOSUID)(&mut command);
    assert_eq!(command.status().unwrap_err().reason(), Reason::Errno(Errno::PERM));
}

#[test]
pub(crate) fn propagation_above() {
    needs_namespaces!();
    let dir = Dir::new();
    fs::create_dir(dir.join("at")).unwrap();
    let at = dir.join("at");
    let shared = MountPropagationFlags::SHARED;
    let propagation = MountPropagationFlags::PRIVATE;
    let below = text(at.join("a/b"));
    let observed = after_in_namespaces([
        mount_tmpfs(&at),
        Step::MountChange { target: text(&at), flags: shared },
        Step::Mkdir { path: text(at.join("a")), mode: Mode::from(0o755), tolerate: None },
        Step::Mkdir { path: below, mode: Mode::from(0o755), tolerate: None },
        Step::Open { path: below, flags: OFlags::PATH, mode: Mode::empty(), out: R0 },
        Step::MountSetattrAbove { directory: R0.into(), propagation },
        mount_tmpfs(&at.join("a/b")),
    ]);
    let lines = mounts(&observed, &at);
    assert!(lines.len() == 2 && lines.iter().all(|(_, line)| !line.contains("shared")), "{lines:?}");
}

#[test]
pub(crate) fn label() {
    needs_namespaces!();
    // Without SELinux a tmpfs either rejects the attribute or does not support it; both show that it was
    // tried.
    let steps = [NEW[0], NEW[1], Step::Label { mount: R1, label: b"system_u:object_r:a:s0" }];
    let mut command = Command::new("true");
    let labelled = with_privileges(&mut command).final_steps(list(steps)).status();
    match labelled {
        Ok(status) => assert!(status.success()),
        Err(error) => assert!(error.act().starts_with("label r1"), "{error}"),
    }
    assert!(failure([OPEN_NULL, Step::Label { mount: R0, label: b"" }]).contains("Not a directory"));
}

#[test]
pub(crate) fn hide() {
    needs_namespaces!();
    let dir = Dir::new();
    fs::create_dir(dir.join("at")).unwrap();
    let at = dir.join("at");
    let observed = after_in_namespaces([
        mount_tmpfs(&at),
        Step::Hide { path: text(&at) },
        Step::Hide { path: text(dir.join("gone")) },
    ]);
    assert_eq!(mounts(&observed, &at).len(), 0);
    // A locked mount is covered instead.
    needs_root!();
    let namespaces = Namespaces::USER | Namespaces::MOUNT;
    let observed = observe(|command| {
        own_root(command).new_namespaces(Namespaces::MOUNT).final_steps(list([
            mount_tmpfs(&at),
            Step::Unshare { namespaces },
            Step::Hide { path: text(&at) },
        ]))
    });
    let lines = mounts(&observed, &at);
    assert!(lines.len() == 2 && lines[1].1.contains("- tmpfs tmpfs"), "{lines:?}");
}

#[test]
pub(crate) fn unlink_in() {
    let dir = Dir::new();
    fs::write(dir.join("file"), "").unwrap();
    let unlink = |name| Step::UnlinkIn { directory: R0.into(), name };
    after([open(dir.path(), R0), unlink(c"file"), unlink(c"file")]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    fs::create_dir(dir.join("directory")).unwrap();
    assert!(failure([open(dir.path(), R0), unlink(c"directory")]).contains("Is a directory"));
}
