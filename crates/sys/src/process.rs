//! Controls the calling process (session, identity, program, exit), and signals and reaps others.

use crate::clone::InChild;
use crate::raw::{self, Numeric, Prctl, numbers, prctl};
use crate::signal::Signal;
use crate::{CArray, Errno, Fd, Gid, Pid, Result, Uid};
use core::ffi::CStr;
use linux_raw_sys::general;
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Changes the working directory to `directory`, with `fchdir`.
pub fn fchdir(directory: Fd) -> Result {
    rustix::process::fchdir(directory.lend())
}

pub use crate::raw::SockFilter;
pub use rustix::process::{chdir, chroot, getpgrp, getpid, getppid, setpgid, setsid, umask};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It exited with this status.
    Exited(u8),
    /// It was killed by this signal.
    Killed(u8),
}

/// Waits with `ppoll` until the process of a pidfd ends, or for so many seconds. Returns whether it has ended.
pub fn poll_end(pidfd: Fd, seconds: Option<u32>) -> Result<bool> {
    let limit = seconds.map(|seconds| rustix::event::Timespec { tv_sec: seconds.into(), tv_nsec: 0 });
    let pidfd = pidfd.lend();
    let mut events = [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)];
    // Repeated with the full timeout, but only after a signal that has a handler.
    let ready = rustix::io::retry_on_intr(|| rustix::event::poll(&mut events, limit.as_ref()))?;
    Ok(ready != 0)
}

/// Waits for the end of a child, with `waitid(P_PIDFD, WEXITED)`.
///
/// # Errors
///
/// `ECHILD` if the process is not a child of the caller.
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

/// A child that has ended or stopped, with the resources it has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The pid of the child.
    pub pid: Pid,
    /// The status in the format of wait(2).
    pub status: i32,
    /// The resources that the child and the children it has reaped have used.
    pub usage: Usage,
}

/// Resources that processes have used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in microseconds.
    pub cpu_micros: u64,
    /// The highest peak memory of any one of them, in KiB.
    pub peak_kib: u64,
}

impl Ended {
    /// Returns whether the child has only stopped.
    #[must_use]
    pub const fn has_stopped(&self) -> bool {
        self.status & 0xff == 0x7f
    }
}

/// Reaps a child that has ended, or reports one that has stopped, with `wait4(-1, WNOHANG | WUNTRACED)`. In a process
/// with other code it could take a status that the other code waits for.
///
/// # Errors
///
/// `ECHILD` if the caller has no children.
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

/// Sends `signal` to a process group, with `kill`.
pub fn kill_group(leader: Pid, signal: Signal) -> Result {
    raw::kill(leader.as_raw_pid().wrapping_neg(), signal.word())
}

/// Sends `signal` to a process, with `kill`.
pub fn kill(pid: Pid, signal: Signal) -> Result {
    raw::kill(pid.as_raw_pid(), signal.word())
}

/// Returns the wait(2) status of a reaped process, whichever process was its parent, from `ioctl(PIDFD_GET_INFO)`. The
/// kernel keeps it for pidfds that were open before the process was reaped.
///
/// # Errors
///
/// `ENOTTY` before Linux 6.13; `ESRCH` before 6.15, and if the descriptor was opened too late.
pub fn ioctl_pidfd_exit(pidfd: Fd) -> Result<Option<i32>> {
    raw::ioctl_pidfd_exit(pidfd)
}

/// Executes the program at `path`, with `execve`. Returns only if that fails, with the reason.
#[must_use]
pub fn execve(path: &CStr, argv: CArray<'_>, envp: CArray<'_>) -> Errno {
    match raw::execve(path, argv, envp) {
        Err(errno) => errno,
        // A successful call does not return.
        Ok(_) => Errno::NOSYS,
    }
}

/// Executes the program in `file`, whatever its name, with `execveat(AT_EMPTY_PATH)`. Returns only if that fails, with
/// the reason.
#[must_use]
pub fn execveat_empty(file: Fd, argv: CArray<'_>, envp: CArray<'_>) -> Errno {
    match raw::execveat_empty(file, argv, envp) {
        Err(errno) => errno,
        // A successful call does not return.
        Ok(_) => Errno::NOSYS,
    }
}

/// Ends the process with `exit_group`, without exit handlers, which belong to the parent.
pub fn exit_group(status: u8) -> ! {
    raw::exit_group(usize::from(status))
}

/// Sets the signal that the caller gets when the thread that created it ends, with `prctl(PR_SET_PDEATHSIG)`. `None`
/// clears it.
///
/// # Errors
///
/// None is known for a valid signal.
pub fn prctl_set_pdeathsig(signal: Option<Signal>) -> Result {
    prctl(Prctl::SetPdeathsig, [signal.map_or(0, Signal::word), 0]).map(drop)
}

