//! Signals as a descriptor, for who waits for a child and is told what to do meanwhile.
//!
//! # Safety
//!
//! One descriptor that the kernel has just made, and that nobody else knows of, becomes an owned one.

#![allow(unsafe_code, clippy::allow_attributes, reason = "owns a descriptor that the kernel has made")]

use crate::Error;
use husk_script::sys::signal::{self, SignalSet};

use std::os::fd::{FromRawFd as _, OwnedFd};

pub use husk_script::sys::signal::read_signalfd;

/// A descriptor that is readable when there is a signal of `set`, all of which must be blocked; a read of it never
/// waits. [`read_signalfd`] says what came.
///
/// # Errors
///
/// If there are too many descriptors.
pub fn signalfd(set: SignalSet) -> Result<OwnedFd, Error> {
    let made = signal::signalfd(set).map_err(|errno| Error::new("signalfd", errno))?;
    // SAFETY: the kernel has just made it, an `Fd` is never negative, and this function forgets the number.
    Ok(unsafe { OwnedFd::from_raw_fd(made.number()) })
}
