//! A program that the child runs beside itself and waits for.
//!
//! It has memory of its own, a copy of the child's, for it lives while the child does. What it is told on
//! standard input and what it says lie in files in memory: nobody has to read or write while
//! somebody else waits, so nothing can block but the program itself, and for that there is a limit.
//!
//! What it says is kept for the case that it fails, see [`report`](crate::report).

use crate::registers::Handle;
use crate::sys::clone::{Forked, InChild};
use crate::sys::process::{
    End, execve, getpid, getppid, kill_group, poll_end, prctl_set_pdeathsig, setpgid, waitid_pidfd,
};
use crate::sys::signal::{Signal, SignalSet, pidfd_send_signal, rt_sigprocmask};
use crate::sys::tolerate;
use crate::sys::{CArray, Errno, Fd, Pid, Result, clone, errno, file};
use core::ffi::CStr;

/// A program to run.
#[derive(Clone, Copy)]
pub struct Hook<'a> {
    /// The program.
    pub path: &'a CStr,
    /// Its arguments, its name among them.
    pub argv: CArray<'a>,
    /// Its environment.
    pub envp: CArray<'a>,
    /// What it reads from standard input: these bytes around the child's pid, which the child alone knows
    /// as its own pid namespace has it.
    pub state: [&'a [u8]; 2],
    /// Where its standard output and standard error go, if not into the file that is kept in case it fails.
    pub streams: [Option<Handle>; 2],
    /// After how many seconds it is killed, with its process group.
    pub timeout_seconds: Option<u32>,
}

/// How a hook failed that did run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// It ended with this status, which is not 0.
    Exited(u8),
    /// This signal ended it.
    Killed(u8),
    /// It ran for too long and was killed.
    TimedOut,
}

impl Failed {
    /// The kernel's error numbers end before these and after 4095, so journal and report, which have
    /// room for one number, have room for a failed hook too.
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

    /// What the error of a [`Step::Hook`](crate::Step::Hook) means, unless it is one of the kernel's.
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

/// Runs the hook to its end with these [streams](Hook::streams). If it fails, `said` has what it printed elsewhere.
pub(crate) fn run(
    child: &InChild,
    hook: &Hook<'_>,
    [stdout, stderr]: [Option<Fd>; 2],
    said: &mut Option<Fd>,
) -> Result {
    let state = state(hook.state)?;
    let output = file::memfd_create(c"hook")?;
    let [reader, writer] = file::pipe()?;
    let parent = getpid();
    let Forked { pid, pidfd } = clone::fork(child, || {
        // Of one that could not exec the pipe says why; exec closes it.
        let streams = [state, stdout.unwrap_or(output), stderr.unwrap_or(output)];
        let reason = become_hook(child, hook, streams, parent);
        // Those that calls return to programs end at 133.
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

/// Kills the hook and the processes that it has started, unless they have left its process group. The hook has not been
/// waited for, so the number of its group cannot be another group's.
fn end_group(leader: Pid, pidfd: Fd) -> Result {
    pidfd_send_signal(pidfd, Signal::KILL)?;
    match kill_group(leader, Signal::KILL) {
        // It was killed before it made the group.
        Err(Errno::SRCH) => Ok(()),
        killed => killed,
    }
}

/// Becomes the hook's program. Returns only to say why not.
fn become_hook(child: &InChild, hook: &Hook<'_>, [stdin, stdout, stderr]: [Fd; 3], parent: Pid) -> Errno {
    let prepare = || {
        // It is of no use without us.
        prctl_set_pdeathsig(Some(Signal::KILL))?;
        if getppid() != Some(parent) {
            return Err(Errno::SRCH);
        }
        // A group of its own, so that a hook that takes too long is killed with all that it has started.
        setpgid(None, None)?;
        file::dup3(child, stdin, Fd::STDIN)?;
        file::dup3(child, stdout, Fd::STDOUT)?;
        file::dup3(child, stderr, Fd::STDERR)?;
        // What is for the container's program is not for it.
        file::close_range_on_exec(child, Fd::FIRST_EXTRA, Fd::MAX)?;
        rt_sigprocmask(SignalSet::EMPTY).map(drop)
    };
    match prepare() {
        Ok(()) => execve(hook.path, hook.argv, hook.envp),
        Err(errno) => errno,
    }
}

/// A file that holds the state, to be read from its beginning.
fn state([before, after]: [&[u8]; 2]) -> Result<Fd> {
    let file = file::memfd_create(c"state")?;
    let mut digits = [0; DIGITS];
    let pid = decimal(getpid().as_raw_pid().unsigned_abs(), &mut digits);
    let mut end = 0_u64;
    for bytes in [before, pid, after] {
        let mut rest = bytes;
        while !rest.is_empty() {
            // Not `write`, which would leave the reader at the end.
            let written = file::pwrite(file, rest, end)?;
            rest = rest.get(written..).unwrap_or_default();
            end = end.wrapping_add(u64::try_from(written).unwrap_or(0));
        }
    }
    Ok(file)
}

/// A `u32` has no more.
const DIGITS: usize = 10;

/// A number in decimal.
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
    fn a_failure_survives_as_a_number() {
        for failed in [Failed::Exited(1), Failed::Exited(255), Failed::Killed(9), Failed::TimedOut] {
            assert_eq!(Failed::from_errno(failed.errno()), Some(failed));
        }
        assert_eq!(Failed::from_errno(Errno::NOENT), None);
        // The largest that Linux has for programs, EHWPOISON, and one of its own, ERECALLCONFLICT.
        for number in [133, 530] {
            assert_eq!(Failed::from_errno(Errno::from_raw_os_error(number)), None);
        }
    }
}
