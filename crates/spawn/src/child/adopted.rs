//! A child that somebody else has made.

use super::wait;
use crate::error::Error;
use husk_script::sys::signal::{Signal, pidfd_send_signal};
use husk_script::sys::{Errno, Fd, Pid};
use rustix::process::{PidfdFlags, WaitId, WaitIdOptions, pidfd_open};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitStatus;

/// A child of this process that it has not started itself: another has made it by `CLONE_PARENT`, or it
/// was left behind by one whose reaper this process is. Known by its pidfd, as a [`Child`](crate::Child) is, and
/// waited for in the same way.
///
/// Dropping it lets the process run on.
#[derive(Debug)]
pub struct Adopted {
    pid: Pid,
    pidfd: OwnedFd,
    status: Option<ExitStatus>,
}

impl Adopted {
    /// The child with this pid, which nobody else waits for: so the pid is still its own.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn new(pid: i32) -> Result<Self, Error> {
        let missing = || Error::new(format!("find the child {pid}"), Errno::CHILD);
        let pid = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw).ok_or_else(missing)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| Error::new("pidfd", errno))?;
        let adopted = Self { pid, pidfd, status: None };
        // One that is not ours cannot be waited for.
        wait(adopted.wait_id(), WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT, pid)?;
        Ok(adopted)
    }

    fn wait_id(&self) -> WaitId<'_> {
        WaitId::PidFd(self.pidfd.as_fd())
    }

    /// Its pid in this process's pid namespace.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.pid.as_raw_pid().unsigned_abs()
    }

    /// Sends it a signal. One that has been waited for is past signals, which is no error.
    ///
    /// # Errors
    ///
    /// `EPERM` if it has an identity that this process may not send signals to.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        match pidfd_send_signal(Fd::of(&self.pidfd), signal) {
            Err(Errno::SRCH) if self.status.is_some() => Ok(()),
            sent => sent
                .map_err(|errno| Error::new(format!("signal {} to {}", signal.number(), self.id()), errno)),
        }
    }

    /// How it ended, if it has: `None` while it runs.
    ///
    /// # Errors
    ///
    /// `ECHILD` if something else has waited for it.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>, Error> {
        if self.status.is_none() {
            self.status = wait(self.wait_id(), WaitIdOptions::NOHANG, self.pid)?;
        }
        Ok(self.status)
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// As [`try_wait`](Self::try_wait).
    pub fn wait(&mut self) -> Result<ExitStatus, Error> {
        if self.status.is_none() {
            self.status = wait(self.wait_id(), WaitIdOptions::empty(), self.pid)?;
        }
        self.status.ok_or_else(|| Error::new("wait", Errno::CHILD))
    }
}

impl AsFd for Adopted {
    /// The pidfd.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}
