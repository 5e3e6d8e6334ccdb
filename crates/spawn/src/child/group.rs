//! Signals to the process group that a child leads.
//!
//! A group is identified by the number of its leader, which the kernel may give to another process once the leader has
//! been waited for and the group is empty. From Linux 6.9 on, a pidfd identifies the group too, and no number is
//! involved. Before, the number is used only while the leader has not been waited for, because it cannot be given away
//! until then.

use super::Child;
use crate::error::{Error, Reason};
use husk_script::sys::process::kill_group;
use husk_script::sys::signal::{Signal, pidfd_send_signal_to_group};
use husk_script::sys::{Errno, Fd};

/// # Process groups
///
/// A child leads a process group if [`Command::process_group`](crate::Command::process_group) was called with 0, or
/// [`Command::new_session`](crate::Command::new_session). Its descendants are in the group unless they leave it. The
/// kernel sends a signal to all of them at once, so none escapes by forking meanwhile.
///
/// A process that has left the group is not reached. To be certain that none is left, start the child in a
/// [cgroup](crate::Command::cgroup) of its own and write to `cgroup.kill`. Or use a new
/// [pid namespace](crate::Command::new_namespaces), which ends with its first process.
///
/// A signal never reaches another group that has got the same number:
///
/// | | until the child has been waited for | afterwards |
/// | - | - | - |
/// | Linux 6.9 or newer | by pidfd | by pidfd: reaches the processes that are left |
/// | older | by number, which is in use | an error, because the number may be in use by others |
///
/// On older kernels this holds only if no other code of this process waits for the child, for example with
/// `waitpid(-1)`.
impl Child {
    /// Sends SIGKILL to the process and to its process group, if it leads one. Succeeds without effect if both have
    /// ended.
    ///
    /// ```
    /// # fn main() -> Result<(), husk_spawn::Error> {
    /// use husk_spawn::{Command, Stdio};
    /// use std::io::Read;
    ///
    /// let mut command = Command::new("sh");
    /// command.args(["-c", "sleep 1000 & echo started; wait"]).process_group(0).stdout(Stdio::piped());
    /// let mut child = command.spawn()?;
    /// let mut stdout = child.stdout.take().unwrap();
    /// stdout.read_exact(&mut [0; 8]).unwrap();
    ///
    /// child.kill_group()?;
    /// // The end of file: nobody holds the pipe any more, and so `sleep` is dead too.
    /// assert_eq!(stdout.read(&mut [0; 8]).unwrap(), 0);
    /// assert!(!child.wait()?.success());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`signal`](Self::signal), and before Linux 6.9 if the child has been waited for.
    pub fn kill_group(&self) -> Result<(), Error> {
        if self.status.is_none() {
            // A child that has not yet created its group starts no other process.
            self.kill()?;
        }
        match self.signal_led_group(Signal::KILL) {
            Err(Errno::SRCH) => Ok(()),
            sent => sent.map_err(|errno| self.group_not_signalled(Signal::KILL, errno)),
        }
    }

    /// Sends a signal to the process group that the process leads, after it has execed. Succeeds without effect if the
    /// process has been waited for and the group is empty.
    ///
    /// # Errors
    ///
    /// As [`wait_for_exec`](Self::wait_for_exec) and [`kill_group`](Self::kill_group). `ESRCH` if the process leads no
    /// group.
    pub fn signal_group(&mut self, signal: Signal) -> Result<(), Error> {
        if self.status.is_none() {
            // The child creates its group before it execs.
            self.wait_for_exec()?;
        }
        match self.signal_led_group(signal) {
            Err(Errno::SRCH) if self.status.is_some() => Ok(()),
            sent => sent.map_err(|errno| self.group_not_signalled(signal, errno)),
        }
    }

    fn signal_led_group(&self, signal: Signal) -> Result<(), Errno> {
        match pidfd_send_signal_to_group(Fd::of(&self.pidfd), signal) {
            Err(Errno::INVAL) if self.status.is_none() => kill_group(self.pid, signal),
            sent => sent,
        }
    }

    fn group_not_signalled(&self, signal: Signal, errno: Errno) -> Error {
        let act = format!("signal {} to group {}", signal.number(), self.id());
        match errno {
            Errno::INVAL => {
                Error::new(act, Reason::Conflict("its leader has been waited for; needs Linux 6.9"))
            }
            errno => Error::new(act, errno),
        }
    }
}
