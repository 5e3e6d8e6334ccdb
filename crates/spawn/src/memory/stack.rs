//! Stacks for children: pages of their own with a guard page below.
//!
//! # Safety
//!
//! A stack is a private mapping that nothing else refers to. It may be unmapped or handed to
//! another child only when the last one is released; the pool sees to that.

#![allow(unsafe_code, clippy::allow_attributes, reason = "maps and unmaps memory")]

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use husk_script::sys::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// Room for the child's few frames, also in a debug build. Only the pages it touches exist.
const SIZE: usize = 64 << 10;

/// What lies below: a child that needs more faults here instead of writing over its neighbour.
/// As large as the largest page of any supported kernel.
const GUARD: usize = 64 << 10;

/// See the top of this file.
pub(crate) struct Stack {
    mapping: NonNull<c_void>,
}

// SAFETY: the mapping belongs to whoever has the `Stack`, whatever thread that is.
unsafe impl Send for Stack {}

impl Stack {
    pub(crate) fn new() -> Result<Self, Errno> {
        let flags = MapFlags::PRIVATE | MapFlags::STACK | MapFlags::NORESERVE;
        // SAFETY: a new mapping where the kernel likes touches no memory in use.
        let mapping = unsafe {
            mmap_anonymous(ptr::null_mut(), GUARD + SIZE, ProtFlags::READ | ProtFlags::WRITE, flags)
        }?;
        let stack = Self { mapping: NonNull::new(mapping).ok_or(Errno::NOMEM)? };
        // SAFETY: the lower part of the mapping just made, which nobody uses.
        unsafe { mprotect(mapping, GUARD, MprotectFlags::empty()) }?;
        Ok(stack)
    }

    /// The lowest usable address, and how many bytes there are from it.
    pub(crate) fn extent(&self) -> (usize, usize) {
        (self.mapping.as_ptr().addr() + GUARD, SIZE)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`, whole, and by the rule at the top unused. The only
        // error, that splitting a mapping would exceed a limit, cannot happen to a whole one.
        let unmapped = unsafe { munmap(self.mapping.as_ptr(), GUARD + SIZE) };
        debug_assert!(unmapped.is_ok());
    }
}
