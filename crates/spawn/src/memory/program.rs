//! Has the running program come from another file with the same contents.
//!
//! # Safety
//!
//! [`run_from`] replaces the mappings of the program at their own addresses, each by one system call. Code and constants
//! come from the file, whose bytes are the same. Data is copied first, and the copy is then put in its place. Nothing
//! writes to the data in between, because the calls in between write to the stack only, and signals are blocked. The
//! kernel has checked that this process has one thread and shares its memory with no other process.

#![allow(unsafe_code, clippy::allow_attributes, reason = "replaces the mappings of the program")]

use core::ffi::c_void;
use core::ops::Range;
use core::ptr;
use husk_script::sys::elf::{Elf_Ehdr, Elf_Phdr, PF_R, PF_W, PF_X, PT_GNU_RELRO, PT_LOAD};
use husk_script::sys::memory::program_break;
use husk_script::sys::namespace::unshare_vm;
use husk_script::sys::signal::{SignalSet, rt_sigprocmask};
use rustix::fs::{Mode, OFlags, fstat, open, stat};
use rustix::io::{Errno, read, retry_on_intr};
use rustix::mm::{
    MapFlags, MprotectFlags, MremapFlags, ProtFlags, mmap, mmap_anonymous, mprotect, mremap_fixed,
};
use rustix::param::page_size;
use rustix::process::{PrctlMmMap, configure_virtual_memory_map};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

// SAFETY: the linker defines both symbols. Only the address of the second one is used.
unsafe extern "C" {
    /// The header of the program, or of the shared library that contains this code.
    #[link_name = "__ehdr_start"]
    static HEADER: Elf_Ehdr;
    /// The end of its static data.
    #[link_name = "_end"]
    static END: u8;
}

/// The number of the first field after the process's name in `/proc/PID/stat`.
const FIRST: usize = 3;

/// Returns the addresses of the program with its static data, in whole pages.
pub(crate) fn extent() -> Range<usize> {
    let (start, end) = (&raw const HEADER, &raw const END);
    start.addr()..end.addr().next_multiple_of(page_size())
}

/// Maps this program from `file`, its own file opened on another mount, and has `/proc/self/exe` refer to that one. Takes
/// a fifth of the time of an exec.
///
/// # Errors
///
/// `EINVAL` if `file` is another file, if the process has threads or shares its memory, or if the kernel was built without
/// CONFIG_CHECKPOINT_RESTORE. `EPERM` without CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE in the process's user namespace. The program
/// works after every error, but may come from either file.
pub fn run_from(file: impl AsFd) -> Result<(), Errno> {
    let file = file.as_fd();
    let (found, own) = (fstat(file)?, stat("/proc/self/exe")?);
    if (found.st_dev, found.st_ino) != (own.st_dev, own.st_ino) {
        return Err(Errno::INVAL);
    }
    unshare_vm()?;
    // A handler could write to the data meanwhile.
    let mask = rt_sigprocmask(SignalSet::FULL)?;
    let mapped = map_all(file);
    rt_sigprocmask(mask)?;
    mapped.and_then(|()| name(file))
}

fn map_all(file: BorrowedFd<'_>) -> Result<(), Errno> {
    let (headers, base) = headers();
    let constant = headers.iter().find(|header| header.p_type == PT_GNU_RELRO);
    let constant = constant.map_or(0..0, |header| pages(base, header.p_vaddr, header.p_memsz));
    for header in headers.iter().filter(|header| header.p_type == PT_LOAD && header.p_filesz > 0) {
        let pages = pages(base, header.p_vaddr, header.p_filesz);
        if header.p_flags & PF_W == 0 {
            map(file, header, &pages)?;
        } else {
            copy(&pages, &constant)?;
        }
    }
    Ok(())
}

