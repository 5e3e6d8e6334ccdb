//! What is tried rather than guessed, each in a process of its own that ends with it.
//!
//! Only for a program with one thread: the process is a copy of us and goes on as we would.

use crate::error::Error;
use husk_bundle::container::IdMapping;
use husk_spawn::sys::clone::fork;
use husk_spawn::sys::mount::{
    Extent, fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount_setattr_idmap, open_tree_clone,
};
use husk_spawn::sys::namespace::unshare;
use husk_spawn::sys::process::{End, setgroups, setresgid, setresuid, waitid_pidfd};
use husk_spawn::sys::{Errno, Fd, file};
use husk_spawn::{Command, IdMap, Namespaces, Stdio};
use rustix::process::{Gid, Uid, getegid, geteuid};

/// Whether it can be done.
pub(super) type Outcome = Result<(), Errno>;

/// Namespaces without a user namespace, for which privileges are needed.
pub(super) fn namespaces() -> Outcome {
    let all = [Namespaces::PID, Namespaces::NET, Namespaces::IPC, Namespaces::UTS, Namespaces::CGROUP];
    attempt(|| unshare(all.into_iter().fold(Namespaces::MOUNT, |all, one| all | one)))
}

/// A user namespace, by somebody without privileges.
pub(super) fn user_namespace() -> Outcome {
    attempt(|| in_user_namespace(Namespaces::EMPTY))
}

/// A file system in it. What gives who is in one no privileges lets it be made, and refuses this.
pub(super) fn mount() -> Outcome {
    attempt(|| {
        in_user_namespace(Namespaces::MOUNT)?;
        file_system("tmpfs", &[])
    })
}

/// A procfs, which the kernel refuses where one that is there is covered in part (`mount_too_revealing`).
pub(super) fn procfs() -> Outcome {
    attempt(|| {
        in_user_namespace(Namespaces::MOUNT | Namespaces::PID)?;
        // The first process there.
        attempt(|| file_system("proc", &[]))
    })
}

/// An overlay, which is what images are put together by.
pub(super) fn overlay() -> Outcome {
    attempt(|| {
        in_user_namespace(Namespaces::MOUNT)?;
        file_system("overlay", &[(c"lowerdir", c"/etc:/usr")])
    })
}

/// A mount of the root file system with other ids.
pub(super) fn idmapped_mount() -> Outcome {
    let map = || vec![IdMapping { container_id: 0, host_id: 1, size: 1 }];
    let Ok(users) = crate::trees::make(&(map(), map())) else { return Err(Errno::NOSPC) };
    let tree = open_tree_clone(c"/", Extent::Top)?;
    let mapped = mount_setattr_idmap(tree, Extent::Top, Fd::of(&users));
    file::close(tree);
    mapped
}

/// A process with all the ids that a user has been given: by newuidmap, and who may use it.
pub(super) fn many_ids(uids: [u32; 2], gids: [u32; 2]) -> Result<(), Error> {
    let maps = |own: u32, [first, count]: [u32; 2]| {
        [IdMap { inside: 0, outside: own, count: 1 }, IdMap { inside: 1, outside: first, count }]
    };
    let mut command = Command::new("/proc/self/exe");
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).new_namespaces(Namespaces::USER);
    command.uid_map(&maps(geteuid().as_raw(), uids)).gid_map(&maps(getegid().as_raw(), gids));
    Ok(command.status().map(drop)?)
}

/// A user namespace and others that belong to it, by nobody if we are root.
fn in_user_namespace(others: Namespaces) -> Outcome {
    if geteuid().is_root() {
        const NOBODY: u32 = 65534;
        // Tolerated: who is root without these privileges is as good as an ordinary user.
        let groups = setgroups(&[]);
        groups
            .and_then(|()| setresgid(Gid::from_raw(NOBODY)))
            .and_then(|()| setresuid(Uid::from_raw(NOBODY)))
            .unwrap_or(());
    }
    unshare(Namespaces::USER | others)
}

/// A new file system, mounted nowhere.
fn file_system(fstype: &str, options: &[(&std::ffi::CStr, &std::ffi::CStr)]) -> Outcome {
    let fstype = std::ffi::CString::new(fstype).map_err(|_| Errno::INVAL)?;
    let file_system = fsopen(&fstype)?;
    options.iter().try_for_each(|(key, value)| fsconfig_set_string(file_system, key, value))?;
    fsconfig_create(file_system)?;
    fsmount(file_system, 0).map(drop)
}

/// Does it in a process of its own, whose end says how it went.
fn attempt(what: impl FnOnce() -> Outcome) -> Outcome {
    let child = fork(|| match what() {
        Ok(()) => 0,
        // The numbers of errors that concern us are small.
        Err(errno) => u8::try_from(errno.raw_os_error()).unwrap_or(u8::MAX),
    })?;
    let end = waitid_pidfd(child.pidfd);
    file::close(child.pidfd);
    match end? {
        End::Exited(0) => Ok(()),
        End::Exited(number) => Err(Errno::from_raw_os_error(number.into())),
        // By a filter of system calls, which is a refusal.
        End::Killed(_) => Err(Errno::PERM),
    }
}

#[cfg(test)]
mod tests {
    use super::{Errno, attempt};

    #[test]
    fn an_attempt_says_how_it_went() {
        assert_eq!(attempt(|| Ok(())), Ok(()));
        assert_eq!(attempt(|| Err(Errno::NOSPC)), Err(Errno::NOSPC));
        assert_eq!(attempt(|| attempt(|| Err(Errno::PERM))), Err(Errno::PERM));
    }
}
