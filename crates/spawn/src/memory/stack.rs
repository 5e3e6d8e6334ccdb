//! Stacks for children: separate pages with a guard page below.
//!
//! # Safety
//!
//! A stack is a private mapping that nothing else refers to. It may be unmapped or given to another child
//! only when the last one is released; the pool ensures this.

#![allow(unsafe_code, clippy::allow_attributes, reason = "maps and unmaps memory")]

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use husk_script::sys::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// Holds the child's few frames, even in a debug build, where the step loop has a large frame and may call itself twice.
/// Only touched pages take up memory.
const SIZE: usize = 128 << 10;

/// The size of the guard below: an overflowing child faults here instead of overwriting adjacent memory. As
/// large as the largest page of any supported kernel.
const GUARD: usize = 64 << 10;

/// See the module documentation.
pub(crate) struct Stack {
    mapping: NonNull<c_void>,
}

// SAFETY: the mapping belongs to the owner of the `Stack`, in whatever thread.
unsafe impl Send for Stack {}

impl Stack {
    pub(crate) fn new() -> Result<Self, Errno> {
        let flags = MapFlags::PRIVATE | MapFlags::STACK | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory in use.
        let mapping = unsafe {
            mmap_anonymous(ptr::null_mut(), GUARD + SIZE, ProtFlags::READ | ProtFlags::WRITE, flags)
        }?;
        let stack = Self { mapping: NonNull::new(mapping).ok_or(Errno::NOMEM)? };
        // SAFETY: this is the lower part of the new mapping, which nothing uses yet.
        unsafe { mprotect(mapping, GUARD, MprotectFlags::empty()) }?;
        Ok(stack)
    }

    /// Returns the lowest usable address and the number of bytes from there.
    pub(crate) fn extent(&self) -> (usize, usize) {
        (self.mapping.as_ptr().addr() + GUARD, SIZE)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: this is the whole mapping made by `new`, unused by the rule in the module documentation.
        // The only error, exceeding a limit by splitting a mapping, cannot occur for a whole one.
        let unmapped = unsafe { munmap(self.mapping.as_ptr(), GUARD + SIZE) };
        debug_assert!(unmapped.is_ok());
    }
}
