//! The program for the kernel, and its instructions.

use crate::Flags;

/// The longest program that the kernel accepts (`BPF_MAXINSNS`).
pub const MAX_INSTRUCTIONS: usize = 4096;

/// A filter for seccomp(2), `SECCOMP_SET_MODE_FILTER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The instructions that the kernel runs for every call.
    pub instructions: Vec<Instruction>,
    /// The flags to install the filter with.
    pub flags: Flags,
}

impl Program {
    /// Returns whether installing the filter returns a listener, which a supervisor must receive.
    #[must_use]
    pub const fn notifies(&self) -> bool {
        self.flags.contains(Flags::NEW_LISTENER)
    }
}

/// One instruction; the fields are those of `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    /// The operation, one of [`code`].
    pub code: u16,
    /// How many instructions to skip if the condition is true.
    pub jt: u8,
    /// How many instructions to skip if the condition is false.
    pub jf: u8,
    /// The operand.
    pub k: u32,
}

/// The operations that programs use. `A` is the only register.
///
/// These are the operations that the kernel's `seccomp_is_const_allow` supports. It evaluates a new filter once
/// for every number, to find the calls that are always allowed.
pub mod code {
    /// Loads the word at offset `k` of `struct seccomp_data` into `A` (`BPF_LD | BPF_W | BPF_ABS`).
    pub const LOAD: u16 = 0x20;
    /// Clears the bits of `A` that are not in `k` (`BPF_ALU | BPF_AND | BPF_K`).
    pub const AND: u16 = 0x54;
    /// Skips `k` instructions (`BPF_JMP | BPF_JA`).
    pub const JUMP: u16 = 0x05;
    /// Tests whether `A` equals `k` (`BPF_JMP | BPF_JEQ | BPF_K`).
    pub const EQUAL: u16 = 0x15;
    /// Tests whether `A` is greater than `k` (`BPF_JMP | BPF_JGT | BPF_K`).
    pub const GREATER: u16 = 0x25;
    /// Tests whether `A` is at least `k` (`BPF_JMP | BPF_JGE | BPF_K`).
    pub const AT_LEAST: u16 = 0x35;
    /// Tests whether `A` has any bit of `k` (`BPF_JMP | BPF_JSET | BPF_K`).
    pub const ANY_BIT: u16 = 0x45;
    /// Returns `k` (`BPF_RET | BPF_K`).
    pub const RETURN: u16 = 0x06;
}

/// Offsets in `struct seccomp_data`.
pub(crate) mod offset {
    pub(crate) const NUMBER: u32 = 0;
    pub(crate) const ARCH: u32 = 4;

    /// Returns the offset of an argument's lower half. All architectures that husk runs on are little-endian.
    pub(crate) const fn low(argument: u8) -> u32 {
        16 + 8 * argument as u32
    }

    /// Returns the offset of an argument's upper half.
    pub(crate) const fn high(argument: u8) -> u32 {
        low(argument) + 4
    }
}
