//! Reads the clock.

use crate::raw;
use linux_raw_sys::general::CLOCK_MONOTONIC;

/// Returns `clock_gettime(CLOCK_MONOTONIC)` in nanoseconds.
#[must_use]
pub fn monotonic() -> u64 {
    let [seconds, nanoseconds] = raw::clock_gettime(CLOCK_MONOTONIC);
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds)
}
