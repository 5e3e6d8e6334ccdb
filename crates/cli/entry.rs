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

use crate::run;

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
