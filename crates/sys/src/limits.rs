//! Sets resource limits and scheduling.

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
    /// For `SCHED_DEADLINE`: the CPU time in each period, in nanoseconds.
    pub runtime: u64,
    /// For `SCHED_DEADLINE`: the time from the start of a period in which the thread gets it, in nanoseconds.
    pub deadline: u64,
    /// For `SCHED_DEADLINE`: the length of a period in nanoseconds; 0 means `deadline`.
    pub period: u64,
}

/// Sets the scheduling of a thread, or of the calling thread, with `sched_setattr`.
pub fn sched_setattr(pid: Option<Pid>, attr: &SchedAttr) -> Result {
    let SchedAttr { policy, flags, nice, priority, runtime, deadline, period } = *attr;
    #[expect(clippy::cast_possible_truncation, reason = "48 bytes")]
    let size = size_of::<KernelSchedAttr>() as u32;
    let attr = KernelSchedAttr { size, policy, flags, nice, priority, runtime, deadline, period };
    raw::sched_setattr(pid, &attr)
}

/// Sets the CPUs of the calling thread, with `sched_setaffinity`. Bit `n % 64` of word `n / 64` stands for CPU `n`.
/// The mask may have any length, to support machines with more than 1024 CPUs.
///
/// # Errors
///
/// `EINVAL` if the caller may use no CPU of the mask.
pub fn sched_setaffinity(mask: &[u64]) -> Result {
    raw::sched_setaffinity(mask)
}

/// Sets the memory policy of the calling thread, with `set_mempolicy`. `mode` is `MPOL_*` with its flags; `nodes` has
/// a bit for each node, as in [`sched_setaffinity`].
///
/// # Errors
///
/// `EINVAL` if the mode does not fit the nodes, or the machine has none of them.
pub fn set_mempolicy(mode: u32, nodes: &[u64]) -> Result {
    raw::set_mempolicy(mode, nodes)
}

/// `IOPRIO_WHO_PROCESS`, which linux-raw-sys does not export.
const IOPRIO_WHO_PROCESS: usize = 1;

/// Sets the I/O priority of the calling thread, with `ioprio_set`. `class` is 1 to 3, `level` is 0 to 7.
pub fn ioprio_set(class: u8, level: u8) -> Result {
    let value = (usize::from(class) << 13) | usize::from(level);
    numbers(Numeric::IoprioSet, [IOPRIO_WHO_PROCESS, 0, value]).map(drop)
}
