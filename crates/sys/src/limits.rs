//! What a process may use, and how it is scheduled.

use crate::raw::{self, KernelSchedAttr, Numeric, numbers};
use crate::{Pid, Result};

pub use rustix::process::{Resource, Rlimit, getrlimit, setpriority_process, setrlimit};

/// A scheduling policy with its parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedAttr {
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

/// `sched_setattr` for a thread, or the calling one.
///
/// # Errors
///
/// See sched_setattr(2).
pub fn sched_setattr(pid: Option<Pid>, attr: &SchedAttr) -> Result {
    let SchedAttr { policy, flags, nice, priority, runtime, deadline, period } = *attr;
    #[expect(clippy::cast_possible_truncation, reason = "48 bytes")]
    let size = size_of::<KernelSchedAttr>() as u32;
    let attr = KernelSchedAttr { size, policy, flags, nice, priority, runtime, deadline, period };
    raw::sched_setattr(pid, &attr)
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

/// `set_mempolicy` for the calling thread: `MPOL_*` with its flags, and a bit for each node as in
/// [`sched_setaffinity`].
///
/// # Errors
///
/// `EINVAL` if the mode does not go with the nodes or the machine has none of them.
pub fn set_mempolicy(mode: u32, nodes: &[u64]) -> Result {
    raw::set_mempolicy(mode, nodes)
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
