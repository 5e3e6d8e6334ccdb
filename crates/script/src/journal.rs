//! Records a child's progress for a parent that shares its memory.
//!
//! The journal is a few words. The kernel clears the first when the child execs or exits (`CLONE_CHILD_CLEARTID`,
//! kernel/fork.c, `mm_release`). From then on the child uses neither its stack nor the list, and the parent may reuse
//! both. The child stores its step and error number, so reporting a failure takes no descriptor and no system call.
//!
//! With [`Step::CloneParent`](crate::Step) another process continues the list, and the kernel writes its pid here.
//! With [`Step::CloneAndReap`](crate::Step) the first process records how the second ended. These processes have
//! memory of their own, so the journal of such a list lies in a shared mapping. With
//! [`Step::VforkAndReap`](crate::Step) the second process uses the same memory, and the kernel clears a second word
//! for it. With [`Step::NewNet`](crate::Step) a second thread uses the memory too, and has a word of its own.
//!
//! Neither Miri nor loom can run this: the child is a `clone3` into its parent's memory, and the kernel makes the last
//! store. Reading the code must therefore suffice to check it. Each word has one writer at a time. The step number
//! only grows until there is an error number; then neither changes. The first word changes once, from used to free,
//! after all others. `tests/stress.rs` and `tests/facts.rs` of `husk-spawn` test the kernel's part.

use crate::sys::process::Usage;
use crate::sys::{Errno, Fd, Pid, Result};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

/// The progress and the result of a child.
pub struct Journal {
    in_use: AtomicU32,
    /// Like `in_use`, for a second process that shares the memory.
    in_use_too: AtomicU32,
    /// Like `in_use`, for a second thread.
    thread: AtomicU32,
    /// The descriptor of the thread's network namespace, or a negative error number.
    net: AtomicI32,
    step: AtomicU32,
    errno: AtomicI32,
    forks: [AtomicI32; MOST_FORKS],
    /// The status of the program that [`CloneAndReap`](crate::Step) waited for, plus one; 0 before it has ended.
    ended: AtomicI32,
    cpu_micros: AtomicU64,
    peak_kib: AtomicU64,
    /// Whether the file system of the program was full when it had failed.
    is_full: AtomicBool,
}

/// How many times a new process may continue a list: once to join a time namespace, once to enter another pid
/// namespace.
pub const MOST_FORKS: usize = 2;

/// The values of [`Journal::net`] before and after the second thread has begun. They are not error numbers.
const WAITS: i32 = i32::MIN;
const BEGUN: i32 = i32::MIN + 1;

/// How far a list has come, or where it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The child has begun this step, and recorded no later one.
    At(usize),
    /// This step failed with this error.
    Failed(usize, Errno),
}

impl Journal {
    /// Creates a journal for a child that does not exist yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            in_use: AtomicU32::new(0),
            in_use_too: AtomicU32::new(0),
            thread: AtomicU32::new(0),
            net: AtomicI32::new(WAITS),
            step: AtomicU32::new(0),
            errno: AtomicI32::new(0),
            forks: [const { AtomicI32::new(0) }; MOST_FORKS],
            ended: AtomicI32::new(0),
            cpu_micros: AtomicU64::new(0),
            peak_kib: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
        }
    }

    /// Returns the word that the kernel clears, for `clone_args::child_tid`.
    #[must_use]
    pub const fn in_use(&self) -> &AtomicU32 {
        &self.in_use
    }

    /// Returns the word of a second process that shares the memory.
    pub(crate) const fn in_use_too(&self) -> &AtomicU32 {
        &self.in_use_too
    }

    /// Returns the word of a second thread.
    pub(crate) const fn thread(&self) -> &AtomicU32 {
        &self.thread
    }

    /// Records that the second thread runs.
    pub(crate) fn begin_net(&self) {
        self.net.store(BEGUN, Ordering::Release);
    }

    /// Returns whether the second thread still waits for a processor.
    pub(crate) fn awaits_net(&self) -> bool {
        self.net.load(Ordering::Acquire) == WAITS
    }

    /// Records the network namespace that the second thread has created.
    pub(crate) fn found_net(&self, net: Result<Fd>) {
        let word = net.map_or_else(|errno| errno.raw_os_error().wrapping_neg(), Fd::number);
        self.net.store(word, Ordering::Release);
    }

    /// Returns the network namespace of the second thread, which has ended.
    pub(crate) fn net(&self) -> Result<Fd> {
        match self.net.load(Ordering::Acquire) {
            // The kernel's error range, outside of which the conversion panics.
            errno @ -4095..=-1 => Err(Errno::from_raw_os_error(errno.wrapping_neg())),
            word => Fd::new(word).ok_or(Errno::BADF),
        }
    }

    /// Returns a word for `FUTEX_WAIT` that is 1 until the kernel clears it. Returns `None` if the memory is unused.
    #[must_use]
    pub fn still_in_use(&self) -> Option<&AtomicU32> {
        // Acquire makes the child's earlier writes visible. The other words are set before the first is cleared.
        [&self.in_use, &self.in_use_too, &self.thread]
            .into_iter()
            .find(|word| word.load(Ordering::Acquire) != 0)
    }

    /// Returns whether the child has execed or exited, and so no longer uses this memory.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.still_in_use().is_none()
    }

    /// Returns how far the child came. Final once the journal [is released](Self::is_released).
    #[must_use]
    pub fn progress(&self) -> Progress {
        // Loads the error before the step. A child that has failed begins no other step, so the step loaded next is the
        // failed one.
        let errno = self.errno.load(Ordering::Acquire);
        let step = usize::try_from(self.step.load(Ordering::Acquire)).unwrap_or(usize::MAX);
        match errno {
            0 => Progress::At(step),
            errno => Progress::Failed(step, Errno::from_raw_os_error(errno)),
        }
    }

    /// Returns the process that continued the list after `before` others had. Final once the process that would start
    /// it has ended.
    #[must_use]
    pub fn forked(&self, before: usize) -> Option<Pid> {
        Pid::from_raw(self.forks.get(before)?.load(Ordering::Acquire))
    }

    /// Returns the wait(2) status and the resource usage of the program that [`CloneAndReap`](crate::Step) waited for.
    /// `None` if it has not ended.
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

    /// Returns whether the program has failed with a full file system. Final once the first process has ended.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    pub(crate) fn fill(&self) {
        self.is_full.store(true, Ordering::Release);
    }

    /// Returns the word for the pid of the next process.
    pub(crate) fn next_fork(&self) -> Option<&AtomicI32> {
        self.forks.iter().find(|pid| pid.load(Ordering::Acquire) == 0)
    }

    /// Marks the memory as used, just before the child is created.
    pub fn occupy(&self) {
        self.in_use.store(1, Ordering::Release);
    }

    /// Marks the memory as unused again, if the child could not be created.
    pub fn abandon(&self) {
        self.in_use.store(0, Ordering::Release);
    }

    pub(crate) fn begin(&self, step: usize) {
        self.step.store(u32::try_from(step).unwrap_or(u32::MAX), Ordering::Release);
    }

    /// Returns the current step, for the child itself.
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
