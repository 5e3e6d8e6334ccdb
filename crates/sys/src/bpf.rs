//! Loads and attaches device filters of cgroups, with `bpf`. For the parent; no child calls it.
//!
//! # Safety
//!
//! Every command receives an `Attr`, which is longer than any kernel's `union bpf_attr` and zero except for the fields
//! that are set. A kernel reads and writes as many bytes as it is told or as it knows, whichever is less. Only
//! `BPF_PROG_QUERY` of Linux 6.17 to 7.1 ignores the length and writes at a fixed offset.
//!
//! The addresses in an `Attr` are those of data that the function borrows during the call, with its length. A
//! descriptor that a command returns is new and has no other owner.

#![allow(unsafe_code, clippy::allow_attributes, reason = "bpf takes a union of addresses and numbers")]

use crate::arch::call;
use crate::raw::check;
use crate::{Errno, Result};
use core::ffi::CStr;
use linux_raw_sys::general::__NR_bpf;
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// One instruction of an eBPF program (`struct bpf_insn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct EbpfInstruction {
    /// The operation.
    pub code: u8,
    /// The destination register in the lower half, the source register in the upper half.
    pub registers: u8,
    /// The distance of a jump, or the offset of a memory access.
    pub offset: i16,
    /// The constant operand.
    pub immediate: i32,
}

/// Commands about programs (linux/bpf.h, `enum bpf_cmd`, `BPF_PROG_*`).
#[derive(Clone, Copy)]
enum Command {
    Load = 5,
    Attach = 8,
    Detach = 9,
    FdById = 13,
    Query = 16,
}

/// `BPF_PROG_TYPE_CGROUP_DEVICE`.
const CGROUP_DEVICE_PROGRAM: u32 = 15;
/// `BPF_CGROUP_DEVICE`, the attach type of such a program.
const CGROUP_DEVICE: u32 = 6;
/// `BPF_F_ALLOW_MULTI`: attaches a program beside others, all of which must allow.
const ALLOW_MULTI: u32 = 1 << 1;
/// `BPF_F_REPLACE`: replaces one of them.
const REPLACE: u32 = 1 << 2;

/// `union bpf_attr`, with room for the fields of newer kernels (184 bytes in Linux 6.18). Kernels accept a longer one
/// if the fields they do not know are zero.
#[repr(C, align(8))]
struct Attr([u8; 256]);

impl Attr {
    const fn new() -> Self {
        Self([0; 256])
    }

    fn word(&mut self, offset: usize, value: u32) {
        if let Some(place) = self.0.get_mut(offset..).and_then(|rest| rest.first_chunk_mut()) {
            *place = value.to_ne_bytes();
        }
    }

    fn address(&mut self, offset: usize, value: usize) {
        if let Some(place) = self.0.get_mut(offset..).and_then(|rest| rest.first_chunk_mut()) {
            *place = (value as u64).to_ne_bytes();
        }
    }

    fn read(&self, offset: usize) -> u32 {
        self.0.get(offset..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }
}

fn bpf(command: Command, attr: &mut Attr) -> Result<usize> {
    let words = [command as usize, (&raw mut *attr).addr(), size_of::<Attr>(), 0, 0, 0];
    // SAFETY: the kernel reads and writes an `Attr`; each caller below justifies the addresses in it.
    check(unsafe { call(__NR_bpf, words) })
}

fn number(fd: &impl AsFd) -> u32 {
    fd.as_fd().as_raw_fd().unsigned_abs()
}

fn length<T>(slice: &[T]) -> Result<u32> {
    u32::try_from(slice.len()).map_err(|_| Errno::TOOBIG)
}

fn owned(returned: usize) -> Result<OwnedFd> {
    let number = i32::try_from(returned).map_err(|_| Errno::BADF)?;
    // SAFETY: the kernel has just created this descriptor for the caller. It is not -1, because it is not an error.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Loads a program that decides about devices, with `BPF_PROG_LOAD`. The verifier's messages go to `log`, unless that
/// is empty.
///
/// # Errors
///
/// `EPERM` without the privilege, `EINVAL` or `EACCES` if the verifier refuses the program.
pub fn prog_load_cgroup_device(
    program: &[EbpfInstruction],
    license: &CStr,
    log: &mut [u8],
) -> Result<OwnedFd> {
    let mut attr = Attr::new();
    attr.word(0, CGROUP_DEVICE_PROGRAM);
    attr.word(4, length(program)?);
    // The kernel reads as many instructions as stated above.
    attr.address(8, program.as_ptr().addr());
    // The kernel reads up to the NUL.
    attr.address(16, license.as_ptr().addr());
    if !log.is_empty() {
        attr.word(24, 1);
        attr.word(28, length(log)?);
        // The kernel writes no more bytes than stated above.
        attr.address(32, log.as_mut_ptr().addr());
    }
    owned(bpf(Command::Load, &mut attr)?)
}

/// Attaches `program` to a cgroup, with `BPF_PROG_ATTACH` and `BPF_F_ALLOW_MULTI`, and replaces `old` if given. The
/// program decides about devices in that cgroup and those below it, together with all other programs attached there.
///
/// # Errors
///
/// `EPERM` if an ancestor cgroup has a program that allows no others, `ENOENT` if `old` is not attached, `E2BIG` for
/// more than 64 programs.
pub fn prog_attach_cgroup_device(cgroup: &impl AsFd, program: &impl AsFd, old: Option<&OwnedFd>) -> Result {
    let mut attr = Attr::new();
    attr.word(0, number(cgroup));
    attr.word(4, number(program));
    attr.word(8, CGROUP_DEVICE);
    attr.word(12, ALLOW_MULTI);
    if let Some(old) = old {
        attr.word(12, ALLOW_MULTI | REPLACE);
        attr.word(16, number(old));
    }
    bpf(Command::Attach, &mut attr).map(drop)
}

/// Detaches a program from a cgroup, with `BPF_PROG_DETACH`.
///
/// # Errors
///
/// `ENOENT` if the program is not attached there.
pub fn prog_detach_cgroup_device(cgroup: &impl AsFd, program: &impl AsFd) -> Result {
    let mut attr = Attr::new();
    attr.word(0, number(cgroup));
    attr.word(4, number(program));
    attr.word(8, CGROUP_DEVICE);
    bpf(Command::Detach, &mut attr).map(drop)
}

/// Writes the ids of the programs that are attached to exactly this cgroup into `ids`, with `BPF_PROG_QUERY`. Returns
/// their number.
///
/// # Errors
///
/// `ENOSPC` if they do not fit into `ids`.
pub fn prog_query_cgroup_device(cgroup: &impl AsFd, ids: &mut [u32]) -> Result<usize> {
    let mut attr = Attr::new();
    attr.word(0, number(cgroup));
    attr.word(4, CGROUP_DEVICE);
    // The kernel writes no more numbers than the next line states.
    attr.address(16, ids.as_mut_ptr().addr());
    attr.word(24, length(ids)?);
    bpf(Command::Query, &mut attr)?;
    Ok(usize::try_from(attr.read(24)).unwrap_or(usize::MAX).min(ids.len()))
}

/// Opens a program by its id, with `BPF_PROG_GET_FD_BY_ID`.
///
/// # Errors
///
/// `ENOENT` if the program no longer exists, `EPERM` or `EACCES` if the caller may not see it.
pub fn prog_get_fd_by_id(id: u32) -> Result<OwnedFd> {
    let mut attr = Attr::new();
    attr.word(0, id);
    owned(bpf(Command::FdById, &mut attr)?)
}
