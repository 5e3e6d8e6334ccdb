//! Processes on a Tokio runtime, without a thread or a signal handler.
//!
//! [`Command::spawn_async`] returns a [`Child`] whose [`wait`](Child::wait) is a future, and whose standard streams are pipes that
//! implement [`AsyncRead`](::tokio::io::AsyncRead) and [`AsyncWrite`](::tokio::io::AsyncWrite). The runtime's epoll
//! instance watches the pidfd and the pipes.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use husk_spawn::{Command, Stdio};
//! use std::time::Duration;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn_async()?;
//! cat.stdin.as_mut().unwrap().write_all(b"through").await?;
//! let mut text = [0; 7];
//! cat.stdout.as_mut().unwrap().read_exact(&mut text).await?;
//! assert_eq!(&text, b"through");
//! // Closes standard input first, and so `cat` ends.
//! assert!(cat.wait().await?.success());
//!
//! let mut sleep = Command::new("sleep").arg("1000").kill_on_drop().spawn_async()?;
//! assert!(tokio::time::timeout(Duration::from_millis(10), sleep.wait()).await.is_err());
//! sleep.kill().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Dropping
//!
//! A future may be dropped at any time: nothing is lost, and a later call continues. When a [`Child`] is dropped that
//! has not been waited for,
//!
//! - it continues to run, or it is killed at once if [`Command::kill_on_drop`] was called;
//! - a task of the runtime waits for it, so that no zombie is left. The task ends with the process. If the runtime ends
//!   first, a killed process is waited for there, and one that runs becomes a zombie when it ends, as with
//!   [`Child`](crate::Child).
//!
//! Dropping never blocks while the runtime runs.

mod transfer;

use crate::command::stdio::{Connected, Unset};
use crate::error::{Error, Reason};
use crate::launch::{Until, launch_connected};
use crate::{Command, Output};
use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;
use ::tokio::net::unix::pipe::{Receiver, Sender};
use ::tokio::runtime::Handle;
use husk_script::sys::signal::Signal;
use husk_script::sys::tolerate;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitStatus;

/// # Tokio
impl Command {
    /// Like [`spawn`](Self::spawn), for a process that a Tokio runtime waits for. Returns at once, before the process
    /// has execed, except in the cases named there, in which it blocks.
    ///
    /// # Errors
    ///
    /// As `spawn`, and outside of a runtime.
    ///
    /// # Panics
    ///
    /// If the runtime's I/O driver is not enabled.
    pub fn spawn_async(&self) -> Result<Child, Error> {
        spawn(self, Unset::Inherit)
    }

    /// Like [`status`](Self::status), as a future. The process starts when the future is first polled.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status) and [`spawn_async`](Self::spawn_async).
    pub async fn status_async(&self) -> Result<ExitStatus, Error> {
        self.spawn_async()?.wait().await
    }

    /// Like [`output`](Self::output), as a future. The process starts when the future is first polled. It continues to
    /// run if the future is dropped, without [`kill_on_drop`](Self::kill_on_drop).
    ///
    /// # Errors
    ///
    /// As [`output`](Self::output) and [`spawn_async`](Self::spawn_async).
    pub async fn output_async(&self) -> Result<Output, Error> {
        spawn(self, Unset::Capture)?.wait_with_output(&[]).await
    }

    /// Like [`output_with_input`](Self::output_with_input), as a future.
    ///
    /// # Errors
    ///
    /// As [`output_async`](Self::output_async).
    pub async fn output_with_input_async(&self, input: &[u8]) -> Result<Output, Error> {
        spawn(self, Unset::FeedAndCapture)?.wait_with_output(input).await
    }
}

fn spawn(command: &Command, unset: Unset) -> Result<Child, Error> {
    let why = "must be called in a Tokio runtime";
    let runtime = Handle::try_current().map_err(|_| Error::new("spawn", Reason::Conflict(why)))?;
    let mut inner = launch_connected(command, unset, Until::Cloned, Connected::default())?;
    let failed = |error| Error::from_io("pipe", &error);
    // Only this process's ends become non-blocking; the child's are other open files.
    let reader = |end: OwnedFd| Receiver::from_owned_fd(end).map_err(failed);
    let stdin =
        inner.stdin.take().map(|end| Sender::from_owned_fd(end.into()).map_err(failed)).transpose()?;
    let stdout = inner.stdout.take().map(|end| reader(end.into())).transpose()?;
    let stderr = inner.stderr.take().map(|end| reader(end.into())).transpose()?;
    Ok(Child { stdin, stdout, stderr, inner: Some(inner), runtime })
}

