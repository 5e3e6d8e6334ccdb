//! Descriptors, and files by name.
//!
//! What closes, replaces or marks a descriptor by its number asks for an [`InChild`]. In a process that goes on,
//! that number may belong to somebody's `OwnedFd`.

use crate::clone::InChild;
use crate::raw::{self, Fcntl, Numeric, fcntl, numbers};
use crate::{Errno, Fd, Pid, Result, Uid};
use core::ffi::CStr;
use linux_raw_sys::general::F_UNLCK;
use rustix::fs::{CWD, SeekFrom};

pub use rustix::fs::{Mode, OFlags};

/// From linux/close_range.h, which linux-raw-sys does not cover.
const CLOSE_RANGE_CLOEXEC: usize = 1 << 2;

/// `close_range` with `CLOSE_RANGE_CLOEXEC`: marks every descriptor from `first` to `last` to be
/// closed by exec.
///
/// # Errors
///
/// `EINVAL` if `last` is below `first`.
pub fn close_range_on_exec(_: &InChild, first: Fd, last: Fd) -> Result {
    close_range_flags(first, last, CLOSE_RANGE_CLOEXEC)
}

/// `close_range`: closes every descriptor from `first` to `last`.
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

/// `dup3` without flags: `to` becomes another name of `from`, closed first if it was open, and is
/// kept by exec.
///
/// # Errors
///
/// `EBADF` if `from` is not open or `to` is beyond the limit, `EINVAL` if they are the same.
pub fn dup3(_: &InChild, from: Fd, to: Fd) -> Result {
    numbers(Numeric::Dup3, [from.word(), to.word(), 0]).map(drop)
}

/// `fcntl(F_DUPFD_CLOEXEC)`: another name of `fd`, the lowest free number not below `least`.
///
/// # Errors
///
/// `EBADF` if `fd` is not open, `EINVAL` or `EMFILE` if there is no such number.
pub fn fcntl_dupfd_cloexec(fd: Fd, least: Fd) -> Result<Fd> {
    let number = fcntl(fd, Fcntl::DupfdCloexec, least.word())?;
    i32::try_from(number).ok().and_then(Fd::new).ok_or(crate::Errno::BADF)
}

/// `fcntl(F_SETFD, 0)`: `fd` is kept by exec.
///
/// # Errors
///
/// `EBADF` if `fd` is not open.
pub fn fcntl_keep_on_exec(_: &InChild, fd: Fd) -> Result {
    fcntl(fd, Fcntl::Setfd, 0).map(drop)
}

/// `fcntl(F_GETFD)`: whether exec keeps `fd`.
///
/// # Errors
///
/// `EBADF` if `fd` is not open.
pub fn fcntl_is_kept_on_exec(fd: Fd) -> Result<bool> {
    const CLOEXEC: usize = 1;
    fcntl(fd, Fcntl::Getfd, 0).map(|flags| flags & CLOEXEC == 0)
}

/// Who holds a lock of fcntl(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockHolder {
    /// This process.
    Process(Pid),
    /// A process that has no pid in our pid namespace.
    Elsewhere,
    /// No process: an open file description, which several processes may share (`F_OFD_SETLK`).
    Description,
}

/// `fcntl(F_GETLK)`: who holds a lock on `fd` that keeps us from a write lock.
///
/// # Errors
///
/// `EBADF` if `fd` is not open.
pub fn fcntl_lock_holder(fd: Fd) -> Result<Option<LockHolder>> {
    let (kind, pid) = raw::fcntl_getlk(fd)?;
    Ok(match pid {
        _ if kind == F_UNLCK => None,
        // Checked first: `Pid::from_raw` takes no negative number.
        ..0 => Some(LockHolder::Description),
        pid => Some(Pid::from_raw(pid).map_or(LockHolder::Elsewhere, LockHolder::Process)),
    })
}

/// `fchown` of the owner alone.
///
/// # Errors
///
/// See chown(2).
pub fn fchown(fd: Fd, uid: Uid) -> Result {
    rustix::fs::fchown(fd.lend(), Some(uid), None)
}

/// `close`. Errors tell of lost writes only, and the descriptor is gone whatever is said; one that
/// was not open is no error here.
pub fn close(_: &InChild, fd: Fd) {
    raw::close(fd);
}

/// `openat` below the working directory, with `O_CLOEXEC`.
///
/// # Errors
///
/// See open(2).
pub fn open(path: &CStr, flags: OFlags, mode: Mode) -> Result<Fd> {
    raw::openat(None, path, (flags | OFlags::CLOEXEC).bits(), mode.bits())
}

/// `memfd_create`: a file in memory that exec closes and nobody can execute.
///
/// # Errors
///
/// See memfd_create(2).
pub fn memfd_create(name: &CStr) -> Result<Fd> {
    const CLOEXEC: u32 = 0x1;
    const NOEXEC_SEAL: u32 = 0x8;
    match raw::memfd_create(name, CLOEXEC | NOEXEC_SEAL) {
        // Linux before 6.3 does not know the second.
        Err(crate::Errno::INVAL) => raw::memfd_create(name, CLOEXEC),
        made => made,
    }
}

/// `pipe2(O_CLOEXEC)`: the reading end, then the writing end.
///
/// # Errors
///
/// See pipe(2).
pub fn pipe() -> Result<[Fd; 2]> {
    raw::pipe2(OFlags::CLOEXEC.bits())
}

/// `pwrite`, begun again when a signal interrupts it.
///
/// # Errors
///
/// See pwrite(2).
pub fn pwrite(fd: Fd, bytes: &[u8], offset: u64) -> Result<usize> {
    rustix::io::retry_on_intr(|| rustix::io::pwrite(fd.lend(), bytes, offset))
}

