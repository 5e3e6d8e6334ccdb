//! Waits for a child for a limited time.

use super::Child;
use crate::Error;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

impl Child {
    /// Waits until the process ends, but at most for `timeout`. Returns `None` if it still runs then; nothing happens
    /// to it. Closes [`stdin`](Self::stdin) first, as [`wait`](Self::wait) does.
    ///
    /// The thread sleeps in poll(2) on the pidfd. There is neither a second thread nor a signal handler.
    ///
    /// ```
    /// # fn main() -> Result<(), husk_spawn::Error> {
    /// use husk_spawn::Command;
    /// use std::time::Duration;
    ///
    /// let mut child = Command::new("sleep").arg("1000").spawn_and_exec()?;
    /// if child.wait_timeout(Duration::from_millis(10))?.is_none() {
    ///     child.kill()?;
    /// }
    /// assert!(!child.wait()?.success());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<Option<ExitStatus>, Error> {
        // Without a deadline if the clock cannot represent it.
        self.wait_until(Instant::now().checked_add(timeout))
    }

    /// Waits until the process ends, or until the deadline if there is one.
    pub(crate) fn wait_until(&mut self, deadline: Option<Instant>) -> Result<Option<ExitStatus>, Error> {
        drop(self.stdin.take());
        loop {
            // The pidfd may be another one afterwards, if a second process continues the list.
            if let Some(status) = self.try_wait()? {
                return Ok(Some(status));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            let mut ended = [PollFd::new(&self.pidfd, PollFlags::IN)];
            match poll(&mut ended, left.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::new("wait", errno)),
            }
        }
    }
}
