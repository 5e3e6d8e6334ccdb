//! Steps that make files and mounts.

use super::{
    after, after_in_namespaces, failure, list, mount_tmpfs, mounts, permissions, text, with_privileges,
};
use crate::support::{Dir, needs_namespaces, program};
use husk_spawn::sys::Errno;
use husk_spawn::sys::file::Mode;
use husk_spawn::sys::mount::MountPropagationFlags;
use husk_spawn::{Command, Step};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
pub(super) fn mkdir() {
    let dir = Dir::new();
    let new = |tolerate| Step::Mkdir { path: text(dir.join("new")), mode: Mode::from(0o1777), tolerate };
    after([Step::Umask { mask: Mode::from(0o022) }, new(None)]);
    assert_eq!(permissions(dir.join("new")), 0o1755);
    after([new(Some(Errno::EXIST))]);
    assert!(failure([new(None)]).ends_with("new 1777: File exists (os error 17)"));
}

#[test]
pub(super) fn symlink() {
    let dir = Dir::new();
    after([Step::Symlink { target: c"where/ever", path: text(dir.join("link")) }]);
    assert_eq!(fs::read_link(dir.join("link")).unwrap(), Path::new("where/ever"));
}

#[test]
pub(super) fn mount() {
    needs_namespaces!();
    let dir = Dir::new();
    let at = dir.join("at");
    fs::create_dir(&at).unwrap();
    let observed = after_in_namespaces([mount_tmpfs(&at)]);
    let [(_, line)] = &mounts(&observed, &at)[..] else { panic!("one mount") };
    assert!(line.contains("nosuid,nodev"), "{line}");
    assert!(line.contains("- tmpfs a-source"), "{line}");
    assert!(line.contains("size=64k,mode=711"), "{line}");
}

#[test]
pub(super) fn mount_bind() {
    needs_namespaces!();
    let dir = Dir::new();
    let [source, below, target] = ["source", "source/below", "target"].map(|name| dir.join(name));
    fs::create_dir_all(&below).unwrap();
    fs::create_dir(&target).unwrap();
    let bind = Step::MountBind { source: text(&source), target: text(&target) };
    let observed = after_in_namespaces([mount_tmpfs(&below), bind]);
    let mounts: BTreeSet<_> = mounts(&observed, &target).into_iter().map(|(at, _)| at).collect();
    let wanted = [target.clone(), target.join("below")].map(|at| at.into_os_string().into_string().unwrap());
    assert_eq!(mounts, BTreeSet::from(wanted), "the mount below is shown too");
}

#[test]
pub(super) fn mount_change() {
    needs_namespaces!();
    let dir = Dir::new();
    let at = dir.join("at");
    fs::create_dir(&at).unwrap();
    let line = |flags| {
        let change = Step::MountChange { target: text(&at), flags };
        mounts(&after_in_namespaces([mount_tmpfs(&at), change]), &at)[0].1.clone()
    };
    assert!(line(MountPropagationFlags::SHARED).contains(" shared:"));
    assert!(line(MountPropagationFlags::UNBINDABLE).contains(" unbindable "));
}

#[test]
pub(super) fn umount_detach() {
    needs_namespaces!();
    let dir = Dir::new();
    let at = dir.join("at");
    fs::create_dir(&at).unwrap();
    let observed = after_in_namespaces([mount_tmpfs(&at), Step::UmountDetach { target: text(&at) }]);
    assert_eq!(mounts(&observed, &at), []);
}

#[test]
pub(super) fn pivot_root() {
    needs_namespaces!();
    let dir = Dir::new();
    dir.program("found-below", program::exits(42));
    let old = dir.join("old");
    fs::create_dir(&old).unwrap();
    let (target, put_old) = (text(dir.path()), text(&old));
    let mut command = Command::new("/found-below");
    let steps = [Step::MountBind { source: target, target }, Step::PivotRoot { new_root: target, put_old }];
    let status = with_privileges(&mut command).final_steps(list(steps)).status().unwrap();
    assert_eq!(status.code(), Some(42));
}

#[test]
pub(super) fn chdir() {
    assert_eq!(after([Step::Chdir { path: c"/proc" }]).link("cwd"), Path::new("/proc"));
}

#[test]
pub(super) fn chroot() {
    needs_namespaces!();
    let dir = Dir::new();
    dir.program("found-below", program::exits(42));
    let mut command = Command::new("/found-below");
    let steps = [Step::Chroot { path: text(dir.path()) }];
    let status = with_privileges(&mut command).final_steps(list(steps)).status().unwrap();
    assert_eq!(status.code(), Some(42));
}

#[test]
pub(super) fn umask() {
    assert_eq!(after([Step::Umask { mask: Mode::from(0o137) }]).status("Umask"), "0137");
}
