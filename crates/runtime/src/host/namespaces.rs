//! Examines existing namespaces before a container joins them.

use husk_bundle::Container;
use husk_bundle::container::{IdMapping, Namespace, NamespaceKind};
use husk_listing::Cause;
use husk_plan::{JoinedIds, NamespacePath};
use husk_script::sys::namespace::{Namespaces, ioctl_ns_get_nstype};
use husk_script::sys::{Errno, Fd};
use husk_spawn::{Command, Request, Step};
use rustix::fs::{Mode, OFlags, fstat, fstatfs, open, stat};
use rustix::process::geteuid;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Whether husk is in the first user namespace, whose inode number is fixed (`PROC_USER_INIT_INO`, linux/proc_ns.h).
pub(crate) fn is_first_user_namespace() -> bool {
    const FIRST: u64 = 0xeffffffd;
    rustix::fs::stat("/proc/self/ns/user").is_ok_and(|namespace| namespace.st_ino == FIRST)
}

/// Whether husk lacks privileges over the host. True also for root of another user namespace.
pub(crate) fn is_unprivileged() -> bool {
    !geteuid().is_root() || !is_first_user_namespace()
}

/// Examines the file at the path of a namespace. `None` if the configuration gives no path.
pub(crate) fn look(namespace: &Namespace) -> Option<NamespacePath> {
    let path = namespace.path.as_ref()?;
    let found = match open_namespace(path) {
        Err(errno) => return Some(NamespacePath::Unreadable(Cause::from(errno).to_string())),
        Ok(found) => found,
    };
    let is_namespace = fstatfs(&found).is_ok_and(|found| found.f_type == NSFS_MAGIC);
    let kind = ioctl_ns_get_nstype(Fd::of(&found));
    let Some(kind) = kind.ok().filter(|_| is_namespace) else { return Some(NamespacePath::Other) };
    Some(NamespacePath::Namespace { kind, own: is_own(&found, kind) })
}

/// `NSFS_MAGIC`: the type of the file system that holds namespaces.
const NSFS_MAGIC: rustix::fs::FsWord = 0x6e73_6673;

/// Opens a path without blocking, whatever type of file is there.
fn open_namespace(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    open(path, flags, Mode::empty())
}

/// Whether this process is in the namespace. A namespace has one inode, whatever path leads to it.
fn is_own(namespace: &OwnedFd, kind: Namespaces) -> bool {
    let Some((_, name)) = Namespaces::NAMES.into_iter().find(|(known, _)| *known == kind) else {
        return false;
    };
    match (fstat(namespace), stat(format!("/proc/self/ns/{name}"))) {
        (Ok(one), Ok(other)) => (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino),
        _ => false,
    }
}

/// Returns the id maps of the user namespace that the container joins. They can be read only of a process in it, so a
/// child joins it. `None` if that fails: the container's own process will report a better error.
pub(crate) fn joined_ids(container: &Container) -> Option<JoinedIds> {
    let user = container.namespaces.iter().find(|namespace| namespace.kind == NamespaceKind::User)?;
    let namespace = open_namespace(user.path.as_ref()?).ok()?;
    let fd = Fd::of(&namespace);
    let mut command = Command::of_steps(move |writer| {
        writer.push(Step::Setns { fd: fd.into(), namespaces: Namespaces::USER });
        // Nothing is written in answer: the child only waits while its maps are read.
        writer.push(Step::Request { what: Request::IdMaps });
        Ok(())
    });
    let mut child = command.kill_on_drop().spawn().ok()?;
    child.next_request().ok()??;
    ids_of(child.id())
}

/// Returns the id maps of a process's user namespace.
pub(crate) fn ids_of(pid: u32) -> Option<JoinedIds> {
    let read = |file| fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
    let (uids, gids) = (mappings(&read("uid_map")?)?, mappings(&read("gid_map")?)?);
    Some(JoinedIds { uids, gids, may_set_groups: read("setgroups")?.trim() == "allow" })
}

/// Parses a map as the kernel prints it.
fn mappings(text: &str) -> Option<Vec<IdMapping>> {
    let line = |line: &str| {
        let mut numbers = line.split_whitespace().map(|number| number.parse().ok());
        let mut next = || numbers.next().flatten();
        Some(IdMapping { container_id: next()?, host_id: next()?, size: next()? })
    };
    text.lines().map(line).collect()
}

/// Whether procfs supports the `pidns` option. If the container joins a pid namespace, a child tries it in the
/// container's user namespace, where it will be used.
pub(crate) fn procfs_takes_pidns(container: &Container) -> bool {
    let path = |kind| {
        let mut namespaces = container.namespaces.iter();
        namespaces.find(|namespace| namespace.kind == kind)?.path.as_deref()
    };
    let Some(Ok(pid)) = path(NamespaceKind::Pid).map(open_namespace) else { return false };
    let user = path(NamespaceKind::User).map(open_namespace);
    let (pid, user_fd) = (Fd::of(&pid), user.as_ref().and_then(|user| user.as_ref().ok()).map(Fd::of));
    let mut command = Command::of_steps(move |writer| {
        if let Some(user) = user_fd {
            writer.push(Step::Setns { fd: user.into(), namespaces: Namespaces::USER });
        }
        writer.push(Step::Unshare { namespaces: Namespaces::MOUNT });
        let fs = writer.register()?;
        writer.push(Step::Fsopen { fstype: c"proc", out: fs });
        writer.push(Step::FsconfigFd { fs, key: c"pidns", fd: pid.into() });
        // The child sends this request only if every step before it worked.
        writer.push(Step::Request { what: Request::Parked });
        Ok(())
    });
    let child = command.kill_on_drop().spawn();
    child.is_ok_and(|mut child| matches!(child.next_request(), Ok(Some(_))))
}