/// Prevents later execs from granting privileges, with `prctl(PR_SET_NO_NEW_PRIVS)`.
pub fn prctl_set_no_new_privs() -> Result {
    prctl(Prctl::SetNoNewPrivs, [1, 0]).map(drop)
}

/// Says which processes may inspect a process and its core dumps. The setting belongs to the memory, so it applies to
/// all processes that share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dumpable {
    /// Only privileged processes, `SUID_DUMP_DISABLE`.
    No,
    /// Processes of the same user, `SUID_DUMP_USER`.
    Yes,
    /// Only root, `SUID_DUMP_ROOT`. The kernel sets this itself; it cannot be requested.
    Root,
}

/// Returns the result of `prctl(PR_GET_DUMPABLE)`.
pub fn prctl_get_dumpable() -> Result<Dumpable> {
    match prctl(Prctl::GetDumpable, [0, 0])? {
        0 => Ok(Dumpable::No),
        1 => Ok(Dumpable::Yes),
        _ => Ok(Dumpable::Root),
    }
}

/// Sets the value with `prctl(PR_SET_DUMPABLE)`.
///
/// # Errors
///
/// `EINVAL` for [`Dumpable::Root`].
pub fn prctl_set_dumpable(dumpable: Dumpable) -> Result {
    prctl(Prctl::SetDumpable, [dumpable as usize, 0]).map(drop)
}

/// Sets the supplementary groups of the calling thread, with `setgroups`.
///
/// # Errors
///
/// `EPERM` without CAP_SETGID, or if the user namespace denies it.
pub fn setgroups(groups: &[Gid]) -> Result {
    raw::setgroups(groups)
}

/// Sets the real, effective and saved group of the calling thread, with `setresgid`.
pub fn setresgid(gid: Gid) -> Result {
    rustix::thread::set_thread_res_gid(gid, gid, gid)
}

/// Sets the real, effective and saved user of the calling thread, with `setresuid`.
pub fn setresuid(uid: Uid) -> Result {
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

/// Sets of capabilities, with one bit for each capability's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// The capabilities that the kernel checks.
    pub effective: u64,
    /// The capabilities that can be made effective.
    pub permitted: u64,
    /// The capabilities that files may grant on exec.
    pub inheritable: u64,
}

/// Sets the capabilities of the calling thread, with `capset`.
///
/// # Errors
///
/// `EPERM` if a capability is added that is not permitted.
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

/// Selects the system that the program sees (`PER_*`), with `personality`.
pub fn personality(persona: u32) -> Result {
    numbers(Numeric::Personality, [persona as usize, 0, 0]).map(drop)
}

/// Drops a capability from the bounding set, with `prctl(PR_CAPBSET_DROP)`.
///
/// # Errors
///
/// `EINVAL` if the kernel does not know the capability, `EPERM` without CAP_SETPCAP.
pub fn prctl_capbset_drop(capability: u8) -> Result {
    prctl(Prctl::CapbsetDrop, [usize::from(capability), 0]).map(drop)
}

/// Adds a capability to the ambient set, with `prctl(PR_CAP_AMBIENT_RAISE)`.
///
/// # Errors
///
/// `EPERM` if the capability is not both permitted and inheritable.
pub fn prctl_cap_ambient_raise(capability: u8) -> Result {
    const RAISE: usize = 2;
    prctl(Prctl::CapAmbient, [RAISE, usize::from(capability)]).map(drop)
}

/// Sets whether permitted capabilities survive giving up uid 0, with `prctl(PR_SET_KEEPCAPS)`.
pub fn prctl_set_keepcaps(keep: KeepCaps) -> Result {
    prctl(Prctl::SetKeepcaps, [keep as usize, 0]).map(drop)
}

/// Says whether permitted capabilities survive giving up uid 0 (`prctl(PR_SET_KEEPCAPS)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepCaps {
    /// Giving up uid 0 clears them.
    No,
    /// Giving up uid 0 keeps them, until the next exec.
    Yes,
}

/// Installs a filter with `seccomp(SECCOMP_SET_MODE_FILTER)`. With `SECCOMP_FILTER_FLAG_NEW_LISTENER` it returns the
/// listener.
///
/// Only a child may call it: a filter can report success for a call that the kernel has not made, such as `mmap`.
///
/// # Errors
///
/// `EACCES` without CAP_SYS_ADMIN and without no_new_privs, `EINVAL` if the program is not valid.
pub fn seccomp_set_mode_filter(_: &InChild, flags: u32, program: &[SockFilter]) -> Result<usize> {
    raw::seccomp(flags, program)
}

/// Returns whether the kernel supports these flags, by passing a program that it cannot read.
#[must_use]
pub fn seccomp_knows(flags: u32) -> bool {
    raw::seccomp_without_program(flags) == Err(Errno::FAULT)
}

