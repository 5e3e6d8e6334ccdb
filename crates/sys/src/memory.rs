//! Memory that a process gives up.
//!
//! # Safety
//!
//! [`forget`] empties memory, whoever refers to it. What that asks for is promised when an [`Unneeded`] is made.

#![allow(unsafe_code, clippy::allow_attributes, reason = "empties memory")]

use crate::arch::call;
use crate::clone::InChild;
use crate::raw::check;
use crate::{Errno, Result};
use core::ops::Range;
use linux_raw_sys::general::{__NR_madvise, MADV_DONTNEED};

/// Addresses at which a process keeps nothing that it still needs.
#[derive(Clone, Copy, Debug)]
pub struct Unneeded {
    start: usize,
    length: usize,
}

impl Unneeded {
    /// Declares these addresses unneeded. They begin and end with a page.
    ///
    /// # Safety
    ///
    /// A process that passes this to [`forget`] shares its memory with nobody, and does not use
    /// what it had at these addresses afterwards: no stack, no code, no data.
    #[must_use]
    pub const unsafe fn new(addresses: Range<usize>) -> Self {
        Self { start: addresses.start, length: addresses.end.saturating_sub(addresses.start) }
    }
}

/// `madvise(MADV_DONTNEED)`: private memory without a file reads as zeros from here on. The mappings stay, because
/// the kernel writes to one of them whenever it moves a thread that has registered an rseq area (rseq(2)).
///
/// # Errors
///
/// `EINVAL` for memory that the kernel keeps in place, such as a device's.
pub fn forget(_: &InChild, unneeded: Unneeded) -> Result {
    let words = [unneeded.start, unneeded.length, MADV_DONTNEED as usize, 0, 0, 0];
    // SAFETY: who made the `Unneeded` has promised that nothing in it is used any more.
    match check(unsafe { call(__NR_madvise, words) }) {
        // There is a gap between mappings; the kernel says so after it has emptied all of them (mm/madvise.c,
        // `madvise_walk_vmas`).
        Err(Errno::NOMEM) => Ok(()),
        done => done.map(drop),
    }
}
