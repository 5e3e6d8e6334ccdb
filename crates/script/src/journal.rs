//! What the child leaves behind for a parent that shares its memory.
//!
//! A few words. The kernel clears the first when the child execs or exits (`CLONE_CHILD_CLEARTID`,
//! kernel/fork.c, `mm_release`): from then on the child uses neither its stack nor the list, and
//! both may be used again. The child writes step and error number, so a failure costs no descriptor
//! and no system call to report.
//!
//! A list with a [`Step::CloneParent`](crate::Step) goes on in another process, whose pid the kernel
//! writes here too; of one with a [`Step::CloneAndReap`](crate::Step) the first process writes how the
//! second ended. These have memory of their own, so the journal of such a list lies in a shared mapping. With a
//! [`Step::VforkAndReap`](crate::Step) the second uses the same memory, and has a word that the kernel clears as well.
//!
//! Neither Miri nor loom can run this: the child is a `clone3` into its parent's memory, and its last store is the kernel's.
//! So it is kept to what can be seen by reading. Each word has one writer at a time; a step number only grows until there is
//! an error number, and none of both changes after that; the first word changes once, from used to free, after all others.
//! `tests/stress.rs` and `tests/facts.rs` of `husk-spawn` ask the kernel whether it keeps its part.

use crate::sys::process::Usage;
use crate::sys::{Errno, Pid};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// See the top of this file.
pub struct Journal {
    in_use: AtomicU32,
    /// The same for a second process that shares the memory.
    in_use_too: AtomicU32,
    step: AtomicU32,
    errno: AtomicI32,
    forks: [AtomicI32; MOST_FORKS],
    /// One more than the status of the program that [`CloneAndReap`](crate::Step) waited for; 0 before.
    ended: AtomicI32,
    cpu_micros: AtomicU64,
    peak_kib: AtomicU64,
}

/// How often a list may go on in another process: once to join a time namespace, once to be in
/// another pid namespace.
pub const MOST_FORKS: usize = 2;

/// How a list ended, or where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The child began this step, the last it told of.
    At(usize),
    /// This step failed, for this reason.
    Failed(usize, Errno),
}

impl Journal {
    /// A journal for a child that is yet to be made.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            in_use: AtomicU32::new(0),
            in_use_too: AtomicU32::new(0),
            step: AtomicU32::new(0),
            errno: AtomicI32::new(0),
            forks: [const { AtomicI32::new(0) }; MOST_FORKS],
            ended: AtomicI32::new(0),
            cpu_micros: AtomicU64::new(0),
            peak_kib: AtomicU64::new(0),
        }
    }

    /// The word that the kernel clears, for `clone_args::child_tid`.
    #[must_use]
    pub const fn in_use(&self) -> &AtomicU32 {
        &self.in_use
    }

    /// The word of a second process that shares the memory.
    pub(crate) const fn in_use_too(&self) -> &AtomicU32 {
        &self.in_use_too
    }

    /// A word that is 1 until the kernel clears it, for `FUTEX_WAIT`, if there is one.
    #[must_use]
    pub fn still_in_use(&self) -> Option<&AtomicU32> {
        // Acquire: what the child wrote before it left is seen. The second word is set before the first is cleared.
        [&self.in_use, &self.in_use_too].into_iter().find(|word| word.load(Ordering::Acquire) != 0)
    }

    /// Whether the child has execed or exited, and so no longer uses this memory.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.still_in_use().is_none()
    }

    /// How far the child came. Final once it [is released](Self::is_released).
    #[must_use]
    pub fn progress(&self) -> Progress {
        // Before the step: a child that has failed begins no other, so that is the one that failed.
        let errno = self.errno.load(Ordering::Acquire);
        let step = usize::try_from(self.step.load(Ordering::Acquire)).unwrap_or(usize::MAX);
        match errno {
            0 => Progress::At(step),
            errno => Progress::Failed(step, Errno::from_raw_os_error(errno)),
        }
    }

    /// The process that the list went on in after it had gone on in `before` others. Final for a
    /// process once that has ended.
    #[must_use]
    pub fn forked(&self, before: usize) -> Option<Pid> {
        Pid::from_raw(self.forks.get(before)?.load(Ordering::Acquire))
    }

    /// How the program ended that [`CloneAndReap`](crate::Step) waited for, as wait(2) has it, and what it
    /// used.
    #[must_use]
    pub fn ended(&self) -> Option<(i32, Usage)> {
        let status = self.ended.load(Ordering::Acquire).checked_sub(1).filter(|status| *status >= 0)?;
        let cpu_micros = self.cpu_micros.load(Ordering::Relaxed);
        Some((status, Usage { cpu_micros, peak_kib: self.peak_kib.load(Ordering::Relaxed) }))
    }

    pub(crate) fn end(&self, status: i32, usage: Usage) {
        self.cpu_micros.store(usage.cpu_micros, Ordering::Relaxed);
        self.peak_kib.store(usage.peak_kib, Ordering::Relaxed);
        self.ended.store(status.wrapping_add(1), Ordering::Release);
    }

    /// The word for the pid of the next process.
    pub(crate) fn next_fork(&self) -> Option<&AtomicI32> {
        self.forks.iter().find(|pid| pid.load(Ordering::Acquire) == 0)
    }

    /// Marks the memory as used, just before the child is made.
    pub fn occupy(&self) {
        self.in_use.store(1, Ordering::Release);
    }

    /// Marks it as unused again, if the child could not be made.
    pub fn abandon(&self) {
        self.in_use.store(0, Ordering::Release);
    }

    pub(crate) fn begin(&self, step: usize) {
        self.step.store(u32::try_from(step).unwrap_or(u32::MAX), Ordering::Release);
    }

    /// The step that the child is at, for itself.
    pub(crate) fn step(&self) -> u32 {
        self.step.load(Ordering::Relaxed)
    }

    pub(crate) fn fail(&self, errno: Errno) {
        self.errno.store(errno.raw_os_error(), Ordering::Release);
    }
}

impl Default for Journal {
    fn default() -> Self {
        Self::new()
    }
}