/// Installs a filter with `SECCOMP_FILTER_FLAG_NEW_LISTENER`, and returns the listener, which exec closes.
///
/// # Errors
///
/// As for [`seccomp_set_mode_filter`], and `EBUSY` if a filter already has a listener.
pub fn seccomp_new_listener(_: &InChild, flags: u32, program: &[SockFilter]) -> Result<Fd> {
    let number = raw::seccomp(flags, program)?;
    i32::try_from(number).ok().and_then(Fd::new).ok_or(Errno::BADF)
}

/// A system call that waits for the answer of a seccomp listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotifiedCall {
    /// Identifies the call, because another process may get the caller's pid.
    pub id: u64,
    /// The thread that makes the call, in the pid namespace of the reader; 0 if it is not visible there.
    pub thread: u32,
    pub number: u32,
    /// `AUDIT_ARCH_*`.
    pub arch: u32,
    pub instruction_pointer: u64,
    pub arguments: [u64; 6],
}

/// The answer of a seccomp listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallAnswer {
    /// The kernel makes the call.
    GoOn,
    /// The call fails with this error.
    Fail(Errno),
}

/// Receives the next waiting call, with `ioctl(SECCOMP_IOCTL_NOTIF_RECV)`. Blocks until there is one.
///
/// # Errors
///
/// `ENOENT` if the caller has ended meanwhile.
pub fn ioctl_seccomp_receive(listener: Fd) -> Result<NotifiedCall> {
    let [id, thread, call, instruction_pointer, arguments @ ..] = raw::ioctl_seccomp_receive(listener)?;
    let halves = |word: u64| {
        let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
        (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]))
    };
    let ((thread, _), (number, arch)) = (halves(thread), halves(call));
    Ok(NotifiedCall { id, thread, number, arch, instruction_pointer, arguments })
}

/// Answers a waiting call, with `ioctl(SECCOMP_IOCTL_NOTIF_SEND)`.
///
/// # Errors
///
/// `ENOENT` if the caller has ended or was interrupted.
pub fn ioctl_seccomp_send(listener: Fd, id: u64, answer: CallAnswer) -> Result {
    /// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`.
    const GO_ON: u32 = 1;
    let (error, flags) = match answer {
        CallAnswer::GoOn => (0, GO_ON),
        CallAnswer::Fail(errno) => (errno.raw_os_error().wrapping_neg(), 0),
    };
    let ([a, b, c, d], [e, f, g, h]) = (error.to_ne_bytes(), flags.to_ne_bytes());
    raw::ioctl_seccomp_send(listener, [id, 0, u64::from_ne_bytes([a, b, c, d, e, f, g, h])])
}

/// Answers a waiting call with a copy of a descriptor, whose number the call returns, with
/// `ioctl(SECCOMP_IOCTL_NOTIF_ADDFD)`. An exec of the caller does not close it.
///
/// # Errors
///
/// `ENOENT` if the caller has ended or was interrupted, `EBADF` if `fd` was opened with `O_PATH`.
pub fn ioctl_seccomp_addfd(listener: Fd, id: u64, fd: Fd) -> Result {
    /// `SECCOMP_ADDFD_FLAG_SEND`.
    const ANSWER: u32 = 2;
    let ([a, b, c, d], [e, f, g, h]) = (ANSWER.to_ne_bytes(), fd.number().to_ne_bytes());
    raw::ioctl_seccomp_addfd(listener, [id, u64::from_ne_bytes([a, b, c, d, e, f, g, h]), 0])
}

/// Checks with `ioctl(SECCOMP_IOCTL_NOTIF_ID_VALID)` that a call still waits, so that its thread is the one that made
/// it.
///
/// # Errors
///
/// `ENOENT` if it does not.
pub fn ioctl_seccomp_id_valid(listener: Fd, id: u64) -> Result {
    raw::ioctl_seccomp_id_valid(listener, id)
}

/// Returns whether the kernel supports x32 system calls. Returns `None` if the caller itself is filtered, because a
/// filter may kill it for such a call.
#[cfg(target_arch = "x86_64")]
#[must_use]
pub fn knows_x32() -> Option<bool> {
    match prctl(Prctl::GetSeccomp, [0, 0]) {
        // EINVAL: a kernel without filters.
        Ok(0) | Err(Errno::INVAL) => Some(raw::x32_getpid() != Err(Errno::NOSYS)),
        _ => None,
    }
}

/// Makes the terminal the controlling terminal of the caller's session, with `ioctl(TIOCSCTTY)`.
///
/// # Errors
///
/// `EPERM` if the caller does not lead a session, or the terminal belongs to another session.
pub fn ioctl_tiocsctty(terminal: Fd) -> Result {
    rustix::process::ioctl_tiocsctty(terminal.lend())
}

/// Makes `group` the terminal's foreground process group, with `tcsetpgrp`.
pub fn tcsetpgrp(terminal: Fd, group: Pid) -> Result {
    rustix::termios::tcsetpgrp(terminal.lend(), group)
}
