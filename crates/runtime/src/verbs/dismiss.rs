//! Ending the process that creates a container, for whoever deletes the container meanwhile.
//!
//! What a creator writes down it writes down late, and it may wait for others for long: a hook, a seccomp agent, the
//! receiver of a terminal. So a deleter does not guess from the record. While there is a creator, which the kernel
//! knows ([`Entry::creator`]), the deleter ends it; afterwards nobody writes to the record any more, and what it says
//! is all there is.

use crate::error::Error;
use crate::store::Entry;
use crate::store::process;
use husk_script::sys::signal::pidfd_send_signal;
use husk_script::sys::{Errno, Fd};
use husk_spawn::Signal;
use rustix::event::Timespec;
use rustix::process::{PidfdFlags, pidfd_open};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long a creator may take to leave nothing behind.
const PATIENCE: Duration = Duration::from_secs(3);

/// How often the deleter looks whether the container has been created after all. No descriptor tells of that.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Ends whoever creates the container. Returns when nobody does any more.
pub(crate) fn dismiss(entry: &Entry) -> Result<(), Error> {
    while let Some(creator) = open(entry)? {
        entry.mark_deleted();
        signal(&creator, Signal::TERM)?;
        if !leaves(entry, &creator)? {
            signal(&creator, Signal::KILL)?;
            process::wait_patiently(&creator)?;
        }
    }
    Ok(())
}

/// The creator itself, whatever becomes of its pid from here on.
fn open(entry: &Entry) -> Result<Option<OwnedFd>, Error> {
    while let Some(pid) = entry.creator()? {
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Err(Errno::SRCH) => continue,
            process => process.map_err(|errno| Error::kernel("open the container's creator", errno))?,
        };
        // The pid may have been another's when it was opened. The mark is still that creator's, so it was not.
        if entry.creator()? == Some(pid) {
            return Ok(Some(process));
        }
    }
    Ok(None)
}

fn signal(process: &OwnedFd, signal: Signal) -> Result<(), Error> {
    match pidfd_send_signal(Fd::of(process), signal) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(errno) => Err(Error::kernel("end the container's creator", errno)),
    }
}

/// Whether the creator ends, or has created the container, before its time is over.
fn leaves(entry: &Entry, creator: &OwnedFd) -> Result<bool, Error> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if process::has_ended(creator, Some(&LOOK))? || entry.creator()?.is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}
