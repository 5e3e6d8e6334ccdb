//! A program as the kernel takes it, and what one of its instructions means.

use crate::Flags;

/// The longest program that the kernel takes (`BPF_MAXINSNS`).
pub const MAX_INSTRUCTIONS: usize = 4096;

/// A filter for seccomp(2), `SECCOMP_SET_MODE_FILTER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// What the kernel runs for every call.
    pub instructions: Vec<Instruction>,
    /// How it is to be installed.
    pub flags: Flags,
}

impl Program {
    /// Whether installing it returns a listener that somebody must be given.
    #[must_use]
    pub const fn notifies(&self) -> bool {
        self.flags.contains(Flags::NEW_LISTENER)
    }
}

/// `struct sock_filter`, field by field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    /// What to do, one of [`code`].
    pub code: u16,
    /// How many instructions to skip if so.
    pub jt: u8,
    /// How many instructions to skip if not.
    pub jf: u8,
    /// The operand.
    pub k: u32,
}

/// The instructions that are used: those that `seccomp_is_const_allow` of the kernel follows, which
/// runs a program once for every number when it is installed, to know the calls that are always
/// allowed. `A` is the one register.
pub mod code {
    /// `A` is the word at offset `k` of `struct seccomp_data` (`BPF_LD | BPF_W | BPF_ABS`).
    pub const LOAD: u16 = 0x20;
    /// `A` keeps the bits of `k` (`BPF_ALU | BPF_AND | BPF_K`).
    pub const AND: u16 = 0x54;
    /// Skips `k` instructions (`BPF_JMP | BPF_JA`).
    pub const JUMP: u16 = 0x05;
    /// Is `A` equal to `k`? (`BPF_JMP | BPF_JEQ | BPF_K`).
    pub const EQUAL: u16 = 0x15;
    /// Is `A` greater than `k`? (`BPF_JMP | BPF_JGT | BPF_K`).
    pub const GREATER: u16 = 0x25;
    /// Is `A` at least `k`? (`BPF_JMP | BPF_JGE | BPF_K`).
    pub const AT_LEAST: u16 = 0x35;
    /// Has `A` any bit of `k`? (`BPF_JMP | BPF_JSET | BPF_K`).
    pub const ANY_BIT: u16 = 0x45;
    /// The answer is `k` (`BPF_RET | BPF_K`).
    pub const RETURN: u16 = 0x06;
}

/// Where things are in `struct seccomp_data`.
pub(crate) mod offset {
    pub(crate) const NUMBER: u32 = 0;
    pub(crate) const ARCH: u32 = 4;

    /// The lower half of an argument. Both architectures husk runs on are little-endian.
    pub(crate) const fn low(argument: u8) -> u32 {
        16 + 8 * argument as u32
    }

    /// The upper half.
    pub(crate) const fn high(argument: u8) -> u32 {
        low(argument) + 4
    }
}
