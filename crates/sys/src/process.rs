//! What a process is: its session, its identity, its program, its end.

use crate::clone::InChild;
use crate::raw::{self, Numeric, Prctl, numbers, prctl};
use crate::signal::Signal;
use crate::{CArray, Errno, Fd, Gid, Pid, Result, Uid};
use core::ffi::CStr;
use linux_raw_sys::general;
use rustix::thread::{CapabilitySet, CapabilitySets};

/// `fchdir`.
///
/// # Errors
///
/// See chdir(2).
pub fn fchdir(directory: Fd) -> Result {
    rustix::process::fchdir(directory.lend())
}

pub use crate::raw::Instruction;
pub use rustix::process::{chdir, chroot, getpgrp, getpid, getppid, setpgid, setsid, umask};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With this status.
    Exited(u8),
    /// By this signal.
    Killed(u8),
}

/// `ppoll` of a pidfd: whether the process ends within so many seconds, for which it waits.
///
/// # Errors
///
/// See poll(2).
pub fn poll_end(pidfd: Fd, seconds: Option<u32>) -> Result<bool> {
    let limit = seconds.map(|seconds| rustix::event::Timespec { tv_sec: seconds.into(), tv_nsec: 0 });
    let pidfd = pidfd.lend();
    let mut events = [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)];
    // Begun again with the whole time only after a signal that has a handler.
    let ready = rustix::io::retry_on_intr(|| rustix::event::poll(&mut events, limit.as_ref()))?;
    Ok(ready != 0)
}

/// `waitid(P_PIDFD, WEXITED)`: waits for the end of a child.
///
/// # Errors
///
/// `ECHILD` if it is none of the caller's.
pub fn waitid_pidfd(pidfd: Fd) -> Result<End> {
    let id = || rustix::process::WaitId::PidFd(pidfd.lend());
    let options = rustix::process::WaitIdOptions::EXITED;
    let status = rustix::io::retry_on_intr(|| rustix::process::waitid(id(), options))?.ok_or(Errno::CHILD)?;
    // Both fit: statuses have eight bits, and there are 64 signals.
    let byte = |number: i32| u8::try_from(number & 0xff).unwrap_or(u8::MAX);
    Ok(match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => End::Exited(byte(code)),
        (None, signal) => End::Killed(byte(signal.unwrap_or(0))),
    })
}

/// A child that has ended, and what it used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which.
    pub pid: Pid,
    /// How, as wait(2) has it.
    pub status: i32,
    /// What it and the children that it waited for used.
    pub usage: Usage,
}

/// What processes used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Microseconds of processors.
    pub cpu_micros: u64,
    /// The most memory that one of them had at a time, in KiB.
    pub peak_kib: u64,
}

impl Ended {
    /// Whether it has only stopped.
    #[must_use]
    pub const fn has_stopped(&self) -> bool {
        self.status & 0xff == 0x7f
    }
}

/// `wait4(-1, WNOHANG | WUNTRACED)`: a child that has ended or stopped, if one has. In a process with other parts
/// it would take the status that one of them waits for.
///
/// # Errors
///
/// `ECHILD` if there are no children.
pub fn wait4_any_nohang(_: &InChild) -> Result<Option<Ended>> {
    let Some((pid, status, times, peak)) = raw::wait4_any(general::WNOHANG | general::WUNTRACED)? else {
        return Ok(None);
    };
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::CHILD)?;
    let number = |number: i64| u64::try_from(number).unwrap_or(0);
    let micros = |seconds, rest| number(seconds).wrapping_mul(1_000_000).wrapping_add(number(rest));
    let [user, system] = times;
    let (user, system) = (micros(user.tv_sec, user.tv_usec), micros(system.tv_sec, system.tv_usec));
    let usage = Usage { cpu_micros: user.wrapping_add(system), peak_kib: number(peak) };
    Ok(Some(Ended { pid, status, usage }))
}

/// `kill` of a process group.
///
/// # Errors
///
/// See kill(2).
pub fn kill_group(leader: Pid, signal: Signal) -> Result {
    raw::kill(leader.as_raw_pid().wrapping_neg(), signal.word())
}

/// `kill`.
///
/// # Errors
///
/// See kill(2).
pub fn kill(pid: Pid, signal: Signal) -> Result {
    raw::kill(pid.as_raw_pid(), signal.word())
}

/// `ioctl(PIDFD_GET_INFO)`: the status of a process that has been waited for, in the bits of wait(2), whoever
/// its parent was. It is kept for descriptors that were open before the wait.
///
/// # Errors
///
/// `ENOTTY` before Linux 6.13; `ESRCH` before 6.15, and if the descriptor came too late.
pub fn ioctl_pidfd_exit(pidfd: Fd) -> Result<Option<i32>> {
    raw::ioctl_pidfd_exit(pidfd)
}

/// `execve`: becomes the program at `path`. Returns only to say why not.
#[must_use]
pub fn execve(path: &CStr, argv: CArray<'_>, envp: CArray<'_>) -> Errno {
    match raw::execve(path, argv, envp) {
        Err(errno) => errno,
        // It does not return from success.
        Ok(_) => Errno::NOSYS,
    }
}

/// `execveat(AT_EMPTY_PATH)`: becomes the program that `file` is, whatever its name. Returns only to
/// say why not.
#[must_use]
pub fn execveat_empty(file: Fd, argv: CArray<'_>, envp: CArray<'_>) -> Errno {
    match raw::execveat_empty(file, argv, envp) {
        Err(errno) => errno,
        // It does not return from success.
        Ok(_) => Errno::NOSYS,
    }
}

