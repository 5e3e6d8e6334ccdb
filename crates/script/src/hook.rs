//! Runs a hook: a program that runs beside the child while the child waits for it.
//!
//! The hook starts in a copy of the child's memory, because the child still uses its own. Its standard input and its
//! output are files in memory, so neither process waits for the other to read or write. Only the hook itself can
//! block, and a timeout limits that.
//!
//! The output is kept in case the hook fails, see [`report`](crate::report).

use crate::registers::Handle;
use crate::sys::clone::{Forked, InChild};
use crate::sys::process::{
    End, execve, getpid, getppid, kill_group, poll_end, prctl_set_pdeathsig, setpgid, waitid_pidfd,
};
use crate::sys::signal::{Signal, SignalSet, pidfd_send_signal, rt_sigprocmask};
use crate::sys::tolerate;
use crate::sys::{CArray, Errno, Fd, Pid, Result, clone, errno, file};
use core::ffi::CStr;

/// A hook to run.
#[derive(Clone, Copy)]
pub struct HookCommand<'a> {
    /// The path of the program.
    pub path: &'a CStr,
    /// Its arguments, `argv[0]` included.
    pub argv: CArray<'a>,
    /// Its environment.
    pub envp: CArray<'a>,
    /// The bytes before and after the child's pid on its standard input. Only the child knows its pid as its own pid
    /// namespace numbers it.
    pub state: [&'a [u8]; 2],
    /// Its standard output and standard error. `None` is a file whose content is reported if the hook fails.
    pub streams: [Option<Handle>; 2],
    /// Seconds until the hook is killed with its process group; `None` is unlimited.
    pub timeout_seconds: Option<u32>,
}

/// How a hook failed after its program had started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// It exited with this status, which is not 0.
    Exited(u8),
    /// It was killed by this signal.
    Killed(u8),
    /// It was killed because it exceeded its timeout.
    TimedOut,
}

impl Failed {
    /// These numbers lie above the kernel's error numbers and below the end of their range, 4095. The journal and the
    /// report, which hold one error number, can therefore hold a failed hook too.
    const EXITED: u16 = 2048;
    const KILLED: u16 = 2304;
    const TIMED_OUT: u16 = 2560;

    fn errno(self) -> Errno {
        errno(match self {
            Self::Exited(status) => Self::EXITED | u16::from(status),
            Self::Killed(signal) => Self::KILLED | u16::from(signal),
            Self::TimedOut => Self::TIMED_OUT,
        })
    }

    /// Decodes the error of a [`Step::Hook`](crate::Step::Hook); returns `None` for an error of the kernel.
    #[must_use]
    pub fn from_errno(errno: Errno) -> Option<Self> {
        let number = u16::try_from(errno.raw_os_error()).ok()?;
        let byte = u8::try_from(number & 0xff).ok()?;
        match number & !0xff {
            Self::EXITED => Some(Self::Exited(byte)),
            Self::KILLED => Some(Self::Killed(byte)),
            Self::TIMED_OUT => Some(Self::TimedOut),
            _ => None,
        }
    }
}

/// Runs the hook to its end with these [streams](HookCommand::streams). If it fails, `said` is the file with the rest
/// of its output.
pub(crate) fn run(
    child: &InChild,
    hook: &HookCommand<'_>,
    [stdout, stderr]: [Option<Fd>; 2],
    said: &mut Option<Fd>,
) -> Result {
    let state = state(hook.state)?;
    let output = file::memfd_create(c"hook")?;
    let [reader, writer] = file::pipe()?;
    let parent = getpid();
    let Forked { pid, pidfd } = clone::fork(child, || {
        // If the hook cannot exec, the pipe carries the reason; exec closes the pipe.
        let streams = [state, stdout.unwrap_or(output), stderr.unwrap_or(output)];
        let reason = become_hook(child, hook, streams, parent);
        // The error numbers that system calls return to programs end at 133.
        let number = u8::try_from(reason.raw_os_error()).unwrap_or(0);
        tolerate(file::write(writer, &[number]), "a parent that is gone needs no reason");
        crate::SETUP_FAILED
    })?;
    file::close(child, writer);
    file::close(child, state);
    *said = Some(output);

    let in_time = poll_end(pidfd, hook.timeout_seconds)?;
    if !in_time {
        end_group(pid, pidfd)?;
    }
    let end = waitid_pidfd(pidfd)?;
    let mut reason = [0];
    let length = file::read(reader, &mut reason)?;
    file::close(child, pidfd);
    file::close(child, reader);
    if length != 0 {
        let [number] = reason;
        return Err(errno(number.into()));
    }
    match end {
        _ if !in_time => Err(Failed::TimedOut.errno()),
        End::Exited(0) => {
            *said = None;
            file::close(child, output);
            Ok(())
        }
        End::Exited(status) => Err(Failed::Exited(status).errno()),
        End::Killed(signal) => Err(Failed::Killed(signal).errno()),
    }
}

