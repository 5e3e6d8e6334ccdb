//! Attempts at privileged operations, each in a child process, because guesses are unreliable.
//!
//! The child performs a list of steps in a copy of husk's memory. After the last step it is killed.

use crate::error::Error;
use husk_bundle::container::IdMapping;
use husk_script::sys::mount::{Extent, MountAttributes, mount_setattr_idmap};
use husk_script::sys::{Errno, Fd};
use husk_spawn::{Command, IdMap, Namespaces, Reason, Reg, Request, Signal, Stdio, Step};
use rustix::fs::CWD;
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::process::{Gid, Uid, getegid, geteuid};
use std::ffi::CStr;

/// The result of an attempt.
pub(super) type Outcome = Result<(), Errno>;

/// Makes namespaces without a user namespace, which needs privileges.
pub(super) fn namespaces() -> Outcome {
    let all = [Namespaces::PID, Namespaces::NET, Namespaces::IPC, Namespaces::UTS, Namespaces::CGROUP];
    let namespaces = all.into_iter().fold(Namespaces::MOUNT, |all, one| all | one);
    attempt(&[Step::Unshare { namespaces }])
}

/// Makes a user namespace without privileges.
pub(super) fn user_namespace() -> Outcome {
    in_user_namespace(Namespaces::EMPTY, &[])
}

/// Makes a file system in a user namespace. A machine that grants no privileges there allows the namespace but not
/// this.
pub(super) fn mount() -> Outcome {
    in_user_namespace(Namespaces::MOUNT, &file_system(c"tmpfs", None))
}

/// Makes a procfs. The kernel refuses that if the existing one is partly covered (`mount_too_revealing`).
pub(super) fn procfs() -> Outcome {
    // A new pid namespace applies to children only, so the list continues in its first process.
    let mut steps = vec![Step::CloneParent { namespaces: Namespaces::EMPTY }];
    steps.extend(file_system(c"proc", None));
    in_user_namespace(Namespaces::MOUNT | Namespaces::PID, &steps)
}

/// Makes an overlay, which engines need to assemble images.
pub(super) fn overlay() -> Outcome {
    in_user_namespace(Namespaces::MOUNT, &file_system(c"overlay", Some((c"lowerdir", c"/etc:/usr"))))
}

/// Makes an idmapped mount of the root file system.
pub(super) fn idmapped_mount() -> Outcome {
    let map = || vec![IdMapping { container_id: 0, host_id: 1, size: 1 }];
    let Ok(users) = crate::child::trees::make(&(map(), map())) else { return Err(Errno::NOSPC) };
    let tree = open_tree(CWD, c"/", OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    mount_setattr_idmap(Fd::of(&tree), Extent::Top, Fd::of(&users))
}

/// Runs a process with all the ids that the user has been given, by means of newuidmap and newgidmap.
pub(super) fn many_ids(uids: [u32; 2], gids: [u32; 2]) -> Result<(), Error> {
    let maps = |own: u32, [first, count]: [u32; 2]| {
        [IdMap { inside: 0, outside: own, count: 1 }, IdMap { inside: 1, outside: first, count }]
    };
    let mut command = Command::new("/proc/self/exe");
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).new_namespaces(Namespaces::USER);
    command.uid_map(&maps(geteuid().as_raw(), uids)).gid_map(&maps(getegid().as_raw(), gids));
    Ok(command.status().map(drop)?)
}

/// Performs steps in a new user namespace and `others` that belong to it. Root first becomes the user nobody.
fn in_user_namespace(others: Namespaces, then: &[Step<'static>]) -> Outcome {
    let mut steps = as_nobody();
    steps.push(Step::Unshare { namespaces: Namespaces::USER | others });
    steps.extend(then);
    attempt(&steps)
}

/// Returns the steps by which root becomes an unprivileged user. Empty if the caller lacks the privilege, because
/// then it already is one.
fn as_nobody() -> Vec<Step<'static>> {
    const NOBODY: u32 = 65534;
    let steps = [
        Step::Setgroups { groups: &[] },
        Step::Setresgid { gid: Gid::from_raw(NOBODY) },
        Step::Setresuid { uid: Uid::from_raw(NOBODY) },
    ];
    let may = geteuid().is_root() && attempt(&steps).is_ok();
    if may { steps.to_vec() } else { Vec::new() }
}

/// Returns the steps that make a new file system, which is not mounted.
fn file_system(fstype: &'static CStr, option: Option<(&'static CStr, &'static CStr)>) -> Vec<Step<'static>> {
    let fs = Reg::new(0).expect("the first register");
    let mut steps = vec![Step::Fsopen { fstype, out: fs }];
    steps.extend(option.map(|(key, value)| Step::FsconfigString { fs, key, value }));
    steps.push(Step::Fsmount { fs, attributes: MountAttributes::EMPTY });
    steps
}

/// Performs the steps in a child process. Returns the error of the step that fails.
fn attempt(steps: &[Step<'static>]) -> Outcome {
    let steps = steps.to_vec();
    let mut command = Command::of_steps(move |writer| {
        writer.push(Step::ParentDeathSignal { signal: Signal::KILL, parent: None });
        // Closes also the child's copy of husk's end of the channel. So the child ends when husk does.
        writer.push(Step::CloseOthers { first: Fd::FIRST_EXTRA, keep: None });
        steps.iter().for_each(|step| writer.push(*step));
        // The parent never answers this request, but kills the child.
        writer.push(Step::Request { what: Request::Parked });
        Ok(())
    });
    command.own_memory().kill_on_drop();
    let outcome = command.spawn().and_then(|mut child| match child.next_request()? {
        Some(_) => Ok(()),
        None => child.wait().map(drop),
    });
    outcome.map_err(|error| match error.reason() {
        Reason::Errno(errno) => errno,
        // Killed by a seccomp filter, which is a refusal.
        _ => Errno::PERM,
    })
}

#[cfg(test)]
mod tests {
    use super::{Errno, Namespaces, Step, attempt};

    #[test]
    fn attempt_returns_the_errno_of_the_step_that_fails() {
        const FAILS: Step<'static> = Step::Chroot { path: c"/no/such" };
        const ON: Step<'static> = Step::CloneParent { namespaces: Namespaces::EMPTY };
        assert_eq!(attempt(&[]), Ok(()));
        assert_eq!(attempt(&[FAILS]), Err(Errno::NOENT));
        assert_eq!(attempt(&[ON]), Ok(()));
        assert_eq!(attempt(&[ON, FAILS]), Err(Errno::NOENT));
    }
}
