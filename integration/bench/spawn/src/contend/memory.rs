//! Maps resident memory, so that fork has page tables to copy.
//!
//! # Safety
//!
//! The mapping is new, private and never unmapped, and its only slice is handed to the caller.

#![allow(unsafe_code, clippy::allow_attributes, reason = "maps memory")]

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use std::{ptr, slice};

/// The smallest page size of any kernel. Writing more often than needed does no harm.
pub(super) const PAGE: usize = 4096;

/// Maps this many MiB of pages of the ordinary size and writes to each page.
pub(super) fn touched(mib: usize) -> Result<&'static mut [u8], Errno> {
    let size = mib << 20;
    if size == 0 {
        return Ok(&mut []);
    }
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses the address of the new mapping, so no memory in use is affected.
    let mapping = unsafe { mmap_anonymous(ptr::null_mut(), size, access, MapFlags::PRIVATE) }?;
    for advice in [Advice::LinuxNoHugepage, Advice::LinuxPopulateWrite] {
        // SAFETY: this changes how the mapping is backed, not what is in it.
        match unsafe { madvise(mapping, size, advice) } {
            // Tolerated: some kernels have no huge pages. Linux before 5.14 cannot populate a mapping, which only makes
            // the loop below slower.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(errno) => return Err(errno),
        }
    }
    // SAFETY: the slice is the whole mapping made above. It is readable, writable, zeroed, referenced only here, and
    // mapped until the process ends.
    let memory = unsafe { slice::from_raw_parts_mut(mapping.cast::<u8>(), size) };
    memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    Ok(memory)
}
