//! Children that another process created.

use super::wait;
use crate::error::Error;
use husk_script::sys::signal::{Signal, pidfd_send_signal};
use husk_script::sys::{Errno, Fd, Pid};
use rustix::process::{PidfdFlags, WaitId, WaitIdOptions, pidfd_open};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitStatus;

/// A child of this process that it did not start. Another process created it with `CLONE_PARENT`, or it was
/// orphaned and this process is its reaper. It is identified by its pidfd and waited for like a
/// [`Child`](crate::Child).
///
/// Dropping it lets the process continue.
#[derive(Debug)]
pub struct Adopted {
    pid: Pid,
    pidfd: OwnedFd,
    status: Option<ExitStatus>,
}

impl Adopted {
    /// Opens the child with this pid. Nothing else may wait for that child, so that the pid cannot be reused.
    ///
    /// # Errors
    ///
    /// If this process has no such child.
    pub fn new(pid: i32) -> Result<Self, Error> {
        let missing = || Error::new(format!("find the child {pid}"), Errno::CHILD);
        let pid = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw).ok_or_else(missing)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| Error::new("pidfd", errno))?;
        let adopted = Self { pid, pidfd, status: None };
        // Fails for a process that is not a child of this one.
        wait(adopted.wait_id(), WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT, pid)?;
        Ok(adopted)
    }

    fn wait_id(&self) -> WaitId<'_> {
        WaitId::PidFd(self.pidfd.as_fd())
    }

    /// Returns its pid in this process's pid namespace.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.pid.as_raw_pid().unsigned_abs()
    }

    /// Sends a signal. Succeeds without effect once the process has been waited for.
    ///
    /// # Errors
    ///
    /// `EPERM` if this process may not send it signals.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        match pidfd_send_signal(Fd::of(&self.pidfd), signal) {
            Err(Errno::SRCH) if self.status.is_some() => Ok(()),
            sent => sent
                .map_err(|errno| Error::new(format!("signal {} to {}", signal.number(), self.id()), errno)),
        }
    }

    /// Returns the exit status, or `None` while the process runs.
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

    /// Waits until the process ends and returns its exit status.
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
    /// Returns the pidfd.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}
