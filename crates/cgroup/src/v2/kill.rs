//! Kills all processes of a version 2 cgroup.

use super::Cgroup;
use crate::error::Error;
use crate::files;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;

/// How long processes may take to freeze before they are killed, if the kernel has no `cgroup.kill`.
const STOP: Duration = Duration::from_secs(2);

/// How many times the processes are killed if they cannot be frozen, to catch those forked meanwhile.
const ROUNDS: u32 = 16;

pub(crate) fn kill(cgroup: &Cgroup) -> Result<(), Error> {
    match files::put(cgroup.directory(), "cgroup.kill", "1") {
        Ok(()) => return Ok(()),
        // NODEV: the cgroup and its processes are gone. Others: a threaded cgroup, or Linux before 5.14.
        Err(Errno::NODEV) => return Ok(()),
        Err(Errno::NOENT | Errno::OPNOTSUPP) => {}
        Err(errno) => return Err(cgroup.failed("kill the processes of")(errno)),
    }
    // Frozen processes cannot fork. A process that does not freeze in time is killed anyway.
    let stopped = cgroup.freeze(STOP);
    let killed = kill_rounds(cgroup, if stopped.is_ok() { 1 } else { ROUNDS });
    if stopped.is_ok() {
        cgroup.thaw()?;
    }
    killed
}

fn kill_rounds(cgroup: &Cgroup, rounds: u32) -> Result<(), Error> {
    for _ in 0..rounds {
        let pids = cgroup.pids()?;
        if pids.is_empty() {
            break;
        }
        signal_each(&pids, Signal::KILL).map_err(cgroup.failed("kill the processes of"))?;
    }
    Ok(())
}

/// Sends the signal to each process that has not exited.
pub(crate) fn signal_each(pids: &[i32], signal: Signal) -> Result<(), Errno> {
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        match kill_process(pid, signal) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
