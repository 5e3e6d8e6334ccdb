//! `bpf`: the few commands that a device filter of a cgroup needs. For the parent; no child calls it.
//!
//! # Safety
//!
//! Every command is handed an `Attr`, which is longer than any kernel's `union bpf_attr` and zero but
//! for what is put there: a kernel reads and writes as many bytes as it is told there are, or as many
//! as it knows, whichever is less, except that `BPF_PROG_QUERY` of Linux 6.17 to 7.1 writes at a fixed
//! place without looking at the length. Addresses that are put there are those of what the function
//! has borrowed, for as long as the call lasts, with the length that it has. Descriptors that a
//! command returns are new and nobody else's.

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
pub struct Instruction {
    /// What it does.
    pub code: u8,
    /// The register written to in the lower half, the one read from in the upper.
    pub registers: u8,
    /// How far it jumps, or where in memory it reads.
    pub offset: i16,
    /// Its number.
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
/// `BPF_CGROUP_DEVICE`, where such a program is attached.
const CGROUP_DEVICE: u32 = 6;
/// `BPF_F_ALLOW_MULTI`: beside others, and all of them must allow.
const ALLOW_MULTI: u32 = 1 << 1;
/// `BPF_F_REPLACE`: in place of one of them.
const REPLACE: u32 = 1 << 2;

/// `union bpf_attr`, with room for what newer kernels append. (184 bytes in Linux 6.18. Kernels take
/// a longer one if what they do not know is zero.)
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
    // SAFETY: the kernel reads and writes an `Attr`; what addresses are in it, each caller below says.
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
    // SAFETY: the kernel has just made this descriptor for us. It is not -1, being no error.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// `BPF_PROG_LOAD`: a program that decides about devices. What the verifier has to say goes to `log`,
/// unless that is empty.
///
/// # Errors
///
/// `EPERM` without the privilege, `EINVAL` or `EACCES` if the verifier refuses it.
pub fn prog_load_cgroup_device(program: &[Instruction], license: &CStr, log: &mut [u8]) -> Result<OwnedFd> {
    let mut attr = Attr::new();
    attr.word(0, CGROUP_DEVICE_PROGRAM);
    attr.word(4, length(program)?);
    // Read by the kernel: as many instructions as said above.
    attr.address(8, program.as_ptr().addr());
    // Read by the kernel up to its NUL.
    attr.address(16, license.as_ptr().addr());
    if !log.is_empty() {
        attr.word(24, 1);
        attr.word(28, length(log)?);
        // Written by the kernel: no more bytes than said above.
        attr.address(32, log.as_mut_ptr().addr());
    }
    owned(bpf(Command::Load, &mut attr)?)
}

/// `BPF_PROG_ATTACH` with `BPF_F_ALLOW_MULTI`: `program` decides about the devices of the cgroup and
/// of those below it, with all others that are attached there; in place of `old`, if that is given.
///
/// # Errors
///
/// `EPERM` if a cgroup above has one that allows no others, `ENOENT` if `old` is not attached, `E2BIG`
/// beyond 64.
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

/// `BPF_PROG_DETACH`.
///
/// # Errors
///
/// `ENOENT` if it is not attached there.
pub fn prog_detach_cgroup_device(cgroup: &impl AsFd, program: &impl AsFd) -> Result {
    let mut attr = Attr::new();
    attr.word(0, number(cgroup));
    attr.word(4, number(program));
    attr.word(8, CGROUP_DEVICE);
    bpf(Command::Detach, &mut attr).map(drop)
}

/// `BPF_PROG_QUERY`: the ids of the programs that are attached to this very cgroup, as many as there
/// is room for. Returns how many those are.
///
/// # Errors
///
/// `ENOSPC` if there are more than `ids` has room for.
pub fn prog_query_cgroup_device(cgroup: &impl AsFd, ids: &mut [u32]) -> Result<usize> {
    let mut attr = Attr::new();
    attr.word(0, number(cgroup));
    attr.word(4, CGROUP_DEVICE);
    // Written by the kernel: no more numbers than said in the next line.
    attr.address(16, ids.as_mut_ptr().addr());
    attr.word(24, length(ids)?);
    bpf(Command::Query, &mut attr)?;
    Ok(usize::try_from(attr.read(24)).unwrap_or(usize::MAX).min(ids.len()))
}

/// `BPF_PROG_GET_FD_BY_ID`.
///
/// # Errors
///
/// `ENOENT` if there is none any more, `EPERM` or `EACCES` if it is not for us to see.
pub fn prog_get_fd_by_id(id: u32) -> Result<OwnedFd> {
    let mut attr = Attr::new();
    attr.word(0, id);
    owned(bpf(Command::FdById, &mut attr)?)
}
