//! The loop without any library at all: no std, no alloc, no libc, and a panic that does not link.
//!
//! `../freestanding.rs` builds and runs this. It says hello and becomes a shell that ends with 42.
//!
//! # Safety
//!
//! The kernel enters at `_start`, with a stack that is aligned as `main` wants it before a call.

#![no_std]
#![no_main]

use core::arch::global_asm;
use core::hint::black_box;
use core::panic::PanicInfo;
use husk_script::sys::clone::InChild;
use husk_script::sys::{CArray, CPtr, Fd};
use husk_script::{Journal, Script, Step, run};

#[cfg(target_arch = "x86_64")]
global_asm!(".globl _start", "_start:", "xor ebp, ebp", "call {main}", "ud2", main = sym main);
#[cfg(target_arch = "aarch64")]
global_asm!(".globl _start", "_start:", "mov x29, xzr", "bl {main}", "brk 1", main = sym main);

extern "C" fn main() -> ! {
    let argv = [c"sh".into(), c"-c".into(), c"exit $status".into(), CPtr::NULL];
    let envp = [c"status=42".into(), CPtr::NULL];
    let (Some(argv), Some(envp)) = (CArray::new(&argv), CArray::new(&envp)) else { loop {} };
    let steps = [
        Step::Write { fd: Fd::STDOUT.into(), bytes: b"hello\n" },
        Step::Chdir { path: c"/" },
        Step::Execve { path: c"/bin/sh", argv, envp },
    ];
    // Without the box the compiler would know which steps there are and leave out the others.
    let journal = Journal::new();
    let script =
        Script { steps: black_box(&steps), journal: &journal, channel: None, times: None, unneeded: &[] };
    // SAFETY: (1) The process has one thread, and runs nothing but `run`, which is handed the proof and never returns. It has
    // execed and not been cloned since, so there is no parent whose state it could change. (2) Its table of descriptors is
    // its own, and nothing in it closes one on drop. (3) The proof lies on its own stack, and it shares its memory with nobody.
    let child = unsafe { InChild::new() };
    run(&child, &script)
}

/// What the compiler takes for granted wherever there is no library (see the documentation of `core`), for
/// arrays: not more than the two that it asks for.
///
/// # Safety
///
/// `to` is valid for writes of `count` bytes.
// SAFETY: this program links no other `memset`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, count: usize) -> *mut u8 {
    for index in 0..count {
        // SAFETY: within what the caller vouches for. Volatile, or this loop would be a call of itself.
        unsafe { to.add(index).write_volatile(byte as u8) };
    }
    to
}

/// See `memset`.
///
/// # Safety
///
/// `from` is valid for reads and `to` for writes of `count` bytes, and they do not overlap.
// SAFETY: this program links no other `memcpy`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    for index in 0..count {
        // SAFETY: the caller vouches that both are valid for `count` bytes and do not overlap. Volatile as in `memset`.
        unsafe { to.add(index).write_volatile(from.add(index).read()) };
    }
    to
}

/// Every panic comes here, so if one can be reached, this cannot be linked.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    // SAFETY: nothing defines it, so a program that declares and calls it cannot be linked.
    unsafe extern "C" {
        fn a_panic_can_be_reached() -> !;
    }
    // SAFETY: a program in which this call remains cannot be linked, so it is never made.
    unsafe { a_panic_can_be_reached() }
}