/// `exit_group`: ends the process, without exit handlers, which are the parent's.
pub fn exit_group(status: u8) -> ! {
    raw::exit_group(usize::from(status))
}

/// `prctl(PR_SET_PDEATHSIG)`: the signal the caller gets when the thread that made it ends, if
/// any.
///
/// # Errors
///
/// None is known for a valid signal.
pub fn prctl_set_pdeathsig(signal: Option<Signal>) -> Result {
    prctl(Prctl::SetPdeathsig, [signal.map_or(0, Signal::word), 0]).map(drop)
}

/// `prctl(PR_SET_NO_NEW_PRIVS)`: no exec from here on gives privileges.
///
/// # Errors
///
/// None is known.
pub fn prctl_set_no_new_privs() -> Result {
    prctl(Prctl::SetNoNewPrivs, [1, 0]).map(drop)
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
    match prctl(Prctl::GetDumpable, [0, 0])? {
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
    prctl(Prctl::SetDumpable, [dumpable as usize, 0]).map(drop)
}

/// `setgroups` of the calling thread.
///
/// # Errors
///
/// `EPERM` without CAP_SETGID or where the user namespace denies it.
pub fn setgroups(groups: &[Gid]) -> Result {
    raw::setgroups(groups)
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

/// Sets of capabilities, a bit for each by its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// In force.
    pub effective: u64,
    /// Can be put in force.
    pub permitted: u64,
    /// Files may give them on exec.
    pub inheritable: u64,
}

/// `capset` of the calling thread.
///
/// # Errors
///
/// `EPERM` if any is added that is not permitted.
pub fn capset(capabilities: Capabilities) -> Result {
    let set = CapabilitySet::from_bits_retain;
    let Capabilities { effective, permitted, inheritable } = capabilities;
    let sets = CapabilitySets {
        effective: set(effective),
        permitted: set(permitted),
        inheritable: set(inheritable),
    };
    rustix::thread::set_capabilities(None, sets)
}

/// `personality`: which system the program is shown, `PER_*`.
///
/// # Errors
///
/// None is known.
pub fn personality(persona: u32) -> Result {
    numbers(Numeric::Personality, [persona as usize, 0, 0]).map(drop)
}

/// `prctl(PR_CAPBSET_DROP)`.
///
/// # Errors
///
/// `EINVAL` if the kernel knows no such capability, `EPERM` without CAP_SETPCAP.
pub fn prctl_capbset_drop(capability: u8) -> Result {
    prctl(Prctl::CapbsetDrop, [usize::from(capability), 0]).map(drop)
}

/// `prctl(PR_CAP_AMBIENT_RAISE)`.
///
/// # Errors
///
/// `EPERM` if the capability is not both permitted and inheritable.
pub fn prctl_cap_ambient_raise(capability: u8) -> Result {
    const RAISE: usize = 2;
    prctl(Prctl::CapAmbient, [RAISE, usize::from(capability)]).map(drop)
}

/// `prctl(PR_SET_KEEPCAPS)`: whether giving up uid 0 leaves permitted capabilities.
///
/// # Errors
///
/// None is known.
pub fn prctl_set_keepcaps(keep: KeepCaps) -> Result {
    prctl(Prctl::SetKeepcaps, [keep as usize, 0]).map(drop)
}

/// See [`prctl_set_keepcaps`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepCaps {
    /// It takes them away.
    No,
    /// It leaves them, until the next exec.
    Yes,
}

/// `seccomp(SECCOMP_SET_MODE_FILTER)`. With `SECCOMP_FILTER_FLAG_NEW_LISTENER` it returns the
/// listener.
///
/// For a child alone: a filter can answer a call with success that the kernel has not made, as of `mmap`.
///
/// # Errors
///
/// `EACCES` without CAP_SYS_ADMIN and without no_new_privs, `EINVAL` if the program is not sound.
pub fn seccomp_set_mode_filter(_: &InChild, flags: u32, program: &[Instruction]) -> Result<usize> {
    raw::seccomp(flags, program)
}

/// Whether the kernel takes these flags, asked with a program that it cannot read.
#[must_use]
pub fn seccomp_knows(flags: u32) -> bool {
    raw::seccomp_without_program(flags) == Err(Errno::FAULT)
}

/// The same with `SECCOMP_FILTER_FLAG_NEW_LISTENER`: the listener, which exec closes.
///
/// # Errors
///
/// The same, and `EBUSY` if there is a filter with a listener already.
pub fn seccomp_new_listener(_: &InChild, flags: u32, program: &[Instruction]) -> Result<Fd> {
    let number = raw::seccomp(flags, program)?;
    i32::try_from(number).ok().and_then(Fd::new).ok_or(Errno::BADF)
}

/// Whether the kernel makes calls the way of x32: `None` if that cannot be found out, because the
/// caller is filtered itself, and a filter may kill for such a call.
#[cfg(target_arch = "x86_64")]
#[must_use]
pub fn knows_x32() -> Option<bool> {
    match prctl(Prctl::GetSeccomp, [0, 0]) {
        // EINVAL: a kernel without filters.
        Ok(0) | Err(Errno::INVAL) => Some(raw::x32_getpid() != Err(Errno::NOSYS)),
        _ => None,
    }
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
