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

use std::ffi::{CStr, c_char, c_int};
use std::slice;

#[expect(unsafe_code, reason = "a name that the linker looks for, and the arguments as C has them")]
// SAFETY: see the module documentation.
#[unsafe(export_name = "main")]
extern "C" fn begin(count: c_int, arguments: *const *const c_char) -> c_int {
    // SAFETY: the kernel has written so many pointers on the stack, which stay there until the process ends.
    let arguments = unsafe { slice::from_raw_parts(arguments, usize::try_from(count).unwrap_or(0)) };
    husk_runtime::prepare_process(arguments.iter().map(|&argument| {
        // SAFETY: each points to a string beside them.
        unsafe { CStr::from_ptr(argument) }
    }));
    u8::from(crate::run()).into()
}
