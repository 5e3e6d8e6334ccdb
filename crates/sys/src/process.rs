//! What a process is: its session, its identity, its program, its end.
//!
//! # Safety
//!
//! The raw calls of this file pass numbers, strings that end with NUL ([`CStr`]) and arrays that
//! end with a null pointer ([`CArray`]).

#![allow(unsafe_code, clippy::allow_attributes, reason = "raw system calls that rustix lacks")]

use crate::signal::Signal;
use crate::{CArray, Errno, Fd, Gid, Pid, Result, Uid, arch, check};
use core::ffi::CStr;
use linux_raw_sys::general::{__NR_execve, __NR_exit_group, __NR_prctl, __NR_setgroups};
use linux_raw_sys::prctl::{PR_GET_DUMPABLE, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG};

pub use rustix::process::{chdir, chroot, getpgrp, getppid, setpgid, setsid, umask};

/// `execve`: becomes the program at `path`. Returns only to say why not.
#[must_use]
pub fn execve(path: &CStr, argv: CArray<'_>, envp: CArray<'_>) -> Errno {
    let words = [path.as_ptr().addr(), argv.address(), envp.address(), 0, 0, 0];
    // SAFETY: the kernel reads a string that ends with NUL and two arrays of such strings that end
    // with a null pointer, as their types prove.
    match check(unsafe { arch::call(__NR_execve, words) }) {
        Err(errno) => errno,
        // It does not return from success.
        Ok(_) => Errno::NOSYS,
    }
}

/// `exit_group`: ends the process, without exit handlers, which are the parent's.
pub fn exit_group(status: u8) -> ! {
    loop {
        // SAFETY: one number. It does not return; the loop is what tells the compiler so.
        unsafe { arch::call(__NR_exit_group, [usize::from(status), 0, 0, 0, 0, 0]) };
    }
}

/// `prctl(PR_SET_PDEATHSIG)`: the signal the caller gets when the thread that made it ends.
///
/// # Errors
///
/// None is known for a valid signal.
pub fn prctl_set_pdeathsig(signal: Signal) -> Result {
    prctl(PR_SET_PDEATHSIG, signal.number().unsigned_abs() as usize).map(drop)
}

/// `prctl(PR_SET_NO_NEW_PRIVS)`: no exec from here on gives privileges.
///
/// # Errors
///
/// None is known.
pub fn prctl_set_no_new_privs() -> Result {
    prctl(PR_SET_NO_NEW_PRIVS, 1).map(drop)
}

/// Who may look into a process and its core dumps. It belongs to the memory, so to all who share
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dumpable {
    /// Nobody without privileges, `SUID_DUMP_DISABLE`.
    No,
    /// Processes of the same user, `SUID_DUMP_USER`.
    Yes,
    /// Only root, `SUID_DUMP_ROOT`; the kernel sets this itself, nobody can ask for it.
    Root,
}

/// `prctl(PR_GET_DUMPABLE)`.
///
/// # Errors
///
/// None is known.
pub fn prctl_get_dumpable() -> Result<Dumpable> {
    match prctl(PR_GET_DUMPABLE, 0)? {
        0 => Ok(Dumpable::No),
        1 => Ok(Dumpable::Yes),
        _ => Ok(Dumpable::Root),
    }
}

/// `prctl(PR_SET_DUMPABLE)`.
///
/// # Errors
///
/// `EINVAL` for [`Dumpable::Root`].
pub fn prctl_set_dumpable(dumpable: Dumpable) -> Result {
    prctl(PR_SET_DUMPABLE, dumpable as usize).map(drop)
}

fn prctl(option: u32, argument: usize) -> Result<usize> {
    // SAFETY: the options used above take one number, and zeros where they take none.
    check(unsafe { arch::call(__NR_prctl, [option as usize, argument, 0, 0, 0, 0]) })
}

/// `setgroups` of the calling thread.
///
/// # Errors
///
/// `EPERM` without CAP_SETGID or where the user namespace denies it.
pub fn setgroups(groups: &[Gid]) -> Result {
    // SAFETY: `Gid` is one `gid_t`; the kernel reads as many as it is told there are.
    check(unsafe { arch::call(__NR_setgroups, [groups.len(), groups.as_ptr().addr(), 0, 0, 0, 0]) }).map(drop)
}

/// `setresgid` of the calling thread: real, effective and saved.
///
/// # Errors
///
/// See setresgid(2).
pub fn setresgid(gid: Gid) -> Result {
    rustix::thread::set_thread_res_gid(gid, gid, gid)
}

/// `setresuid` of the calling thread: real, effective and saved.
///
/// # Errors
///
/// See setresuid(2).
pub fn setresuid(uid: Uid) -> Result {
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

/// `ioctl(TIOCSCTTY)`: the terminal becomes the controlling terminal of the caller's session.
///
/// # Errors
///
/// `EPERM` if the caller leads no session or the terminal is another's.
pub fn ioctl_tiocsctty(terminal: Fd) -> Result {
    rustix::process::ioctl_tiocsctty(terminal.lend())
}

/// `tcsetpgrp`: the process group `group` becomes the terminal's foreground group.
///
/// # Errors
///
/// See tcsetpgrp(3).
pub fn tcsetpgrp(terminal: Fd, group: Pid) -> Result {
    rustix::termios::tcsetpgrp(terminal.lend(), group)
}
