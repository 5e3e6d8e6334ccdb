//! A mapping that is shared with processes that do not share this process's memory.
//!
//! # Safety
//!
//! A page is a shared mapping of zeros that nothing else refers to. It holds one [`Journal`] and the times of
//! its steps: atomics, for which zeros are valid. It is never reused: a process that was not waited for may
//! write to its own mapping of the page while it lives.

#![allow(unsafe_code, clippy::allow_attributes, reason = "maps and unmaps memory")]

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicU64;
use husk_script::Journal;
use husk_script::sys::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// See the module documentation.
pub(crate) struct Page {
    mapping: NonNull<c_void>,
    /// The number of words after the journal.
    times: usize,
}

/// The offset of the times. A journal's size is a multiple of its own alignment, not of theirs.
const TIMES: usize = size_of::<Journal>().next_multiple_of(align_of::<AtomicU64>());

// SAFETY: the mapping belongs to the owner of the `Page`, in whatever thread.
unsafe impl Send for Page {}

impl Page {
    pub(crate) fn new(times: usize) -> Result<Self, Errno> {
        let size = TIMES + times * size_of::<AtomicU64>();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory in use.
        let mapping = unsafe { mmap_anonymous(ptr::null_mut(), size, access, MapFlags::SHARED) }?;
        Ok(Self { mapping: NonNull::new(mapping).ok_or(Errno::NOMEM)?, times })
    }

    pub(crate) fn journal(&self) -> &Journal {
        // SAFETY: the mapping is aligned to a page, has the requested size, and stays as long as the `Page`.
        // It holds zeros, which are a valid new journal. It is accessed only through shared references, here
        // and in other processes.
        unsafe { self.mapping.cast::<Journal>().as_ref() }
    }

    pub(crate) fn times(&self) -> &[AtomicU64] {
        // SAFETY: `new` has made the mapping long enough.
        let first = unsafe { self.mapping.byte_add(TIMES) }.cast::<AtomicU64>();
        // SAFETY: as for the journal. They follow it, aligned by the definition of `TIMES`.
        unsafe { core::slice::from_raw_parts(first.as_ptr(), self.times) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: this is the whole mapping made by `new`; references to it cannot outlive the `Page`.
        let unmapped = unsafe { munmap(self.mapping.as_ptr(), TIMES + self.times * size_of::<AtomicU64>()) };
        debug_assert!(unmapped.is_ok());
    }
}
