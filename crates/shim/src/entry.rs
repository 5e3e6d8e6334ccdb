//! The program's entry point, in place of the C library's `main`, as in the `husk` binary (src/entry.rs).
//!
//! # Safety
//!
//! The symbol `main` must have the C library's signature and occur once in the program. No other crate defines it, and
//! Rust's `main` is left out if this one exists (`no_main`).

#[cfg(all(target_env = "gnu", not(test)))]
#[expect(unsafe_code, reason = "a name that the linker looks for")]
// SAFETY: see the module documentation. It takes no arguments; std gets them from the C library's initialisers.
#[unsafe(export_name = "main")]
extern "C" fn begin() -> std::ffi::c_int {
    husk_runtime::prepare_process();
    crate::program().into()
}