/// Kills the hook and its descendants, except those that left its process group. The hook has not been reaped, so the
/// number of its group cannot belong to another group.
fn end_group(leader: Pid, pidfd: Fd) -> Result {
    pidfd_send_signal(pidfd, Signal::KILL)?;
    match kill_group(leader, Signal::KILL) {
        // The hook was killed before it made the group.
        Err(Errno::SRCH) => Ok(()),
        killed => killed,
    }
}

/// Turns this process into the hook's program. Returns only if that fails, with the reason.
fn become_hook(
    child: &InChild,
    hook: &HookCommand<'_>,
    [stdin, stdout, stderr]: [Fd; 3],
    parent: Pid,
) -> Errno {
    let prepare = || {
        // The hook must not outlive its parent.
        prctl_set_pdeathsig(Some(Signal::KILL))?;
        if getppid() != Some(parent) {
            return Err(Errno::SRCH);
        }
        // In a process group of its own, a hook that exceeds its timeout is killed with all processes it has started.
        setpgid(None, None)?;
        file::dup3(child, stdin, Fd::STDIN)?;
        file::dup3(child, stdout, Fd::STDOUT)?;
        file::dup3(child, stderr, Fd::STDERR)?;
        // The hook must not inherit the descriptors for the container's program.
        file::close_range_on_exec(child, Fd::FIRST_EXTRA, Fd::MAX)?;
        rt_sigprocmask(SignalSet::EMPTY).map(drop)
    };
    match prepare() {
        Ok(()) => execve(hook.path, hook.argv, hook.envp),
        Err(errno) => errno,
    }
}

/// Returns a file that holds the state, with its offset at the beginning.
fn state([before, after]: [&[u8]; 2]) -> Result<Fd> {
    let file = file::memfd_create(c"state")?;
    let mut digits = [0; DIGITS];
    let pid = decimal(getpid().as_raw_pid().unsigned_abs(), &mut digits);
    let mut end = 0_u64;
    for bytes in [before, pid, after] {
        let mut rest = bytes;
        while !rest.is_empty() {
            // `write` would leave the reader's offset at the end.
            let written = file::pwrite(file, rest, end)?;
            rest = rest.get(written..).unwrap_or_default();
            end = end.wrapping_add(u64::try_from(written).unwrap_or(0));
        }
    }
    Ok(file)
}

/// The number of decimal digits of the largest `u32`.
const DIGITS: usize = 10;

/// Formats a number in decimal.
fn decimal(mut number: u32, room: &mut [u8; DIGITS]) -> &[u8] {
    let mut first = DIGITS;
    for (index, place) in room.iter_mut().enumerate().rev() {
        *place = b'0' | u8::try_from(number % 10).unwrap_or(0);
        first = index;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    room.get(first..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{DIGITS, Errno, Failed, decimal};

    #[test]
    fn numbers_are_written_in_decimal() {
        for number in [0, 1, 9, 10, 4_194_304, u32::MAX] {
            assert_eq!(decimal(number, &mut [0; DIGITS]), std::format!("{number}").as_bytes());
        }
    }

    #[test]
    fn hook_failure_round_trips_through_errno() {
        for failed in [Failed::Exited(1), Failed::Exited(255), Failed::Killed(9), Failed::TimedOut] {
            assert_eq!(Failed::from_errno(failed.errno()), Some(failed));
        }
        assert_eq!(Failed::from_errno(Errno::NOENT), None);
        // The largest error number for programs, EHWPOISON, and one that the kernel uses internally, ERECALLCONFLICT.
        for number in [133, 530] {
            assert_eq!(Failed::from_errno(Errno::from_raw_os_error(number)), None);
        }
    }
}
