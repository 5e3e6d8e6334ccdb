//! The program's entry point.
//!
//! It replaces the C library's `main`, not Rust's. Rust's runtime reads /proc/self/maps and creates a signal
//! stack in order to report stack overflows. This takes a tenth of the time of `husk state`, twice if husk
//! re-executes itself. `husk_runtime::prepare_process` does what that runtime does for safety.
//!
//! # Safety
//!
//! The symbol `main` must have the C library's signature and occur once in the program. No other crate
//! defines it, and Rust's `main` is left out if this one exists (`no_main`).
//!
//! [`inherited`] takes a descriptor by number. Everything husk opens is close-on-exec from its creation. So a
//! descriptor that is not close-on-exec was left open by the caller, and nothing here owns it.

use crate::run;
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

#[cfg(all(target_env = "gnu", not(test)))]
#[expect(unsafe_code, reason = "a name that the linker looks for")]
// SAFETY: see the module documentation. It takes no arguments; std gets them from the C library's
// initialisers.
#[unsafe(export_name = "main")]
extern "C" fn begin() -> std::ffi::c_int {
    husk_runtime::prepare_process();
    u8::from(run()).into()
}

/// For other C libraries, which pass std no arguments before its own `main`, and for tests, which have their
/// own.
#[cfg(any(not(target_env = "gnu"), test))]
pub(crate) fn begin() -> std::process::ExitCode {
    u8::from(run()).into()
}

/// Takes a descriptor that the caller left open for this program. Returns `None` if the number is not open or
/// was taken before, and a copy for standard streams.
#[expect(unsafe_code, reason = "owns a descriptor that the caller has named")]
pub(crate) fn inherited(number: RawFd) -> Option<OwnedFd> {
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
