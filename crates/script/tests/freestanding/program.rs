//! Runs the step loop without any library: no std, no alloc, no libc, and a panic that does not link.
//!
//! `../freestanding.rs` builds and runs this. It prints hello and executes a shell that exits with 42.
//!
//! # Safety
//!
//! The kernel enters at `_start`, with a stack that is aligned as `main` requires before a call.

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
    // `black_box` hides the steps from the compiler, which would otherwise omit the code of all others.
    let journal = Journal::new();
    let script =
        Script { steps: black_box(&steps), journal: &journal, channel: None, times: None, unneeded: &[] };
    // SAFETY: (1) The process has one thread, and runs nothing except `run`, which receives the proof and never
    // returns. It has execed and not been cloned since, so it cannot change the state of a parent. (2) It has
    // its own descriptor table, and drops no value that closes a descriptor. (3) The proof lies on its own stack, and
    // it shares its memory with no other process.
    let child = unsafe { InChild::new() };
    run(&child, &script)
}

/// Sets memory. The compiler assumes a few such functions even without a library (see the documentation of `core`);
/// for arrays it calls only these two.
///
/// # Safety
///
/// `to` is valid for writes of `count` bytes.
// SAFETY: this program links no other `memset`, and this one has the type that the compiler assumes.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, count: usize) -> *mut u8 {
    for index in 0..count {
        // The write is volatile, because otherwise the compiler would turn the loop into a call of `memset`.
        // SAFETY: `index` is less than `count`, and the caller promises that this range is valid for writes.
        unsafe { to.add(index).write_volatile(byte as u8) };
    }
    to
}

/// Copies memory, see `memset`.
///
/// # Safety
///
/// `from` is valid for reads and `to` for writes of `count` bytes, and they do not overlap.
// SAFETY: this program links no other `memcpy`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    for index in 0..count {
        // Volatile as in `memset`.
        // SAFETY: `index` is less than `count`. The caller promises that both ranges are valid and do not overlap.
        unsafe { to.add(index).write_volatile(from.add(index).read()) };
    }
    to
}

/// Handles every panic. If a panic is reachable, the program does not link.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    // SAFETY: no library defines this function, so a program that declares and calls it does not link.
    unsafe extern "C" {
        fn a_panic_can_be_reached() -> !;
    }
    // SAFETY: a program that still contains this call does not link, so it is never made.
    unsafe { a_panic_can_be_reached() }
}
