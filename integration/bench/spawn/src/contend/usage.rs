//! Reads the CPU time of this process and of the children it has waited for.
//!
//! # Safety
//!
//! getrusage(2) writes one structure, which lives on the stack for the call.

#![allow(unsafe_code, clippy::allow_attributes, reason = "calls getrusage")]

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

/// CPU time so far. The kernel's division into user and system time is a guess for processes that live shorter than a
/// tick. The sum is right.
#[derive(Clone, Copy)]
pub(super) struct Usage {
    pub(super) user: Duration,
    pub(super) system: Duration,
}

impl Usage {
    pub(super) fn now() -> io::Result<Self> {
        let own = of(libc::RUSAGE_SELF)?;
        let children = of(libc::RUSAGE_CHILDREN)?;
        Ok(Self { user: own.user + children.user, system: own.system + children.system })
    }
}

fn of(who: libc::c_int) -> io::Result<Usage> {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` has room for the structure that the call fills.
    if unsafe { libc::getrusage(who, usage.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the structure holds only numbers. Zeros are as valid for them as what the kernel has written.
    let usage = unsafe { usage.assume_init() };
    Ok(Usage { user: duration(usage.ru_utime), system: duration(usage.ru_stime) })
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let microseconds = u64::try_from(time.tv_usec).unwrap_or_default();
    Duration::from_secs(seconds) + Duration::from_micros(microseconds)
}
