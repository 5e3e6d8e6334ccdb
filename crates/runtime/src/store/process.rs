//! The processes of containers: which is meant, how far it has come, and its end.

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

/// A process, told from another that has got its pid by when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its pid.
    pub pid: i32,
    /// Clock ticks from boot to its start (proc_pid_stat(5), field 22), as they are outside of time namespaces.
    pub start_time: u64,
}

/// How far a process has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It has not become its program yet. One that CRIU has restored never does.
    BeforeExec,
    /// It is its program.
    Program,
    /// It is gone, or a zombie.
    Ended {
        /// Whether it never became its program, which only a zombie shows.
        before_exec: bool,
    },
}

/// Clock ticks of procfs in a second.
const TICKS: i64 = 100;

/// `PF_FORKNOEXEC` of linux/sched.h: cleared by exec.
const HAS_NOT_EXECED: u32 = 0x40;

impl ProcessId {
    /// The process that has this pid now.
    pub(crate) fn of(pid: i32) -> Result<Self, Error> {
        let stat = read(pid)?.ok_or(Error::State("the container's process is gone"))?;
        Ok(Self { pid, start_time: outside(stat.start_time)? })
    }

    /// Whether it is alive: there, the same, and no zombie. That it cannot be known is an error: a container that runs
    /// would be taken for one that may be forgotten.
    pub(crate) fn is_alive(self) -> Result<bool, Error> {
        Ok(self.stat()?.is_some_and(|stat| !matches!(stat.state, 'Z' | 'X')))
    }

    /// How it ended, if nobody has waited for it yet and we may know.
    pub(crate) fn end(self) -> Option<ExitStatus> {
        // Who may not trace it is told 0 (do_task_stat), and nothing of its namespaces. Looked at first: a pid that
        // is still this process's afterwards was so before.
        fs::read_link(format!("/proc/{}/ns/user", self.pid)).ok()?;
        let stat = self.stat().ok()?.filter(|stat| stat.state == 'Z')?;
        Some(ExitStatus::from_raw(stat.exit_code))
    }

    /// How far it has come. That it cannot be known is an error, as for [`is_alive`](Self::is_alive).
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

    /// Its pid as rustix has it.
    pub(crate) fn pid(self) -> Option<Pid> {
        Pid::from_raw(self.pid)
    }
}

/// What is told of the time since boot is ahead of it by our time namespace's offset (time_namespaces(7)).
fn outside(told: u64) -> Result<u64, Error> {
    const OFFSETS: &str = "/proc/self/timens_offsets";
    let offsets = match files::read_procfs(OFFSETS) {
        Ok(offsets) => offsets,
        // The kernel has no time namespaces.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(told),
        Err(error) => return Err(Error::file("read", OFFSETS, error)),
    };
    let offset = offsets.lines().find_map(|line| line.strip_prefix("boottime"));
    let seconds = offset.and_then(|offset| offset.split_whitespace().next()?.parse::<i64>().ok());
    let seconds = seconds.ok_or_else(|| Error::file("read", OFFSETS, io::ErrorKind::InvalidData))?;
    Ok(told.saturating_add_signed(seconds.saturating_mul(-TICKS)))
}

/// What /proc/PID/stat says of a process (proc_pid_stat(5)).
struct Stat {
    state: char,
    flags: u32,
    start_time: u64,
    exit_code: i32,
}

/// Nothing if it is gone.
fn read(pid: i32) -> Result<Option<Stat>, Error> {
    let path = format!("/proc/{pid}/stat");
    match files::read_procfs(&path) {
        Ok(stat) => match parse(&stat) {
            Some(stat) => Ok(Some(stat)),
            None => Err(Error::file("read", path, io::ErrorKind::InvalidData)),
        },
        // It was there when it was opened.
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::file("read", path, error)),
    }
}

fn parse(stat: &str) -> Option<Stat> {
    // The name, in parentheses, may hold anything, more parentheses too.
    let fields = &stat[stat.rfind(')')? + 1..];
    // The first is the third of all, so these are the fields 3, 9, 22 and 52.
    let mut fields = fields.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let flags = fields.nth(5)?.parse().ok()?;
    let start_time = fields.nth(12)?.parse().ok()?;
    let exit_code = fields.nth(29)?.parse().ok()?;
    Some(Stat { state, flags, start_time, exit_code })
}

/// Kills a process and waits until it is gone.
pub(crate) fn end(pidfd: &OwnedFd) -> Result<(), Error> {
    order(pidfd)?;
    wait(pidfd)
}

/// Kills a process, which may not have ended yet.
pub(crate) fn order(pidfd: &OwnedFd) -> Result<(), Error> {
    match pidfd_send_signal(Fd::of(pidfd), Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(errno) => Err(Error::kernel("kill the container's process", errno)),
    }
}

/// Waits until a process is gone.
pub(crate) fn wait(pidfd: &OwnedFd) -> Result<(), Error> {
    has_ended(pidfd, None).map(drop)
}

/// Waits until a process is gone that has been killed. The first of a pid namespace is there until everybody has been waited
/// for who joined it, and who should do that may be stopped.
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

/// The process itself, whatever becomes of its pid from here on; nothing if it has ended.
///
/// # Errors
///
/// If that cannot be known.
pub(crate) fn open(process: ProcessId) -> Result<Option<OwnedFd>, Error> {
    let Some(pid) = process.pid() else { return Ok(None) };
    let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
        // Nobody is called so, or a thread of somebody else by now.
        Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => return Ok(None),
        pidfd => pidfd.map_err(|errno| Error::kernel("open the container's process", errno))?,
    };
    // The pid may have been another's when it was opened; now it is the same or never will be.
    Ok(process.is_alive()?.then_some(pidfd))
}

#[cfg(test)]
mod tests {
    use super::ProcessId;

    #[test]
    fn a_process_is_the_same_only_with_its_start_time() {
        let own = ProcessId::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(own.is_alive().unwrap());
        assert!(!ProcessId { start_time: own.start_time + 1, ..own }.is_alive().unwrap());
        assert_eq!(own.end(), None);
    }
}
