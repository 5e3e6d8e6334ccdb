//! A page that is shared with processes that have memory of their own.
//!
//! # Safety
//!
//! A page is a shared mapping of zeros that nothing else refers to, and it holds one [`Journal`]: three
//! kinds of atomics, for which zeros are valid. It is never used for a second one, because a process
//! that nobody waits for may write to its own mapping of it for as long as it lives.

#![allow(unsafe_code, clippy::allow_attributes, reason = "maps and unmaps memory")]

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use husk_script::Journal;
use husk_script::sys::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// See the top of this file.
pub(crate) struct Page {
    mapping: NonNull<c_void>,
}

// SAFETY: the mapping belongs to whoever has the `Page`, whatever thread that is.
unsafe impl Send for Page {}

impl Page {
    pub(crate) fn new() -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping where the kernel likes touches no memory in use.
        let mapping =
            unsafe { mmap_anonymous(ptr::null_mut(), size_of::<Journal>(), access, MapFlags::SHARED) }?;
        Ok(Self { mapping: NonNull::new(mapping).ok_or(Errno::NOMEM)? })
    }

    pub(crate) fn journal(&self) -> &Journal {
        // SAFETY: a mapping is aligned to a page, is as large as was asked for, stays for as long as the
        // `Page`, and holds zeros, which is what a new journal is. It is only ever reached through shared
        // references, here and in other processes.
        unsafe { self.mapping.cast::<Journal>().as_ref() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`, whole; references to it cannot outlive the `Page`.
        let unmapped = unsafe { munmap(self.mapping.as_ptr(), size_of::<Journal>()) };
        debug_assert!(unmapped.is_ok());
    }
}