/// `pread`, begun again when a signal interrupts it.
///
/// # Errors
///
/// See pread(2).
pub fn pread(fd: Fd, buffer: &mut [u8], offset: u64) -> Result<usize> {
    rustix::io::retry_on_intr(|| rustix::io::pread(fd.lend(), &mut *buffer, offset))
}

/// How large a file is.
///
/// # Errors
///
/// See fstat(2).
pub fn size(fd: Fd) -> Result<u64> {
    Ok(u64::try_from(rustix::fs::fstat(fd.lend())?.st_size).unwrap_or(0))
}

/// `accept4(SOCK_CLOEXEC)`, begun again when a signal interrupts it.
///
/// # Errors
///
/// See accept(2).
pub fn accept(listener: Fd) -> Result<Fd> {
    rustix::io::retry_on_intr(|| raw::accept4(listener))
}

/// `read`, begun again when a signal interrupts it.
///
/// # Errors
///
/// See read(2).
pub fn read(fd: Fd, buffer: &mut [u8]) -> Result<usize> {
    rustix::io::retry_on_intr(|| rustix::io::read(fd.lend(), &mut *buffer))
}

/// `recvmsg(MSG_CMSG_CLOEXEC)`, begun again when a signal interrupts it: bytes, and the descriptor that
/// came with them, if one did.
///
/// # Errors
///
/// See recvmsg(2).
pub fn receive(socket: Fd, buffer: &mut [u8]) -> Result<(usize, Option<Fd>)> {
    rustix::io::retry_on_intr(|| raw::recvmsg_descriptor(socket, buffer))
}

/// `write`, begun again when a signal interrupts it.
///
/// # Errors
///
/// See write(2).
pub fn write(fd: Fd, bytes: &[u8]) -> Result<usize> {
    rustix::io::retry_on_intr(|| rustix::io::write(fd.lend(), bytes))
}

/// `sendfile`, begun again when a signal interrupts it: some of what is left of `from`, added to `to`.
/// Zero at the end.
///
/// # Errors
///
/// See sendfile(2).
pub fn sendfile(to: Fd, from: Fd) -> Result<usize> {
    sendfile_most(to, from, u64::MAX)
}

/// The same, and not more than `most` bytes.
///
/// # Errors
///
/// See sendfile(2).
pub fn sendfile_most(to: Fd, from: Fd, most: u64) -> Result<usize> {
    /// What the kernel moves at most in one call.
    const MOST: usize = 0x7fff_f000;
    let most = usize::try_from(most).map_or(MOST, |most| most.min(MOST));
    rustix::io::retry_on_intr(|| raw::sendfile(to, from, most))
}

/// `lseek(SEEK_DATA)` and `lseek(SEEK_HOLE)`: where the next data of a file begins and ends, from `offset` on. `None`
/// if a hole goes to its end. A file system that knows no holes has data alone.
///
/// # Errors
///
/// See lseek(2).
pub fn lseek_data(fd: Fd, offset: u64) -> Result<Option<(u64, u64)>> {
    let seek = |to| rustix::fs::seek(fd.lend(), to);
    let begin = match seek(SeekFrom::Data(offset)) {
        Err(Errno::NXIO) => return Ok(None),
        begin => begin?,
    };
    match seek(SeekFrom::Hole(begin)) {
        // It was cut off meanwhile.
        Err(Errno::NXIO) => Ok(None),
        end => Ok(Some((begin, end?))),
    }
}

/// `lseek(SEEK_END)`: how long a file is.
///
/// # Errors
///
/// See lseek(2).
pub fn lseek_end(fd: Fd) -> Result<u64> {
    rustix::fs::seek(fd.lend(), SeekFrom::End(0))
}

/// `ftruncate`.
///
/// # Errors
///
/// See ftruncate(2).
pub fn ftruncate(fd: Fd, length: u64) -> Result {
    rustix::fs::ftruncate(fd.lend(), length)
}

/// `fsetxattr`.
///
/// # Errors
///
/// See setxattr(2).
pub fn fsetxattr(fd: Fd, name: &CStr, value: &[u8]) -> Result {
    rustix::fs::fsetxattr(fd.lend(), name, value, rustix::fs::XattrFlags::empty())
}

/// `lseek(SEEK_SET)`, for a directory a place that `getdents64` told of.
///
/// # Errors
///
/// See lseek(2).
pub fn lseek(fd: Fd, offset: u64) -> Result {
    rustix::fs::seek(fd.lend(), SeekFrom::Start(offset)).map(drop)
}

/// `sendmsg(SCM_RIGHTS)`: sends `bytes` and a copy of the descriptor `fd` with them, begun again when a
/// signal interrupts it.
///
/// # Errors
///
/// See sendmsg(2).
pub fn sendmsg_with(socket: Fd, bytes: &[u8], fd: Fd) -> Result<usize> {
    rustix::io::retry_on_intr(|| raw::sendmsg_with(socket, bytes, fd))
}

/// `send(MSG_NOSIGNAL)`, begun again when a signal interrupts it: to who has gone it is an error, not the
/// end of the caller.
///
/// # Errors
///
/// See send(2).
pub fn send(socket: Fd, bytes: &[u8]) -> Result<usize> {
    let flags = rustix::net::SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| rustix::net::send(socket.lend(), bytes, flags))
}

/// `mkdirat` below the working directory.
///
/// # Errors
///
/// See mkdir(2).
pub fn mkdir(path: &CStr, mode: Mode) -> Result {
    rustix::fs::mkdirat(CWD, path, mode)
}

/// `symlinkat` below the working directory.
///
/// # Errors
///
/// See symlink(2).
pub fn symlink(target: &CStr, path: &CStr) -> Result {
    rustix::fs::symlinkat(target, CWD, path)
}
