//! Performs a list of [`Step`]s in a child that has not execed.
//!
//! The child shares its parent's memory and thread-local storage, and the parent's threads may hold locks at the
//! moment of the clone. This code must therefore not allocate, lock, panic, unwind, format, touch a thread-local, or
//! call libc. The crate is `no_std` without `alloc` and links nothing that could do these things.
//! `tests/freestanding.rs` proves it by linking the loop without any library.
//!
//! No step decides what the program needs. Everything that depends on a configuration or a kernel is settled when the
//! list is written. A step may only tolerate an error number that it names, create missing files, or take the first of
//! several paths. No step knows its purpose: the parent, which may allocate, describes its failure (`husk-listing`).
//!
//! Start with [`Step`], then read [`run`].

#![no_std]

#[cfg(test)]
extern crate std;

pub mod hook;
pub mod journal;
mod keys;
mod net;
mod perform;
mod reap;
mod registers;
pub mod report;
mod rootfs;
mod step;
mod terminal;

pub use hook::HookCommand;
pub use husk_sys as sys;
pub use journal::Journal;
pub use registers::{Handle, Reg};
pub use report::Request;
pub use rootfs::target::{MountPoint, PathInRoot};
pub use step::{Devices, Step};

use core::sync::atomic::{AtomicU64, Ordering};
use registers::Registers;
use sys::Fd;
use sys::clone::InChild;
use sys::memory::Unneeded;

/// The exit status of a child that could not perform its list. The parent reads the [`Journal`] instead, but a foreign
/// reaper may see this status.
pub const SETUP_FAILED: u8 = 127;

/// Everything a child needs. The memory must not change until the child is released.
pub struct Script<'a> {
    /// The steps, in order. The child exits after the last one, which is normally [`Step::Execve`].
    pub steps: &'a [Step<'a>],
    /// The journal in which the child records its progress.
    pub journal: &'a Journal,
    /// The child's end of the socket to its parent, for lists with a [`Step::Request`].
    pub channel: Option<Fd>,
    /// Receives the start time of each step, if the caller asked for times. Steps that were not reached keep 0.
    pub times: Option<&'a [AtomicU64]>,
    /// The memory that [`Step::ForgetMemory`] gives up. Empty for a child that shares its parent's memory.
    pub unneeded: &'a [Unneeded],
}

/// Performs the list from clone to exec, in a process that proves to be a child. With [`Step::CloneParent`] a second
/// process continues where the first exits. With [`Step::CloneAndReap`] and [`Step::VforkAndReap`] the second
/// continues while the first waits for it.
pub fn run(child: &InChild, script: &Script<'_>) -> ! {
    go_on(child, script, 0, &mut Registers::default())
}

/// Performs the list from step `from` on.
fn go_on(child: &InChild, script: &Script<'_>, from: usize, registers: &mut Registers) -> ! {
    let filters = |step: &Step<'_>| matches!(step, Step::Seccomp { .. });
    let mut times = script.times.filter(|_| !script.steps.iter().take(from).any(filters));
    for (index, step) in script.steps.iter().enumerate().skip(from) {
        script.journal.begin(index);
        if let Some(places) = times {
            if let Some(place) = places.get(index) {
                place.store(sys::time::monotonic(), Ordering::Relaxed);
            }
            // From here on the filter may refuse the call that reads the clock, or kill the child for it.
            if filters(step) {
                times = None;
            }
        }
        if let Err(errno) = perform::perform(child, step, registers, script) {
            script.journal.fail(errno);
            registers.report(index, errno, script.channel);
            break;
        }
    }
    sys::process::exit_group(SETUP_FAILED)
}
