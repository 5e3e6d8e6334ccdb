//! Operates on descriptors, and on files by name.
//!
//! Functions that close, replace or mark a descriptor by its number take an [`InChild`]. In a parent, an `OwnedFd` may
//! own that number.

use crate::clone::InChild;
use crate::raw::{self, Fcntl, Numeric, fcntl, numbers};
use crate::{Errno, Fd, Pid, Result, Uid};
use core::ffi::CStr;
use linux_raw_sys::general::F_UNLCK;
use rustix::fs::{CWD, SeekFrom};

pub use rustix::fs::{Mode, OFlags};

/// This constant of linux/close_range.h is missing in linux-raw-sys.
const CLOSE_RANGE_CLOEXEC: usize = 1 << 2;

/// Marks every descriptor from `first` to `last` close-on-exec, with `close_range(CLOSE_RANGE_CLOEXEC)`.
///
/// # Errors
///
/// `EINVAL` if `last` is below `first`.
pub fn close_range_on_exec(_: &InChild, first: Fd, last: Fd) -> Result {
    close_range_flags(first, last, CLOSE_RANGE_CLOEXEC)
}

/// Closes every descriptor from `first` to `last`, with `close_range`.
///
/// # Errors
///
/// `EINVAL` if `last` is below `first`.
pub fn close_range(_: &InChild, first: Fd, last: Fd) -> Result {
    close_range_flags(first, last, 0)
}

fn close_range_flags(first: Fd, last: Fd, flags: usize) -> Result {
    numbers(Numeric::CloseRange, [first.word(), last.word(), flags]).map(drop)
}

/// Duplicates `from` as `to` with `dup3`. `to` is closed first if it was open, and exec keeps it.
///
/// # Errors
///
/// `EBADF` if `from` is not open or `to` is beyond the limit, `EINVAL` if they are equal.
pub fn dup3(_: &InChild, from: Fd, to: Fd) -> Result {
    numbers(Numeric::Dup3, [from.word(), to.word(), 0]).map(drop)
}

/// Duplicates `fd` to the lowest free number from `least` on, with `fcntl(F_DUPFD_CLOEXEC)`.
///
/// # Errors
///
/// `EBADF` if `fd` is not open, `EINVAL` or `EMFILE` if no number is free.
pub fn fcntl_dupfd_cloexec(fd: Fd, least: Fd) -> Result<Fd> {
    let number = fcntl(fd, Fcntl::DupfdCloexec, least.word())?;
    i32::try_from(number).ok().and_then(Fd::new).ok_or(crate::Errno::BADF)
}

/// Lets exec keep `fd`, with `fcntl(F_SETFD, 0)`.
///
/// # Errors
///
/// `EBADF` if `fd` is not open.
pub fn fcntl_keep_on_exec(_: &InChild, fd: Fd) -> Result {
    fcntl(fd, Fcntl::Setfd, 0).map(drop)
}

/// Returns whether exec keeps `fd`, from `fcntl(F_GETFD)`.
///
/// # Errors
///
/// `EBADF` if `fd` is not open.
pub fn fcntl_is_kept_on_exec(fd: Fd) -> Result<bool> {
    const CLOEXEC: usize = 1;
    fcntl(fd, Fcntl::Getfd, 0).map(|flags| flags & CLOEXEC == 0)
}

/// The holder of a lock of fcntl(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockHolder {
    /// A process of the caller's pid namespace.
    Process(Pid),
    /// A process that has no pid in the caller's pid namespace.
    Elsewhere,
    /// No process: an open file description, which several processes may share (`F_OFD_SETLK`).
    Description,
}

/// Returns the holder of a lock on `fd` that prevents a write lock, from `fcntl(F_GETLK)`.
///
/// # Errors
///
/// `EBADF` if `fd` is not open.
pub fn fcntl_lock_holder(fd: Fd) -> Result<Option<LockHolder>> {
    let (kind, pid) = raw::fcntl_getlk(fd)?;
    Ok(match pid {
        _ if kind == F_UNLCK => None,
        // Must be checked first, because `Pid::from_raw` does not accept negative numbers.
        ..0 => Some(LockHolder::Description),
        pid => Some(Pid::from_raw(pid).map_or(LockHolder::Elsewhere, LockHolder::Process)),
    })
}

/// Changes the owner, but not the group, with `fchown`.
pub fn fchown(fd: Fd, uid: Uid) -> Result {
    rustix::fs::fchown(fd.lend(), Some(uid), None)
}

/// Closes a descriptor with `close`. Its errors are ignored: they report only lost writes, and the descriptor is
/// closed in any case. It is not an error if the descriptor was not open.
pub fn close(_: &InChild, fd: Fd) {
    raw::close(fd);
}

/// Opens a path relative to the working directory, with `openat` and `O_CLOEXEC`.
pub fn open(path: &CStr, flags: OFlags, mode: Mode) -> Result<Fd> {
    raw::openat(None, path, (flags | OFlags::CLOEXEC).bits(), mode.bits())
}

/// Creates a file in memory with `memfd_create`. Exec closes it, and it cannot be executed.
pub fn memfd_create(name: &CStr) -> Result<Fd> {
    const CLOEXEC: u32 = 0x1;
    const NOEXEC_SEAL: u32 = 0x8;
    match raw::memfd_create(name, CLOEXEC | NOEXEC_SEAL) {
        // Linux before 6.3 does not know `NOEXEC_SEAL`.
        Err(crate::Errno::INVAL) => raw::memfd_create(name, CLOEXEC),
        made => made,
    }
}

/// Creates a pipe with `pipe2(O_CLOEXEC)`. Returns the read end, then the write end.
pub fn pipe() -> Result<[Fd; 2]> {
    raw::pipe2(OFlags::CLOEXEC.bits())
}

