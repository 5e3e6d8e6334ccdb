//! What the child leaves behind for a parent that shares its memory.
//!
//! Three words. The kernel clears the first when the child execs or exits (`CLONE_CHILD_CLEARTID`,
//! kernel/fork.c, `mm_release`): from then on the child uses neither its stack nor the list, and
//! both may be used again. The child writes the other two, so a failure costs no descriptor and no
//! system call to report.

use crate::sys::Errno;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// See the top of this file.
pub struct Journal {
    in_use: AtomicU32,
    step: AtomicU32,
    errno: AtomicI32,
}

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
        Self { in_use: AtomicU32::new(0), step: AtomicU32::new(0), errno: AtomicI32::new(0) }
    }

    /// The word that the kernel clears, for `clone_args::child_tid` and for `FUTEX_WAIT`.
    #[must_use]
    pub const fn in_use(&self) -> &AtomicU32 {
        &self.in_use
    }

    /// Whether the child has execed or exited, and so no longer uses this memory.
    #[must_use]
    pub fn is_released(&self) -> bool {
        // Acquire: what the child wrote before it left is seen.
        self.in_use.load(Ordering::Acquire) == 0
    }

    /// How far the child came. Final once it [is released](Self::is_released).
    #[must_use]
    pub fn progress(&self) -> Progress {
        let step = usize::try_from(self.step.load(Ordering::Acquire)).unwrap_or(usize::MAX);
        match self.errno.load(Ordering::Acquire) {
            0 => Progress::At(step),
            errno => Progress::Failed(step, Errno::from_raw_os_error(errno)),
        }
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

    pub(crate) fn fail(&self, errno: Errno) {
        self.errno.store(errno.raw_os_error(), Ordering::Release);
    }
}

impl Default for Journal {
    fn default() -> Self {
        Self::new()
    }
}
