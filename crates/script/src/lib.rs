//! The machine: a list of [`Step`]s, and the loop that performs it in a child that has not execed.
//!
//! The child runs in memory that it shares with its parent, with the parent's thread-local storage
//! and with whatever locks the parent's threads held at the moment of the clone. What must
//! therefore not happen here: allocate, lock, panic, unwind, format, touch a thread-local, call
//! libc. The crate is `no_std` without `alloc`, links nothing that could do these things, and
//! `tests/freestanding.rs` proves it by linking the loop without any library at all.
//!
//! What is absent: no step decides what is wanted. Whatever depends on a configuration or on a kernel
//! was settled when the list was written; a step may tolerate an error number it was told to
//! tolerate, make what is missing, or take the first of several places, no more. No step knows why it
//! is here: the words for its failure are made by the parent, where words are free (`husk-listing`).
//!
//! Read [`Step`] for the vocabulary, then [`run`], which is all there is.

#![no_std]

#[cfg(test)]
extern crate std;

pub mod hook;
pub mod journal;
mod keys;
mod perform;
mod reap;
mod registers;
pub mod report;
mod rootfs;
mod step;
mod terminal;

pub use hook::Hook;
pub use husk_sys as sys;
pub use journal::Journal;
pub use registers::{Handle, Reg};
pub use report::Request;
pub use rootfs::target::{Place, Target};
pub use step::{Devices, Step};

use core::sync::atomic::{AtomicU64, Ordering};
use registers::Registers;
use sys::Fd;
use sys::clone::InChild;
use sys::memory::Unneeded;

/// The exit status of a child that could not perform its list. Nobody is meant to read it, the
/// [`Journal`] says more; but a foreign reaper may see it.
pub const SETUP_FAILED: u8 = 127;

/// Everything a child needs, in memory that stays as it is until the child is released.
pub struct Script<'a> {
    /// What to do, in this order. The last step is [`Step::Execve`], or the child ends.
    pub steps: &'a [Step<'a>],
    /// Where the child writes down how far it came.
    pub journal: &'a Journal,
    /// The child's end of the socket to its parent, for lists with a [`Step::Request`].
    pub channel: Option<Fd>,
    /// Where the child writes down when each step begins, if anybody asked. A step that it did not come
    /// to has 0.
    pub times: Option<&'a [AtomicU64]>,
    /// What [`Step::ForgetMemory`] gives up. Empty for a child that shares its parent's memory.
    pub unneeded: &'a [Unneeded],
}

/// Performs the list, in a process that proves to be a child. This is the child's whole life between clone and exec, or with a
/// [`Step::CloneParent`] that of two children, the second of which goes on where the first ends, or with
/// [`Step::CloneAndReap`] and [`Step::VforkAndReap`] where the first begins to wait for it.
pub fn run(child: &InChild, script: &Script<'_>) -> ! {
    go_on(child, script, 0, &mut Registers::default())
}

/// Performs the list from this step on.
fn go_on(child: &InChild, script: &Script<'_>, from: usize, registers: &mut Registers) -> ! {
    let filters = |step: &Step<'_>| matches!(step, Step::Seccomp { .. });
    let mut times = script.times.filter(|_| !script.steps.iter().take(from).any(filters));
    for (index, step) in script.steps.iter().enumerate().skip(from) {
        script.journal.begin(index);
        if let Some(places) = times {
            if let Some(place) = places.get(index) {
                place.store(sys::time::monotonic(), Ordering::Relaxed);
            }
            // From here on a filter decides which calls may be made, and what becomes of who makes others.
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