/// A process on a Tokio runtime. See the [module](self) for what happens when it is dropped.
#[derive(Debug)]
pub struct Child {
    /// The write end of standard input, if that is a pipe. The process sees the end of its input when this is dropped.
    pub stdin: Option<Sender>,
    /// The read end of standard output, if that is a pipe.
    pub stdout: Option<Receiver>,
    /// The read end of standard error, if that is a pipe.
    pub stderr: Option<Receiver>,
    /// `None` only while it is dropped.
    inner: Option<crate::Child>,
    runtime: Handle,
}

impl Child {
    /// Returns its pid in the parent's pid namespace.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.inner.as_ref().map_or(0, crate::Child::id)
    }

    /// Waits until the process ends and returns its exit status. Closes [`stdin`](Self::stdin) first. The future may be
    /// dropped and the method called again.
    ///
    /// # Errors
    ///
    /// As [`Child::wait`](crate::Child::wait).
    pub async fn wait(&mut self) -> Result<ExitStatus, Error> {
        drop(self.stdin.take());
        match &mut self.inner {
            Some(inner) => until_end(inner).await,
            None => Err(gone()),
        }
    }

    /// Returns the exit status, or `None` while the process runs.
    ///
    /// # Errors
    ///
    /// As [`Child::wait`](crate::Child::wait).
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>, Error> {
        self.inner.as_mut().ok_or_else(gone)?.try_wait()
    }

    /// Writes `input` to the process, reads its output, and waits for it. Streams that are no pipes or have been taken
    /// are left out.
    ///
    /// # Errors
    ///
    /// As [`output_async`](Command::output_async).
    pub async fn wait_with_output(mut self, input: &[u8]) -> Result<Output, Error> {
        let (stdin, stdout, stderr) = (self.stdin.take(), self.stdout.take(), self.stderr.take());
        let (stdout, stderr) = transfer::transfer(stdin, input, stdout, stderr).await?;
        Ok(Output { status: self.wait().await?, stdout, stderr })
    }

    /// Sends SIGKILL and waits until the process has ended. It is not an error if that was before its exec.
    ///
    /// # Errors
    ///
    /// As [`signal`](Self::signal) and [`wait`](Self::wait).
    pub async fn kill(&mut self) -> Result<ExitStatus, Error> {
        self.signal(Signal::KILL)?;
        self.wait().await.or_else(|error| match error.reason() {
            Reason::Died(status) => Ok(status),
            _ => Err(error),
        })
    }

    /// Sends a signal. Succeeds without effect once the process has been waited for.
    ///
    /// # Errors
    ///
    /// As [`Child::signal`](crate::Child::signal).
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        self.inner.as_ref().ok_or_else(gone)?.signal(signal)
    }

    /// Sends a signal to the process group that the process leads. Waits, without awaiting, until the process has execed.
    ///
    /// # Errors
    ///
    /// As [`Child::signal_group`](crate::Child::signal_group).
    pub fn signal_group(&mut self, signal: Signal) -> Result<(), Error> {
        self.inner.as_mut().ok_or_else(gone)?.signal_group(signal)
    }

    /// Sends SIGKILL to the process and to its process group, if it leads one.
    ///
    /// # Errors
    ///
    /// As [`Child::kill_group`](crate::Child::kill_group).
    pub fn kill_group(&self) -> Result<(), Error> {
        self.inner.as_ref().ok_or_else(gone)?.kill_group()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let Some(mut inner) = self.inner.take() else { return };
        if inner.kills_on_drop() {
            tolerate(inner.kill(), "a destructor cannot report it");
        }
        // Most have been waited for, or have ended.
        if matches!(inner.try_wait(), Ok(None)) {
            // If the runtime has ended, the task is dropped at once, and with it the child.
            drop(self.runtime.spawn(async move { until_end(&mut inner).await }));
        }
    }
}

/// Waits until the process ends.
async fn until_end(child: &mut crate::Child) -> Result<ExitStatus, Error> {
    loop {
        // The pidfd may be another one afterwards, if a second process continues the list.
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let failed = |error| Error::from_io("wait", &error);
        // Registered only while it is waited for, and removed when this future is dropped.
        let ended = watch(child.as_fd()).map_err(failed)?;
        drop(ended.readable().await.map_err(failed)?);
    }
}

#[allow(deprecated, clippy::allow_attributes, reason = "its safe use; older versions of Tokio have no other")]
fn watch(pidfd: BorrowedFd<'_>) -> io::Result<AsyncFd<BorrowedFd<'_>>> {
    // A borrowed descriptor stays open and the same, which the replacement of this function asks its caller to promise.
    AsyncFd::with_interest(pidfd, Interest::READABLE)
}

fn gone() -> Error {
    Error::new("child", Reason::Conflict("is being dropped"))
}
