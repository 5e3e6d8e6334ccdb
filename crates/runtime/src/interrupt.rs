//! Signals that end a verb while it waits.
//!
//! Until the container's program has begun, no process exists to pass a signal on to. So a verb that waits for a
//! child, a hook or another program's socket ends on a signal, and removes everything it has made. The signals are
//! blocked before it makes anything, and every wait polls for them too.

use crate::error::Error;
use husk_script::sys::Errno;
use husk_script::sys::signal::{ignored, read_signalfd, rt_sigprocmask};
use husk_script::sys::tolerate;
use husk_spawn::{Signal, SignalSet, signalfd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::OnceCell;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Returns whether the signal tells a process to end.
pub(crate) fn is_ending(signal: Signal) -> bool {
    Signal::ENDING.contains(&signal)
}

/// Adds the ending signals to a set.
fn with_ending(set: SignalSet) -> SignalSet {
    Signal::ENDING.into_iter().fold(set, SignalSet::with)
}

/// The signals of [`Signal::ENDING`], blocked and read from a signalfd during each wait.
pub(crate) struct Interrupt {
    /// The mask to restore on drop, if it is to be restored.
    before: Option<SignalSet>,
    /// The signalfd, opened by the first wait.
    arriving: OnceCell<OwnedFd>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitOutcome {
    /// The descriptor is ready.
    Came,
    /// The deadline has passed.
    TooLong,
}

impl Interrupt {
    /// Blocks the signals until this is dropped.
    pub(crate) fn hold() -> Result<Self, Error> {
        let failed = |errno| Error::kernel("block signals", errno);
        // Signals that are blocked already stay blocked throughout.
        let before = rt_sigprocmask(SignalSet::FULL).map_err(failed)?;
        rt_sigprocmask(with_ending(before)).map_err(failed)?;
        Ok(Self { before: Some(before), arriving: OnceCell::new() })
    }

    /// Leaves the signals, which are already blocked, as they are: [`Signals`](crate::child::supervise::Signals) passes
    /// them on later.
    pub(crate) fn held() -> Self {
        Self { before: None, arriving: OnceCell::new() }
    }

    /// Waits until one of `events` occurs on `fd`, the deadline passes or a signal arrives.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`] if a signal arrived.
    pub(crate) fn wait(
        &self,
        fd: BorrowedFd<'_>,
        events: PollFlags,
        deadline: Option<Instant>,
    ) -> Result<WaitOutcome, Error> {
        let arriving = self.arriving()?;
        loop {
            let mut polled =
                [PollFd::from_borrowed_fd(fd, events), PollFd::from_borrowed_fd(arriving, PollFlags::IN)];
            match poll(&mut polled, left(deadline).as_ref()) {
                Ok(0) => return Ok(WaitOutcome::TooLong),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::kernel("wait", errno)),
            }
            if !polled[1].revents().is_empty() {
                take(arriving)?;
            }
            if !polled[0].revents().is_empty() {
                return Ok(WaitOutcome::Came);
            }
        }
    }

    /// Sleeps for the duration, unless a signal arrives.
    ///
    /// # Errors
    ///
    /// As for [`wait`](Self::wait).
    pub(crate) fn pause(&self, pause: Duration) -> Result<(), Error> {
        let arriving = self.arriving()?;
        let pause = Timespec::try_from(pause).ok();
        match poll(&mut [PollFd::from_borrowed_fd(arriving, PollFlags::IN)], pause.as_ref()) {
            Ok(0) | Err(Errno::INTR) => Ok(()),
            Ok(_) => take(arriving),
            Err(errno) => Err(Error::kernel("wait", errno)),
        }
    }

    fn arriving(&self) -> Result<BorrowedFd<'_>, Error> {
        if let Some(arriving) = self.arriving.get() {
            return Ok(arriving.as_fd());
        }
        let arriving = signalfd(with_ending(SignalSet::EMPTY))?;
        Ok(self.arriving.get_or_init(|| arriving).as_fd())
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            tolerate(rt_sigprocmask(before), "the mask was valid before");
        }
    }
}

/// Reads the signals that have arrived. Fails with the first one that the caller has not set to be ignored: a blocked
/// signal arrives even if it is ignored.
fn take(arriving: BorrowedFd<'_>) -> Result<(), Error> {
    let failed = |errno| Error::kernel("read a signal", errno);
    loop {
        match read_signalfd(arriving) {
            Ok(arrived) if ignored().map_err(failed)?.contains(arrived.signal) => {}
            Ok(arrived) => return Err(Error::Interrupted(arrived.signal.number())),
            Err(Errno::AGAIN) => return Ok(()),
            Err(errno) => return Err(failed(errno)),
        }
    }
}

/// Returns the time that is left. Waits without limit if it is more than the kernel can count.
fn left(deadline: Option<Instant>) -> Option<Timespec> {
    let left = deadline?.saturating_duration_since(Instant::now());
    Timespec::try_from(left).ok()
}