/// Has `/proc/self/exe` refer to the file.
fn name(file: BorrowedFd<'_>) -> Result<(), Errno> {
    let told = || {
        let stat = open("/proc/self/stat", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        // At most 52 numbers of 20 digits and a name, which the kernel returns at once.
        let mut bytes = [0; 2048];
        let length = retry_on_intr(|| read(&stat, &mut bytes)).ok()?;
        let text = str::from_utf8(&bytes[..length]).ok()?;
        // The name of the process may contain anything.
        let (_, fields) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - FIRST)?.parse::<u64>().ok();
        // Repeats what the kernel has told (proc_pid_stat(5)), because the call sets everything.
        Some(PrctlMmMap {
            start_code: number(26)?,
            end_code: number(27)?,
            start_data: number(45)?,
            end_data: number(46)?,
            start_brk: number(47)?,
            brk: program_break() as u64,
            start_stack: number(28)?,
            arg_start: number(48)?,
            arg_end: number(49)?,
            env_start: number(50)?,
            env_end: number(51)?,
            auxv: ptr::null_mut(),
            auxv_size: 0,
            exe_fd: file.as_raw_fd(),
        })
    };
    let map = told().ok_or(Errno::INVAL)?;
    // SAFETY: only the file changes.
    unsafe { configure_virtual_memory_map(&map) }
}

/// Returns the program's headers, and what their addresses must be added to.
fn headers() -> (&'static [Elf_Phdr], usize) {
    const EXECUTABLE: u16 = 2;
    let start = &raw const HEADER;
    // SAFETY: see its declaration. Nothing writes to it.
    let header = unsafe { &*start };
    let base = if header.e_type == EXECUTABLE { 0 } else { start.addr() };
    // SAFETY: the headers are part of the first mapping, as the kernel has passed their address to the program.
    let first = unsafe { start.byte_add(header.e_phoff) }.cast::<Elf_Phdr>();
    // SAFETY: there are as many as the file says, and nothing writes to them.
    (unsafe { core::slice::from_raw_parts(first, usize::from(header.e_phnum)) }, base)
}

fn pages(base: usize, address: usize, size: usize) -> Range<usize> {
    let start = base + address;
    start / page_size() * page_size()..(start + size).next_multiple_of(page_size())
}

/// Maps code or constants from the file.
fn map(file: BorrowedFd<'_>, header: &Elf_Phdr, pages: &Range<usize>) -> Result<(), Errno> {
    let mut access = ProtFlags::empty();
    access.set(ProtFlags::READ, header.p_flags & PF_R != 0);
    access.set(ProtFlags::EXEC, header.p_flags & PF_X != 0);
    let offset = header.p_offset / page_size() * page_size();
    let (at, length) = (ptr::with_exposed_provenance_mut::<c_void>(pages.start), pages.len());
    // SAFETY: see the module documentation.
    unsafe { mmap(at, length, access, MapFlags::PRIVATE | MapFlags::FIXED, file, offset as u64) }?;
    Ok(())
}

/// Puts a copy without a file in the place of data. The part that is `constant` stays read-only.
fn copy(pages: &Range<usize>, constant: &Range<usize>) -> Result<(), Errno> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let at = ptr::with_exposed_provenance_mut::<c_void>(pages.start);
    let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
    // SAFETY: a new mapping at an address that the kernel chooses touches no memory in use.
    let new = unsafe { mmap_anonymous(ptr::null_mut(), pages.len(), access, flags) }?;
    // SAFETY: both are as long as the pages, and the new ones belong to nothing else.
    unsafe { ptr::copy_nonoverlapping(at.cast::<u8>(), new.cast::<u8>(), pages.len()) };
    let constant = constant.start.max(pages.start)..constant.end.min(pages.end);
    // Two mappings cannot be moved at once.
    let parts = if constant.is_empty() {
        [pages.clone(), 0..0, 0..0]
    } else {
        [pages.start..constant.start, constant.clone(), constant.end..pages.end]
    };
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        let from = new.wrapping_byte_add(part.start - pages.start);
        if part == constant {
            // SAFETY: this is a part of the new pages, which nothing uses yet.
            unsafe { mprotect(from, part.len(), MprotectFlags::READ) }?;
        }
        let to = ptr::with_exposed_provenance_mut::<c_void>(part.start);
        // SAFETY: see the module documentation.
        unsafe { mremap_fixed(from, part.len(), part.len(), MremapFlags::MAYMOVE, to) }?;
    }
    Ok(())
}
