//! Distinguishes a successful exec from one in which a seccomp filter killed the child.
//!
//! A filter may kill a process that calls execve. The child cannot report that, and from outside its exit
//! looks like an exec: both release the memory and close the channel. Only the kernel's `PF_FORKNOEXEC`
//! differs: fork sets it and exec clears it (fs/exec.c, `begin_new_exec`). `/proc/PID/stat` shows it, even
//! for a zombie.

use crate::Error;
use husk_script::sys::Pid;
use husk_script::{Script, Step};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::getpid;
use std::fs;
use std::os::fd::OwnedFd;

/// `PF_FORKNOEXEC` of linux/sched.h.
const HAS_NOT_EXECED: u32 = 0x40;

/// How long to wait before checking again a child that is about to exec or exit.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000 };

/// Whether the list loads a seccomp filter.
pub(crate) fn is_filtered(script: &Script<'_>) -> bool {
    let filters = |step: &Step<'_>| {
        matches!(step, Step::Seccomp { .. } | Step::SeccompListener { .. } | Step::OpenSeccompListener { .. })
    };
    script.steps.iter().any(filters)
}

/// Whether a released child whose current step is exec becomes its program. Waits until it has execed or
/// ended, which takes microseconds. Exec releases the memory shortly before it clears the flag, and exit
/// shortly before it leaves a zombie.
pub(crate) fn settles_as_program(pid: Pid, pidfd: &OwnedFd) -> Result<bool, Error> {
    while has_execed(pid) == Some(false) {
        let mut ended = [PollFd::new(pidfd, PollFlags::IN)];
        let ready = retry_on_intr(|| poll(&mut ended, Some(&PAUSE)));
        if ready.map_err(|errno| Error::new("wait for exec", errno))? != 0 {
            return Ok(has_execed(pid) != Some(false));
        }
    }
    Ok(true)
}

/// Whether a child that has not been waited for has execed. `None` if `/proc` does not say, or belongs to
/// another pid namespace.
pub(crate) fn has_execed(pid: Pid) -> Option<bool> {
    let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    // The name, in parentheses, may contain any bytes, including parentheses.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = stat.get(end + 1..)?.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
    // The first field here is field 3, so these are fields 4 and 9 (proc_pid_stat(5)).
    let mut number = |skipped| str::from_utf8(fields.nth(skipped)?).ok()?.parse::<u32>().ok();
    let parent = number(1)?;
    let flags = number(4)?;
    (parent == getpid().as_raw_pid().unsigned_abs()).then_some(flags & HAS_NOT_EXECED == 0)
}

#[cfg(test)]
mod tests {
    use super::{has_execed, settles_as_program};
    use crate::Command;
    use rustix::process::{PidfdFlags, getppid, pidfd_open};

    #[test]
    fn execed_child_is_recognized_and_a_foreign_process_is_not_judged() {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait_for_exec().unwrap();
        let pidfd = pidfd_open(child.pid(), PidfdFlags::empty()).unwrap();
        assert!(settles_as_program(child.pid(), &pidfd).unwrap());
        assert_eq!(has_execed(child.pid()), Some(true));
        assert_eq!(has_execed(getppid().unwrap()), None);
        assert!(child.wait().unwrap().success());
    }
}
