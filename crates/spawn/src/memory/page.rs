//! A mapping that is shared with processes that have memory of their own.
//!
//! # Safety
//!
//! A page is a shared mapping of zeros that nothing else refers to, and it holds one [`Journal`] and the
//! times of its steps: atomics, for which zeros are valid. It is never used for a second one, because a process
//! that nobody waits for may write to its own mapping of it for as long as it lives.

#![allow(unsafe_code, clippy::allow_attributes, reason = "maps and unmaps memory")]

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicU64;
use husk_script::Journal;
use husk_script::sys::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// See the top of this file.
pub(crate) struct Page {
    mapping: NonNull<c_void>,
    /// How many words follow the journal.
    times: usize,
}

/// Where they begin: a journal's size is a multiple of its alignment, not of theirs.
const TIMES: usize = size_of::<Journal>().next_multiple_of(align_of::<AtomicU64>());

// SAFETY: the mapping belongs to whoever has the `Page`, whatever thread that is.
unsafe impl Send for Page {}

impl Page {
    pub(crate) fn new(times: usize) -> Result<Self, Errno> {
        let size = TIMES + times * size_of::<AtomicU64>();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping where the kernel likes touches no memory in use.
        let mapping = unsafe { mmap_anonymous(ptr::null_mut(), size, access, MapFlags::SHARED) }?;
        Ok(Self { mapping: NonNull::new(mapping).ok_or(Errno::NOMEM)?, times })
    }

    pub(crate) fn journal(&self) -> &Journal {
        // SAFETY: a mapping is aligned to a page, is as large as was asked for, stays for as long as the
        // `Page`, and holds zeros, which is what a new journal is. It is only ever reached through shared
        // references, here and in other processes.
        unsafe { self.mapping.cast::<Journal>().as_ref() }
    }

    pub(crate) fn times(&self) -> &[AtomicU64] {
        // SAFETY: `new` has made the mapping so long.
        let first = unsafe { self.mapping.byte_add(TIMES) }.cast::<AtomicU64>();
        // SAFETY: as for the journal, behind which they lie, aligned by the definition of `TIMES`.
        unsafe { core::slice::from_raw_parts(first.as_ptr(), self.times) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`, whole; references to it cannot outlive the `Page`.
        let unmapped = unsafe { munmap(self.mapping.as_ptr(), TIMES + self.times * size_of::<AtomicU64>()) };
        debug_assert!(unmapped.is_ok());
    }
}
