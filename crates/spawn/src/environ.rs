//! The environment that a child inherits, without a copy of every variable on the heap.
//!
//! # Safety
//!
//! `environ` is libc's. `std::env::set_var` and setenv(3) may only be called while no other thread
//! reads the environment, `environ` included; that is their caller's promise, so reading is sound
//! at any other time.

#![allow(unsafe_code, clippy::allow_attributes, reason = "reads libc's environ")]

use core::ffi::{CStr, c_char};

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Calls `visit` with each `NAME=value` of this process.
pub(crate) fn for_each(mut visit: impl FnMut(&CStr)) {
    // SAFETY: a word that libc keeps at all times; see the top of this file.
    let mut entry = unsafe { environ };
    if entry.is_null() {
        return;
    }
    loop {
        // SAFETY: `entry` is within an array that ends with a null pointer, which ends this loop.
        let string = unsafe { *entry };
        if string.is_null() {
            return;
        }
        // SAFETY: what is not null there is a string that ends with NUL, and is not changed while
        // `visit` looks at it.
        visit(unsafe { CStr::from_ptr(string) });
        // SAFETY: there is at least the null pointer after an entry that is not null.
        entry = unsafe { entry.add(1) };
    }
}
