//! System calls on aarch64. Compiled only where that target is installed, and tried by hand.
//!
//! # Safety
//!
//! [`call`] does whatever the kernel does with six numbers. Its callers promise that every number
//! the kernel takes for an address is one it may read or write as that call does.
//!
//! [`clone_call`] comes back once in the parent and, when the kernel was given a stack, begins a
//! second life there: the child has the parent's registers, except for the stack pointer, and goes
//! straight into `entry`, which never returns. Its callers promise that the stack is the child's
//! alone and that `entry` and what it is handed stay valid for as long as the child runs.
//!
//! [`vfork_call`] comes back once, in the child, which has the parent's stack meanwhile. The parent leaves for
//! `entry` when the child no longer uses it, and uses nothing of what lies there.

#![allow(unsafe_code, clippy::allow_attributes, reason = "system call instructions")]

use core::arch::asm;
use core::ffi::c_void;

/// Where a child begins, with the argument it was given.
pub(crate) type Entry = extern "C" fn(*const c_void) -> !;

/// Where a parent goes on, with the argument it was given and its child's pid.
pub(crate) type Waiter = extern "C" fn(*const c_void, i32) -> !;

/// Makes a system call of up to six arguments.
///
/// # Safety
///
/// What the kernel takes for an address must be one that it may use so.
#[inline]
pub(crate) unsafe fn call(number: u32, args: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = args;
    let returned;
    // SAFETY: `svc` overwrites x0 only; what else it touches is what the caller promised.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number as usize,
            inlateout("x0") a => returned,
            in("x1") b,
            in("x2") c,
            in("x3") d,
            in("x4") e,
            in("x5") f,
            options(nostack),
        );
    }
    returned
}

/// Ends the process by an instruction that there is not, for when no call can.
pub(crate) fn trap() -> ! {
    // SAFETY: it does not come back: the kernel answers with SIGILL, which in a child has no handler, and
    // which kills although it is blocked.
    unsafe { asm!("udf #0", options(noreturn, nostack)) }
}

/// The call by which somebody leaves for `entry`, unless a comparison of what is returned with 0 holds: with that and the
/// argument. Frame pointer and link register are cleared, which ends a backtrace.
macro_rules! call_and_leave {
    ($unless:literal, $number:expr, $words:expr, $entry:expr, $argument:expr) => {{
        let [a, b, c, d, e] = $words;
        let returned;
        asm!(
            "svc 0",
            "cmp x0, #0",
            concat!("b.", $unless, " 2f"),
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x1, x0",
            "mov x0, {argument}",
            "br {entry}",
            "2:",
            entry = in(reg) $entry,
            argument = in(reg) $argument,
            in("x8") $number as usize,
            inlateout("x0") a => returned,
            in("x1") b,
            in("x2") c,
            in("x3") d,
            in("x4") e,
        );
        returned
    }};
}

/// Makes a system call that starts a child, and has the child call `entry(argument)`.
///
/// # Safety
///
/// See the top of this file.
#[inline]
pub(crate) unsafe fn clone_call(
    number: u32,
    words: [usize; 5],
    entry: Entry,
    argument: *const c_void,
) -> isize {
    // SAFETY: in the parent this is `call`. The child arrives with 0 and every other register as the parent had it, so
    // `entry` and `argument` are still in theirs.
    unsafe { call_and_leave!("ne", number, words, entry, argument) }
}

/// Makes a system call that suspends the process until a child no longer uses its memory. The child goes on here;
/// then the process calls `entry(argument, pid)`. What is returned is 0 to the child, or why there is none.
///
/// # Safety
///
/// See the top of this file.
#[inline]
pub(crate) unsafe fn vfork_call(
    number: u32,
    words: [usize; 5],
    entry: Waiter,
    argument: *const c_void,
) -> isize {
    // SAFETY: in the child, and without one, this is `call`. The parent arrives with a pid and every other register as it
    // was, so `entry` and `argument` are still in theirs. What the child wrote to the stack it does not read.
    unsafe { call_and_leave!("le", number, words, entry, argument) }
}
