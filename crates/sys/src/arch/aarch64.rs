//! Makes system calls on aarch64. `make integration-guest ARCH=aarch64` tests it in an emulated machine.
//!
//! # Safety
//!
//! [`call`] does whatever the kernel does with six numbers. Its callers promise that every number the kernel
//! takes as an address refers to memory that this call may read or write.
//!
//! [`clone_call`] returns once in the parent. If the kernel received a stack, a child starts on it, with the parent's
//! registers except for the stack pointer. The child enters `entry`, which never returns. Callers promise that only
//! the child uses the stack, and that `entry` and its argument stay valid while the child runs.
//!
//! [`vfork_call`] returns once, in the child, which uses the parent's stack. When the child no longer uses it, the
//! parent enters `entry` and uses nothing on that stack.

#![allow(unsafe_code, clippy::allow_attributes, reason = "system call instructions")]

use core::arch::asm;
use core::ffi::c_void;

/// The function in which a child starts, with its argument.
pub(crate) type EntryPoint = extern "C" fn(*const c_void) -> !;

/// The function in which a parent continues, with its argument and its child's pid.
pub(crate) type WaiterFn = extern "C" fn(*const c_void, i32) -> !;

/// Makes a system call of up to six arguments.
///
/// # Safety
///
/// Every number that the kernel takes as an address must refer to memory that this call may read or write.
#[inline]
pub(crate) unsafe fn call(number: u32, args: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = args;
    let returned;
    // SAFETY: `svc` overwrites only x0. The caller's promise covers the rest.
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

/// Ends the process with an undefined instruction, for when no system call can.
pub(crate) fn trap() -> ! {
    // SAFETY: this does not return. The kernel sends SIGILL, for which a child has no handler, and which kills even if
    // it is blocked.
    unsafe { asm!("udf #0", options(noreturn, nostack)) }
}

/// Makes a system call, and then enters `entry` with the argument and the returned value. It does not enter `entry` if
/// `$unless`, a comparison of that value with 0, holds. Frame pointer and link register are cleared, which ends a
/// backtrace.
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
    entry: EntryPoint,
    argument: *const c_void,
) -> isize {
    // SAFETY: in the parent this is `call`. The child arrives with 0 and otherwise the parent's registers, so `entry`
    // and `argument` are intact.
    unsafe { call_and_leave!("ne", number, words, entry, argument) }
}

/// Makes a system call that suspends the process until a child no longer uses its memory. The child continues here;
/// then the process calls `entry(argument, pid)`. Returns 0 in the child, or an error if there is none.
///
/// # Safety
///
/// See the top of this file.
#[inline]
pub(crate) unsafe fn vfork_call(
    number: u32,
    words: [usize; 5],
    entry: WaiterFn,
    argument: *const c_void,
) -> isize {
    // SAFETY: in the child, and without one, this is `call`. The parent arrives with a pid and otherwise unchanged
    // registers, so `entry` and `argument` are intact. It reads nothing that the child wrote to the stack.
    unsafe { call_and_leave!("le", number, words, entry, argument) }
}
