//! What a process may use, and how it is scheduled.
//!
//! # Safety
//!
//! Structures passed to the kernel live for the call and carry their own size.

#![allow(unsafe_code, clippy::allow_attributes, reason = "raw system calls that rustix lacks")]

use crate::{Result, arch, check};
use linux_raw_sys::general::{__NR_ioprio_set, __NR_sched_setaffinity, __NR_sched_setattr};

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
    // SAFETY: the kernel reads as many bytes as the structure says it has.
    check(unsafe { arch::call(__NR_sched_setattr, [0, (&raw const attr).addr(), 0, 0, 0, 0]) }).map(drop)
}

/// `sched_setaffinity` for the calling thread: bit `n` of word `n / 64` stands for CPU `n`. A mask
/// of any length, so that machines with more than 1024 CPUs are no exception.
///
/// # Errors
///
/// `EINVAL` if no CPU of the mask may be used.
pub fn sched_setaffinity(mask: &[u64]) -> Result {
    // SAFETY: the kernel reads `size_of_val(mask)` bytes from `mask`.
    check(unsafe {
        arch::call(__NR_sched_setaffinity, [0, size_of_val(mask), mask.as_ptr().addr(), 0, 0, 0])
    })
    .map(drop)
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
    // SAFETY: numbers only.
    check(unsafe { arch::call(__NR_ioprio_set, [IOPRIO_WHO_PROCESS, 0, value, 0, 0, 0]) }).map(drop)
}
