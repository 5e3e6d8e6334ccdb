//! Gives up memory of a process.
//!
//! # Safety
//!
//! [`forget`] empties memory even if code refers to it. The caller of [`Unneeded::new`] promises that no code uses it.

#![allow(unsafe_code, clippy::allow_attributes, reason = "empties memory")]

use crate::arch::call;
use crate::clone::InChild;
use crate::raw::check;
use crate::{Errno, Result};
use core::ops::Range;
use linux_raw_sys::general::{__NR_brk, __NR_madvise, MADV_DONTNEED};

/// A range of addresses with nothing that the process still needs.
#[derive(Clone, Copy, Debug)]
pub struct Unneeded {
    start: usize,
    length: usize,
}

impl Unneeded {
    /// Declares these addresses unneeded. They must begin and end at a page boundary.
    ///
    /// # Safety
    ///
    /// A process that passes this to [`forget`] shares its memory with no other process. Afterwards it does not use
    /// what these addresses held: no stack, no code, no data.
    #[must_use]
    pub const unsafe fn new(addresses: Range<usize>) -> Self {
        Self { start: addresses.start, length: addresses.end.saturating_sub(addresses.start) }
    }
}

/// Clears private anonymous memory with `madvise(MADV_DONTNEED)`; it reads as zeros afterwards. The mappings stay,
/// because the kernel writes to one of them whenever it moves a thread that has registered an rseq area (rseq(2)).
///
/// # Errors
///
/// `EINVAL` for memory that the kernel keeps in place, such as a device's.
pub fn forget(_: &InChild, unneeded: Unneeded) -> Result {
    let words = [unneeded.start, unneeded.length, MADV_DONTNEED as usize, 0, 0, 0];
    // SAFETY: the creator of the `Unneeded` promised that nothing in it is used any more.
    match check(unsafe { call(__NR_madvise, words) }) {
        // There is a gap between mappings. The kernel reports that only after it has emptied all of them
        // (mm/madvise.c, `madvise_walk_vmas`).
        Err(Errno::NOMEM) => Ok(()),
        done => done.map(drop),
    }
}

/// Returns the end of the heap that the C library's allocator uses, with `brk(0)`.
pub fn program_break() -> usize {
    // SAFETY: the heap cannot end at 0, so the kernel changes nothing.
    unsafe { call(__NR_brk, [0; 6]) }.cast_unsigned()
}
