//! The processes of containers: their identity, stage and end.

use crate::error::Error;
use crate::host::files;
use husk_script::sys::Fd;
use husk_script::sys::signal::pidfd_send_signal;
use husk_spawn::Signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

/// A process, identified by its pid and its start time, because pids are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    pub pid: i32,
    /// Clock ticks from boot to its start (proc_pid_stat(5), field 22), without the offset of a time namespace.
    pub start_time: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It has not executed its program yet. A process that CRIU has restored stays in this stage.
    BeforeExec,
    /// It has executed its program.
    Program,
    /// It is gone, or a zombie.
    Ended {
        /// Whether it never executed its program. Known only of a zombie.
        before_exec: bool,
    },
}

/// The clock ticks per second that procfs reports.
const TICKS: i64 = 100;

/// `PF_FORKNOEXEC` of linux/sched.h: cleared by exec.
const HAS_NOT_EXECED: u32 = 0x40;

impl ProcessId {
    /// Identifies the process that has this pid now.
    pub(crate) fn of(pid: i32) -> Result<Self, Error> {
        let stat = read(pid)?.ok_or(Error::State("the container's process is gone"))?;
        Ok(Self { pid, start_time: outside(stat.start_time)? })
    }

    /// Returns whether the process exists with this start time and is not a zombie. Fails if that cannot be known:
    /// otherwise a running container could be deleted as a stopped one.
    pub(crate) fn is_alive(self) -> Result<bool, Error> {
        Ok(self.stat()?.is_some_and(|stat| !matches!(stat.state, 'Z' | 'X')))
    }

    /// Returns its exit status while it is a zombie, if this process is permitted to know it.
    pub(crate) fn end(self) -> Option<ExitStatus> {
        // The kernel shows 0 to processes that may not trace it (`do_task_stat`), and does not show them its
        // namespaces. Checked before reading `stat`: if the pid is still this process's afterwards, it was during the
        // check.
        fs::read_link(format!("/proc/{}/ns/user", self.pid)).ok()?;
        let stat = self.stat().ok()?.filter(|stat| stat.state == 'Z')?;
        Some(ExitStatus::from_raw(stat.exit_code))
    }

    /// Returns its stage. Fails if that cannot be known, as [`is_alive`](Self::is_alive) does.
    pub(crate) fn stage(self) -> Result<Stage, Error> {
        Ok(match self.stat()? {
            None => Stage::Ended { before_exec: false },
            Some(Stat { state: 'Z' | 'X', flags, .. }) => {
                Stage::Ended { before_exec: flags & HAS_NOT_EXECED != 0 }
            }
            Some(stat) if stat.flags & HAS_NOT_EXECED != 0 => Stage::BeforeExec,
            Some(_) => Stage::Program,
        })
    }

    fn stat(self) -> Result<Option<Stat>, Error> {
        let Some(stat) = read(self.pid)? else { return Ok(None) };
        let is_same = stat.start_time == self.start_time || outside(stat.start_time)? == self.start_time;
        Ok(is_same.then_some(stat))
    }

    /// Returns the pid as a rustix type.
    pub(crate) fn pid(self) -> Option<Pid> {
        Pid::from_raw(self.pid)
    }
}

/// Removes the offset of this process's time namespace from a time since boot (time_namespaces(7)).
fn outside(told: u64) -> Result<u64, Error> {
    const OFFSETS: &str = "/proc/self/timens_offsets";
    let offsets = match files::read_procfs(OFFSETS) {
        Ok(offsets) => offsets,
        // The kernel does not support time namespaces.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(told),
        Err(error) => return Err(Error::file("read", OFFSETS, error)),
    };
    let offset = offsets.lines().find_map(|line| line.strip_prefix("boottime"));
    let seconds = offset.and_then(|offset| offset.split_whitespace().next()?.parse::<i64>().ok());
    let seconds =
        seconds.ok_or_else(|| Error::file("read", OFFSETS, io::Error::from(io::ErrorKind::InvalidData)))?;
    Ok(told.saturating_add_signed(seconds.saturating_mul(-TICKS)))
}

