//! Provides the system calls of Linux as typed functions.
//!
//! Each function makes one system call and has the kernel's name for it; multiplexed calls are split. Calls that rustix
//! has go through it, the rest are raw system calls. Every function may run in a child between clone and exec, in the
//! memory and thread-local storage of an unknown parent. So no function allocates, locks, panics, or uses libc and its
//! `errno`.
//!
//! Functions are safe because of the types of their arguments: a path is a [`CStr`](core::ffi::CStr), an argument
//! vector a [`CArray`], a descriptor an [`Fd`]. The exceptions are [`clone::clone3`] and [`clone::clone`], which start
//! a process on its own stack, and two constructors, [`clone::InChild::new`] and [`memory::Unneeded::new`]. Each says
//! what it requires. Functions that only a child may call take an [`InChild`](clone::InChild). They close a descriptor
//! by its number, continue the process twice, or load a filter.
//!
//! Nothing here knows what a container or a command is, and no function decides anything. Each makes its call and
//! returns the kernel's answer. It fails as its manual page says; `# Errors` names what a caller may have to tell
//! apart.

#![no_std]

mod arch;
pub mod at;
mod bits;
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

/// The headers of a program.
pub use linux_raw_sys::elf;

pub(crate) use bits::set_of_bits;
pub use carray::{CArray, CPtr};
pub use fd::Fd;
pub use rustix::io::Errno;
pub use rustix::process::{Gid, Pid, Uid};

/// Returns the error with this number, which must be in the kernel's range: 1 to 4095.
#[must_use]
pub fn errno(number: u16) -> Errno {
    // `Errno`'s own constructor panics for other numbers; the child has no code for a panic.
    match raw::check(-isize::try_from(number).unwrap_or(1)) {
        Err(errno) => errno,
        Ok(_) => Errno::INVAL,
    }
}

/// Drops an error that may be ignored; the caller gives the reason.
pub fn tolerate<T, E>(result: core::result::Result<T, E>, _why: &'static str) {
    drop(result);
}

/// The result of a system call, by default one that returns nothing.
pub type Result<T = ()> = core::result::Result<T, Errno>;
