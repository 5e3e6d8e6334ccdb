//! What a process may use, and how it is scheduled.

use crate::Result;
use crate::raw::{self, Numeric, numbers};

pub use rustix::process::{Resource, Rlimit, setpriority_process, setrlimit};

/// `struct sched_attr`, first version: a scheduling policy with its parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SchedAttr {
    size: u32,
    /// `SCHED_*`.
    pub policy: u32,
    /// `SCHED_FLAG_*`.
    pub flags: u64,
    /// For the ordinary policies, -20 to 19.
    pub nice: i32,
    /// For the real-time policies, 1 to 99.
    pub priority: u32,
    /// For `SCHED_DEADLINE`, in nanoseconds.
    pub runtime: u64,
    /// For `SCHED_DEADLINE`, in nanoseconds.
    pub deadline: u64,
    /// For `SCHED_DEADLINE`, in nanoseconds.
    pub period: u64,
}

/// `sched_setattr` for the calling thread.
///
/// # Errors
///
/// See sched_setattr(2).
pub fn sched_setattr(attr: &SchedAttr) -> Result {
    #[expect(clippy::cast_possible_truncation, reason = "48 bytes")]
    let attr = SchedAttr { size: size_of::<SchedAttr>() as u32, ..*attr };
    raw::sched_setattr(&attr)
}

/// `sched_setaffinity` for the calling thread: bit `n` of word `n / 64` stands for CPU `n`. A mask
/// of any length, so that machines with more than 1024 CPUs are no exception.
///
/// # Errors
///
/// `EINVAL` if no CPU of the mask may be used.
pub fn sched_setaffinity(mask: &[u64]) -> Result {
    raw::sched_setaffinity(mask)
}

/// `IOPRIO_WHO_PROCESS`, which linux-raw-sys does not export.
const IOPRIO_WHO_PROCESS: usize = 1;

/// `ioprio_set` for the calling thread: `class` 1 to 3 in the upper bits, `level` 0 to 7 below.
///
/// # Errors
///
/// See ioprio_set(2).
pub fn ioprio_set(class: u8, level: u8) -> Result {
    let value = (usize::from(class) << 13) | usize::from(level);
    numbers(Numeric::IoprioSet, [IOPRIO_WHO_PROCESS, 0, value]).map(drop)
}