/// The fields of /proc/PID/stat that are used (proc_pid_stat(5)).
struct Stat {
    state: char,
    flags: u32,
    start_time: u64,
    exit_code: i32,
}

/// Reads the fields. Returns `None` if the process is gone.
fn read(pid: i32) -> Result<Option<Stat>, Error> {
    let path = format!("/proc/{pid}/stat");
    match files::read_procfs(&path) {
        Ok(stat) => match parse(&stat) {
            Some(stat) => Ok(Some(stat)),
            None => Err(Error::file("read", path, io::Error::from(io::ErrorKind::InvalidData))),
        },
        // The process ended after the file was opened.
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::file("read", path, error)),
    }
}

fn parse(stat: &str) -> Option<Stat> {
    // The name, in parentheses, may contain any characters, including parentheses.
    let fields = &stat[stat.rfind(')')? + 1..];
    // The rest begins with field 3, so these are the fields 3, 9, 22 and 52.
    let mut fields = fields.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let flags = fields.nth(5)?.parse().ok()?;
    let start_time = fields.nth(12)?.parse().ok()?;
    let exit_code = fields.nth(29)?.parse().ok()?;
    Some(Stat { state, flags, start_time, exit_code })
}

/// Kills a process and waits for its end.
pub(crate) fn end(pidfd: &OwnedFd) -> Result<(), Error> {
    order(pidfd)?;
    wait(pidfd)
}

/// Sends SIGKILL to a process, and does not wait for its end.
pub(crate) fn order(pidfd: &OwnedFd) -> Result<(), Error> {
    match pidfd_send_signal(Fd::of(pidfd), Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(errno) => Err(Error::kernel("kill the container's process", errno)),
    }
}

/// Waits until a process has ended.
pub(crate) fn wait(pidfd: &OwnedFd) -> Result<(), Error> {
    has_ended(pidfd, None).map(drop)
}

/// Waits up to 10 seconds until a killed process has ended. The first process of a pid namespace ends only after all
/// processes that joined it are reaped, and their parents may be stopped.
pub(crate) fn wait_patiently(pidfd: &OwnedFd) -> Result<(), Error> {
    const PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
    if has_ended(pidfd, Some(&PATIENCE))? {
        return Ok(());
    }
    Err(Error::State(
        "container init still running: it was killed 10 seconds ago, and waits for a device or an 'exec' that is stopped",
    ))
}

pub(crate) fn has_ended(pidfd: &OwnedFd, patience: Option<&Timespec>) -> Result<bool, Error> {
    let mut ended = [PollFd::new(pidfd, PollFlags::IN)];
    let ready = retry_on_intr(|| poll(&mut ended, patience))
        .map_err(|errno| Error::kernel("wait for the container's process", errno))?;
    Ok(ready > 0)
}

/// Opens a pidfd, which refers to the process even if its pid is reused. Returns `None` if it has ended.
///
/// # Errors
///
/// If that cannot be known.
pub(crate) fn open(process: ProcessId) -> Result<Option<OwnedFd>, Error> {
    let Some(pidfd) = open_unchecked(process)? else { return Ok(None) };
    Ok(process.is_alive()?.then_some(pidfd))
}

/// Opens a pidfd, which may refer to another process that has the same pid now. If the process is found to be alive
/// afterwards, the pidfd is its own. Returns `None` if the pid is unused.
pub(crate) fn open_unchecked(process: ProcessId) -> Result<Option<OwnedFd>, Error> {
    let Some(pid) = process.pid() else { return Ok(None) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        // The pid is unused, or is now a thread of another process.
        Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => Ok(None),
        pidfd => pidfd.map(Some).map_err(|errno| Error::kernel("open the container's process", errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::ProcessId;

    #[test]
    fn process_is_identified_by_pid_and_start_time() {
        let own = ProcessId::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(own.is_alive().unwrap());
        assert!(!ProcessId { start_time: own.start_time + 1, ..own }.is_alive().unwrap());
        assert_eq!(own.end(), None);
    }
}
