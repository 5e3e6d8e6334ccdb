//! What is written down of a container, for commands that come later.

use crate::cgroups::Kept;
use crate::error::Error;
use crate::hooks::Hook;
use crate::procfs;
use crate::resctrl::Membership;
use husk_bundle::Warning;
use rustix::io::Errno;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;

/// What later commands cannot find out themselves. The status is not among it: it is computed, and
/// what is not stored cannot be stale.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The container's name.
    pub id: String,
    /// Its bundle.
    pub bundle: PathBuf,
    /// Its configuration, if that is not its bundle's config.json.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) config: Option<PathBuf>,
    /// Its root file system.
    pub rootfs: PathBuf,
    /// When it was created, as RFC 3339 has it.
    pub created: String,
    /// Who created it.
    pub owner: u32,
    /// The annotations of its configuration.
    pub annotations: BTreeMap<String, String>,
    /// The kinds of namespaces that it does not share with who created it, in the bits of clone(2).
    pub namespaces: u32,
    /// Whether its processes are left in the session keyring of who starts them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) callers_keyring: bool,
    /// Its first process, once there is one.
    pub process: Option<Process>,
    /// The process that is on its way to be the first one. It is written down where others than the creator may keep it
    /// waiting: hooks, a seccomp agent, the receiver of a terminal. If its creator is killed meanwhile it is known by this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) creating: Option<Process>,
    /// How that ended, if it was waited for by one of us and the container kept, in the bits of wait(2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<i32>,
    /// Its cgroup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cgroup: Option<Kept>,
    /// Whether its processes may outlive its first one: it has no new pid namespace.
    #[serde(default)]
    pub shares_pids: bool,
    /// What it has of resctrl.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resctrl: Option<Membership>,
    /// What its standard streams were in the beginning, if they were given to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) streams: Vec<String>,
    /// The steps that it performs after `start`, each with its index, the field it comes from and its
    /// text: `start` is another process than `create` and cannot see the plan.
    pub after_start: Vec<(u32, String, String)>,
    /// `hooks.poststart`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub poststart: Vec<Hook>,
    /// `hooks.poststop`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub poststop: Vec<Hook>,
}

impl Record {
    /// Leaves nothing of what the container has beside its directory. An empty cgroup that stays is a warning.
    pub(crate) fn leave(&self) -> Result<Option<Warning>, Error> {
        let stays = self.cgroup.as_ref().map_or(Ok(None), Kept::remove)?;
        self.resctrl.as_ref().map_or(Ok(()), Membership::leave)?;
        Ok(stays)
    }
}

/// A process, told from another that has got its pid by when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
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

impl Process {
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
    let offsets = match procfs::read(OFFSETS) {
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
    match procfs::read(&path) {
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

#[cfg(test)]
mod tests {
    use super::Process;

    #[test]
    fn a_process_is_the_same_only_with_its_start_time() {
        let own = Process::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(own.is_alive().unwrap());
        assert!(!Process { start_time: own.start_time + 1, ..own }.is_alive().unwrap());
        assert_eq!(own.end(), None);
    }
}
