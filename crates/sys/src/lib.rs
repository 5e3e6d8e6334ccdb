//! The Linux kernel as typed functions.
//!
//! One function for each system call, under the kernel's name; multiplexed calls are split. Where
//! rustix has the call it does the work, the rest is raw system calls here. Every function is fit
//! for the child between clone and exec, which shares the memory and the thread-local storage of a
//! parent it knows nothing of: no allocation, no lock, no panic, no libc, and so no `errno`.
//!
//! Functions are safe because their arguments are types: a path is a [`CStr`](core::ffi::CStr), an
//! argument vector a [`CArray`], a descriptor an [`Fd`]. The two that cannot be (they start a
//! process on a stack of its own) are in [`clone`], and say what they ask for. What only a child may do takes an
//! [`InChild`](clone::InChild): to close a descriptor by its number, to continue the process twice, to load a filter.
//!
//! What is absent: nothing here knows what a container or a command is, and nothing decides; a
//! function makes its one call and returns what the kernel said.

#![no_std]

mod arch;
pub mod at;
pub mod bpf;
mod carray;
pub mod clone;
mod fd;
pub mod file;
pub mod keyring;
pub mod landlock;
pub mod limits;
pub mod memory;
pub mod mount;
pub mod namespace;
pub mod process;
mod raw;
pub mod signal;
pub mod terminal;
pub mod time;

pub use carray::{CArray, CPtr};
pub use fd::Fd;
pub use rustix::io::Errno;
pub use rustix::process::{Gid, Pid, Uid};

/// The error of this number, which is one of the kernel's range: 1 to 4095.
#[must_use]
pub fn errno(number: u16) -> Errno {
    // `Errno`'s own constructor panics at others, for which the child has no room.
    match raw::check(-isize::try_from(number).unwrap_or(1)) {
        Err(errno) => errno,
        Ok(_) => Errno::INVAL,
    }
}

/// Drops an error that may be ignored. The call says why.
pub fn tolerate<T, E>(result: core::result::Result<T, E>, _why: &'static str) {
    drop(result);
}

/// What a system call that returns nothing returns.
pub type Result<T = ()> = core::result::Result<T, Errno>;
