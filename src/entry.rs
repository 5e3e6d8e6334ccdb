//! Where the program begins.
//!
//! At the C library's `main` and not at Rust's, whose runtime reads /proc/self/maps and makes a signal stack to put a
//! stack overflow into words: a tenth of what `husk state` takes, and paid twice where husk starts itself once more.
//! What that runtime does for safety is done here too: see `husk_runtime::settle`.
//!
//! # Safety
//!
//! The symbol `main` must be the C library's idea of it, once in a program: no other crate has one, and a Rust `main`
//! is left out where this one is (`no_main`).
//!
//! [`inherited`] takes a descriptor by its number. What husk opens is close-on-exec from its creation, so one that is
//! not has been left open by the caller, and nothing here owns it.

use crate::run;
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

#[cfg(all(target_env = "gnu", not(test)))]
#[expect(unsafe_code, reason = "a name that the linker looks for")]
// SAFETY: see the top of this file. It takes none of the arguments; std has them from the C library's initialisers.
#[unsafe(export_name = "main")]
extern "C" fn begin() -> std::ffi::c_int {
    husk_runtime::settle();
    u8::from(run()).into()
}

/// Other C libraries tell std nothing before its own `main`, and tests have one.
#[cfg(any(not(target_env = "gnu"), test))]
pub(crate) fn begin() -> std::process::ExitCode {
    u8::from(run()).into()
}

/// Takes a descriptor that the caller has left open for this program, once: `None` if there is none of that number. Of a
/// standard stream it returns a copy.
#[expect(unsafe_code, reason = "owns a descriptor that the caller has named")]
pub(crate) fn inherited(number: RawFd) -> Option<OwnedFd> {
    const LAST_STREAM: RawFd = 2;
    if number < 0 {
        return None;
    }
    // SAFETY: it is not -1, and nobody closes it meanwhile: a descriptor that other code owns is only asked for its flags.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    if fcntl_getfd(descriptor).ok()?.contains(FdFlags::CLOEXEC) {
        return None;
    }
    if number <= LAST_STREAM {
        return descriptor.try_clone_to_owned().ok();
    }
    // So that it is not taken a second time.
    fcntl_setfd(descriptor, FdFlags::CLOEXEC).ok()?;
    // SAFETY: it is open, and nothing owns it, see the top of this file.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::inherited;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn a_descriptor_that_this_program_owns_is_not_taken() {
        let (own, _other) = std::io::pipe().unwrap();
        assert!(inherited(own.as_raw_fd()).is_none());
        assert!(inherited(-1).is_none());
        assert!(inherited(i32::MAX).is_none());
    }

    #[test]
    fn an_inherited_descriptor_is_taken_once() {
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
    fn a_standard_stream_is_copied() {
        let copy = inherited(2).unwrap();
        assert_ne!(copy.as_raw_fd(), 2);
    }
}
