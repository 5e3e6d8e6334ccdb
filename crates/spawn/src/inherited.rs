//! Takes descriptors that this program was started with, and forgets variables.
//!
//! # Safety
//!
//! [`inherited`] takes a descriptor by number. std, rustix and this crate open every descriptor close-on-exec. So a
//! descriptor that is not close-on-exec was left open by the caller, and nothing here owns it.
//!
//! [`forget_variables`] changes the C library's environment, which ends with a null pointer. Its strings are the
//! kernel's, or copies of std or the C library; all of them may be written. No other thread reads it meanwhile, because
//! the kernel has said that there is none.

#![allow(unsafe_code, clippy::allow_attributes, reason = "owns a descriptor, and changes the environment")]

use core::ffi::{CStr, c_char};
use core::ptr;
use husk_script::sys::namespace::unshare_vm;
use rustix::io::{Errno, FdFlags, fcntl_getfd, fcntl_setfd};
use std::ffi::OsStr;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;

/// Takes a descriptor that the caller of this program left open for it. Returns `None` if the number is not open or
/// was taken before, and a copy for standard streams.
///
/// A program that calls this must open all its own descriptors close-on-exec.
#[must_use]
pub fn inherited(number: RawFd) -> Option<OwnedFd> {
    const LAST_STREAM: RawFd = 2;
    if number < 0 {
        return None;
    }
    // SAFETY: it is not -1, and nothing closes it meanwhile. If other code owns it, this only reads its
    // flags.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    if fcntl_getfd(descriptor).ok()?.contains(FdFlags::CLOEXEC) {
        return None;
    }
    if number <= LAST_STREAM {
        return descriptor.try_clone_to_owned().ok();
    }
    // Prevents taking it a second time.
    fcntl_setfd(descriptor, FdFlags::CLOEXEC).ok()?;
    // SAFETY: it is open and nothing owns it; see the module documentation.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

// SAFETY: every C library has it, with this type (environ(7)).
unsafe extern "C" {
    #[link_name = "environ"]
    static mut VARIABLES: *mut *mut c_char;
}

/// Removes the variables of this process that are not kept, and overwrites them with zeros, so that `/proc/self/environ`
/// and the memory do not contain them any more.
///
/// # Errors
///
/// `EINVAL` if the process has threads or shares its memory. Then nothing changes.
pub fn forget_variables(is_kept: impl Fn(&OsStr) -> bool) -> Result<(), Errno> {
    unshare_vm()?;
    // SAFETY: no other thread changes it.
    let mut from = unsafe { VARIABLES };
    let mut to = from;
    // SAFETY: it is the array, or null if it was cleared.
    while let Some(&variable) = unsafe { from.as_ref() }.filter(|variable| !variable.is_null()) {
        // SAFETY: every pointer of the array but the last is that of a string.
        let text = unsafe { CStr::from_ptr(variable) }.to_bytes();
        let name = text.iter().position(|byte| *byte == b'=').map_or(text, |end| &text[..end]);
        let (kept, length) = (is_kept(OsStr::from_bytes(name)), text.len());
        if kept {
            // SAFETY: `to` is not after `from`.
            unsafe { to.write(variable) };
            to = to.wrapping_add(1);
        } else {
            // SAFETY: it may be written, and nothing refers to it any more.
            unsafe { variable.write_bytes(0, length) };
        }
        from = from.wrapping_add(1);
    }
    if to != from {
        // SAFETY: there is room for the end, because a variable was removed.
        unsafe { to.write(ptr::null_mut()) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::inherited;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn descriptor_owned_by_this_program_is_refused() {
        let (own, _other) = std::io::pipe().unwrap();
        assert!(inherited(own.as_raw_fd()).is_none());
        assert!(inherited(-1).is_none());
        assert!(inherited(i32::MAX).is_none());
    }

    #[test]
    fn inherited_descriptor_is_taken_once() {
        let (own, _other) = std::io::pipe().unwrap();
        let left_open = rustix::io::dup(&own).unwrap();
        let number = left_open.as_raw_fd();
        // Nothing owns it from here on, as after an exec.
        std::mem::forget(left_open);
        let taken = inherited(number).unwrap();
        assert_eq!(taken.as_raw_fd(), number);
        assert!(inherited(number).is_none());
    }

    #[test]
    fn standard_stream_is_duplicated() {
        let copy = inherited(2).unwrap();
        assert_ne!(copy.as_raw_fd(), 2);
    }
}
