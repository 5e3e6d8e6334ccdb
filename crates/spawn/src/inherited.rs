//! Takes descriptors that this program was started with.
//!
//! # Safety
//!
//! [`inherited`] takes a descriptor by number. std, rustix and this crate open every descriptor close-on-exec. So a
//! descriptor that is not close-on-exec was left open by the caller, and nothing here owns it.

#![allow(unsafe_code, clippy::allow_attributes, reason = "owns a descriptor that the caller has named")]

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

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