/// Calls `pwrite`, and repeats the call if a signal interrupts it.
pub fn pwrite(fd: Fd, bytes: &[u8], offset: u64) -> Result<usize> {
    rustix::io::retry_on_intr(|| rustix::io::pwrite(fd.lend(), bytes, offset))
}

/// Calls `pread`, and repeats the call if a signal interrupts it.
pub fn pread(fd: Fd, buffer: &mut [u8], offset: u64) -> Result<usize> {
    rustix::io::retry_on_intr(|| rustix::io::pread(fd.lend(), &mut *buffer, offset))
}

/// Returns the size of a file in bytes.
pub fn size(fd: Fd) -> Result<u64> {
    Ok(u64::try_from(rustix::fs::fstat(fd.lend())?.st_size).unwrap_or(0))
}

/// Returns whether the file system at a path is full, with `statfs`. One without a size is never full.
pub fn is_full(path: &CStr) -> Result<bool> {
    rustix::fs::statfs(path).map(|found| found.f_blocks > 0 && found.f_bavail == 0)
}

/// Calls `accept4(SOCK_CLOEXEC)`, and repeats the call if a signal interrupts it.
pub fn accept(listener: Fd) -> Result<Fd> {
    rustix::io::retry_on_intr(|| raw::accept4(listener))
}

/// Calls `read`, and repeats the call if a signal interrupts it.
pub fn read(fd: Fd, buffer: &mut [u8]) -> Result<usize> {
    rustix::io::retry_on_intr(|| rustix::io::read(fd.lend(), &mut *buffer))
}

/// Calls `recvmsg(MSG_CMSG_CLOEXEC)`, and repeats the call if a signal interrupts it. Returns the number of bytes, and
/// the descriptor that was sent with them, if any.
pub fn receive(socket: Fd, buffer: &mut [u8]) -> Result<(usize, Option<Fd>)> {
    rustix::io::retry_on_intr(|| raw::recvmsg_descriptor(socket, buffer))
}

/// Calls `write`, and repeats the call if a signal interrupts it.
pub fn write(fd: Fd, bytes: &[u8]) -> Result<usize> {
    rustix::io::retry_on_intr(|| rustix::io::write(fd.lend(), bytes))
}

/// Appends some of the rest of `from` to `to` with `sendfile`, and repeats the call if a signal interrupts it. Returns
/// 0 at the end.
pub fn sendfile(to: Fd, from: Fd) -> Result<usize> {
    sendfile_most(to, from, u64::MAX)
}

/// Like [`sendfile`], but copies at most `most` bytes.
pub fn sendfile_most(to: Fd, from: Fd, most: u64) -> Result<usize> {
    /// The most bytes that the kernel copies in one call.
    const MOST: usize = 0x7fff_f000;
    let most = usize::try_from(most).map_or(MOST, |most| most.min(MOST));
    rustix::io::retry_on_intr(|| raw::sendfile(to, from, most))
}

/// Returns where the next data of a file begins and ends, from `offset` on, with `lseek(SEEK_DATA)` and
/// `lseek(SEEK_HOLE)`. Returns `None` if a hole extends to the end. A file system without support for holes reports
/// only data.
pub fn lseek_data(fd: Fd, offset: u64) -> Result<Option<(u64, u64)>> {
    let seek = |to| rustix::fs::seek(fd.lend(), to);
    let begin = match seek(SeekFrom::Data(offset)) {
        Err(Errno::NXIO) => return Ok(None),
        begin => begin?,
    };
    match seek(SeekFrom::Hole(begin)) {
        // The file was truncated in the meantime.
        Err(Errno::NXIO) => Ok(None),
        end => Ok(Some((begin, end?))),
    }
}

/// Returns the length of a file, from `lseek(SEEK_END)`.
pub fn lseek_end(fd: Fd) -> Result<u64> {
    rustix::fs::seek(fd.lend(), SeekFrom::End(0))
}

/// Sets the length of a file, with `ftruncate`.
pub fn ftruncate(fd: Fd, length: u64) -> Result {
    rustix::fs::ftruncate(fd.lend(), length)
}

/// Sets an extended attribute, with `fsetxattr`.
pub fn fsetxattr(fd: Fd, name: &CStr, value: &[u8]) -> Result {
    rustix::fs::fsetxattr(fd.lend(), name, value, rustix::fs::XattrFlags::empty())
}

/// Sets the offset of a file with `lseek(SEEK_SET)`; for a directory, a position that `getdents64` reported.
pub fn lseek(fd: Fd, offset: u64) -> Result {
    rustix::fs::seek(fd.lend(), SeekFrom::Start(offset)).map(drop)
}

/// Sends `bytes` and a copy of the descriptor `fd` with `sendmsg(SCM_RIGHTS)`; repeats the call if a
/// signal interrupts it.
pub fn sendmsg_with(socket: Fd, bytes: &[u8], fd: Fd) -> Result<usize> {
    rustix::io::retry_on_intr(|| raw::sendmsg_with(socket, bytes, fd))
}

/// Calls `send(MSG_NOSIGNAL)`, and repeats the call if a signal interrupts it. If the receiver is gone the call fails
/// and does not kill the caller.
pub fn send(socket: Fd, bytes: &[u8]) -> Result<usize> {
    let flags = rustix::net::SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| rustix::net::send(socket.lend(), bytes, flags))
}

/// Creates a directory, relative to the working directory, with `mkdirat`.
pub fn mkdir(path: &CStr, mode: Mode) -> Result {
    rustix::fs::mkdirat(CWD, path, mode)
}

/// Creates a symlink, relative to the working directory, with `symlinkat`.
pub fn symlink(target: &CStr, path: &CStr) -> Result {
    rustix::fs::symlinkat(target, CWD, path)
}
