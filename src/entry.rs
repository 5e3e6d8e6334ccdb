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

use crate::run;

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
