//! Signals that end a verb while it waits.
//!
//! Until a container's program has begun there is nobody to pass a signal on to. A verb that waits for a child, a
//! hook or a socket of somebody else's ends when it is told to, and takes with it what it has begun. So these signals
//! are blocked before there is anything to be taken along, and every wait looks at them as well.

use crate::error::Error;
use husk_script::sys::Errno;
use husk_script::sys::signal::{ignored, read_signalfd, rt_sigprocmask};
use husk_script::sys::tolerate;
use husk_spawn::{Signal, SignalSet, signalfd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::OnceCell;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Whether a process is told to end by this signal.
pub(crate) fn is_ending(signal: Signal) -> bool {
    Signal::ENDING.contains(&signal)
}

/// This set with those signals in it.
fn with_ending(set: SignalSet) -> SignalSet {
    Signal::ENDING.into_iter().fold(set, SignalSet::with)
}

/// The signals of [`Signal::ENDING`], blocked, and read where the verb waits.
pub(crate) struct Interrupt {
    /// What was blocked before, if that is to be so again.
    before: Option<SignalSet>,
    /// Opened by the first wait.
    arriving: OnceCell<OwnedFd>,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// What was waited for has come.
    Came,
    /// It has not come in time.
    TooLong,
}

impl Interrupt {
    /// Blocks the signals until this is dropped.
    pub(crate) fn hold() -> Result<Self, Error> {
        let failed = |errno| Error::kernel("hold signals", errno);
        // What is blocked already stays so, without a moment in which it is not.
        let before = rt_sigprocmask(SignalSet::FULL).map_err(failed)?;
        rt_sigprocmask(with_ending(before)).map_err(failed)?;
        Ok(Self { before: Some(before), arriving: OnceCell::new() })
    }

    /// The signals are blocked already, and stay so: [`Signals`](crate::child::supervise::Signals) passes them on later.
    pub(crate) fn held() -> Self {
        Self { before: None, arriving: OnceCell::new() }
    }

    /// Waits until one of `events` comes at `fd`, until it is too late, or until a signal comes.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`] if a signal has come.
    pub(crate) fn wait(
        &self,
        fd: BorrowedFd<'_>,
        events: PollFlags,
        deadline: Option<Instant>,
    ) -> Result<Waited, Error> {
        let arriving = self.arriving()?;
        loop {
            let mut polled =
                [PollFd::from_borrowed_fd(fd, events), PollFd::from_borrowed_fd(arriving, PollFlags::IN)];
            match poll(&mut polled, left(deadline).as_ref()) {
                Ok(0) => return Ok(Waited::TooLong),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::kernel("wait", errno)),
            }
            if !polled[1].revents().is_empty() {
                take(arriving)?;
            }
            if !polled[0].revents().is_empty() {
                return Ok(Waited::Came);
            }
        }
    }

    /// Waits for so long, unless a signal comes.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
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

/// Takes the signals that have come. The first that our caller has not told us to ignore is an error: a blocked
/// signal comes even if it is ignored.
fn take(arriving: BorrowedFd<'_>) -> Result<(), Error> {
    let failed = |errno| Error::kernel("take a signal", errno);
    loop {
        match read_signalfd(arriving) {
            Ok(arrived) if ignored().map_err(failed)?.contains(arrived.signal) => {}
            Ok(arrived) => return Err(Error::Interrupted(arrived.signal.number())),
            Err(Errno::AGAIN) => return Ok(()),
            Err(errno) => return Err(failed(errno)),
        }
    }
}

/// The time that is left. More than the kernel can count is no limit.
fn left(deadline: Option<Instant>) -> Option<Timespec> {
    let left = deadline?.saturating_duration_since(Instant::now());
    Timespec::try_from(left).ok()
}
