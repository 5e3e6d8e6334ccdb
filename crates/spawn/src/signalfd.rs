//! Receives signals through a descriptor, for supervisors that also wait for a child.
//!
//! # Safety
//!
//! One descriptor, which the kernel has just created and nothing else owns, becomes an `OwnedFd`.

#![allow(unsafe_code, clippy::allow_attributes, reason = "owns a descriptor that the kernel has made")]

use crate::Error;
use husk_script::sys::signal::{self, SignalSet};

use std::os::fd::{FromRawFd as _, OwnedFd};

pub use husk_script::sys::signal::read_signalfd;

/// Returns a descriptor that is readable while a signal of `set` is pending. All of `set` must be blocked.
/// Reads never wait; [`read_signalfd`] decodes them.
///
/// # Errors
///
/// If the process or the system has too many open descriptors.
pub fn signalfd(set: SignalSet) -> Result<OwnedFd, Error> {
    let made = signal::signalfd(set).map_err(|errno| Error::new("signalfd", errno))?;
    // SAFETY: the kernel has just created it, an `Fd` is never negative, and nothing else uses the number.
    Ok(unsafe { OwnedFd::from_raw_fd(made.number()) })
}
