//! Memory that is there: what fork has to copy the page tables of.
//!
//! # Safety
//!
//! The mapping is new, private and never unmapped, and the one slice of it is handed to the caller.

#![allow(unsafe_code, clippy::allow_attributes, reason = "maps memory")]

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use std::{ptr, slice};

/// The size of the smallest page that any kernel has; writing more often than needed does no harm.
pub(super) const PAGE: usize = 4096;

/// Maps this many MiB of pages of the ordinary size and writes to each of them.
pub(super) fn touched(mib: usize) -> Result<&'static mut [u8], Errno> {
    let size = mib << 20;
    if size == 0 {
        return Ok(&mut []);
    }
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping where the kernel likes touches no memory in use.
    let mapping = unsafe { mmap_anonymous(ptr::null_mut(), size, access, MapFlags::PRIVATE) }?;
    for advice in [Advice::LinuxNoHugepage, Advice::LinuxPopulateWrite] {
        // SAFETY: this changes how the mapping is backed, not what is in it.
        match unsafe { madvise(mapping, size, advice) } {
            // Not every kernel has huge pages, or can populate a mapping (since 5.14): it only
            // makes the loop below faster.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(errno) => return Err(errno),
        }
    }
    // SAFETY: the mapping made above, whole: readable, writable, zeroed, ours alone, and there
    // until the process ends.
    let memory = unsafe { slice::from_raw_parts_mut(mapping.cast::<u8>(), size) };
    memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    Ok(memory)
}
