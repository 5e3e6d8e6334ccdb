//! Files below a directory that is known by its descriptor.

use crate::{Errno, Fd, Gid, Result, Uid, raw};
use core::ffi::CStr;
use rustix::fs::{Access, AtFlags, CWD, FileType, OFlags, ResolveFlags};

pub use rustix::fs::Mode;

/// How often a lookup is begun again that a rename elsewhere has disturbed: the kernel says EAGAIN
/// when it cannot prove that `..` stayed below the root (fs/namei.c, `handle_dots`).
const MOST_LOOKUPS: u32 = 128;

/// `openat2(O_PATH, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)`: finds `path` as if `root` were `/`,
/// whatever symlinks say. The descriptor stands for what was found, not for its name.
///
/// # Errors
///
/// See openat2(2).
pub fn openat2_in_root(root: Fd, path: &CStr) -> Result<Fd> {
    openat2(Some(root), path, OFlags::PATH, ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
}

/// The same for a directory.
///
/// # Errors
///
/// `ENOTDIR` if it is none; for the rest see openat2(2).
pub fn openat2_directory_in_root(root: Fd, path: &CStr) -> Result<Fd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    openat2(Some(root), path, flags, ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
}

/// `openat2(O_PATH, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS)`: `name` itself in `directory`.
///
/// # Errors
///
/// `ELOOP` if it is a symlink; for the rest see openat2(2).
pub fn openat2_entry(directory: Fd, name: &CStr) -> Result<Fd> {
    openat2(Some(directory), name, OFlags::PATH, ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)
}

/// Whether what `fd` is is a directory.
///
/// # Errors
///
/// See fstat(2).
pub fn is_directory(fd: Fd) -> Result<bool> {
    let stat = rustix::fs::fstat(fd.lend())?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// Whether what `fd` is is the null device, and no file that an image or a volume put there.
///
/// # Errors
///
/// See fstat(2).
pub fn is_null_device(fd: Fd) -> Result<bool> {
    let stat = rustix::fs::fstat(fd.lend())?;
    let is_character = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    Ok(is_character && stat.st_rdev == rustix::fs::makedev(1, 3))
}

/// Whether what `fd` is is a device that is no terminal: the host's, whoever looks at it.
///
/// # Errors
///
/// See fstat(2).
pub fn is_device(fd: Fd) -> Result<bool> {
    let stat = rustix::fs::fstat(fd.lend())?;
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::CharacterDevice => !rustix::termios::isatty(fd.lend()),
        FileType::BlockDevice => true,
        _ => false,
    })
}

/// Who owns what `fd` is.
///
/// # Errors
///
/// See fstat(2).
pub fn owner(fd: Fd) -> Result<Uid> {
    rustix::fs::fstat(fd.lend()).map(|stat| Uid::from_raw(stat.st_uid))
}

/// `openat2(O_PATH)` of `/proc`, if that is the root of a procfs.
///
/// # Errors
///
/// `ENODEV` if it is anything else; for the rest see openat2(2).
pub fn openat2_proc() -> Result<Fd> {
    /// `PROC_SUPER_MAGIC`, and the inode of its root (linux/magic.h, linux/proc_fs.h).
    const MAGIC: i64 = 0x9fa0;
    const ROOT: u64 = 1;
    let proc = openat2(None, c"/proc", OFlags::PATH | OFlags::DIRECTORY, ResolveFlags::empty())?;
    let is_root = rustix::fs::fstatfs(proc.lend())
        .and_then(|statfs| Ok(statfs.f_type == MAGIC && rustix::fs::fstat(proc.lend())?.st_ino == ROOT));
    match is_root {
        Ok(true) => Ok(proc),
        other => {
            raw::close(proc);
            other.and(Err(Errno::NODEV))
        }
    }
}

/// `openat2(RESOLVE_BENEATH | RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS)`: a file that the kernel has in
/// `proc`, and nothing that is mounted over it.
///
/// # Errors
///
/// `EXDEV` if something is mounted over it; for the rest see openat2(2).
pub fn openat2_in_proc(proc: Fd, path: &CStr, flags: OFlags) -> Result<Fd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS;
    openat2(Some(proc), path, flags, resolve)
}

/// `openat2(O_PATH, RESOLVE_NO_MAGICLINKS)` below the working directory, then `faccessat(X_OK)`:
/// whether `path` is a file that the caller may execute, and no link into procfs.
///
/// # Errors
///
/// `EACCES` if it is something else or may not be executed, `ELOOP` for a magic link.
pub fn check_executable(path: &CStr) -> Result {
    let resolve = ResolveFlags::NO_MAGICLINKS;
    let file = openat2(None, path, OFlags::PATH, resolve)?;
    let kind = rustix::fs::fstat(file.lend()).map(|stat| FileType::from_raw_mode(stat.st_mode));
    raw::close(file);
    if kind? != FileType::RegularFile {
        return Err(Errno::ACCESS);
    }
    rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS)
}

pub(crate) fn openat2(
    directory: Option<Fd>,
    path: &CStr,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<Fd> {
    let how = [u64::from((flags | OFlags::CLOEXEC).bits()), 0, resolve.bits()];
    for _ in 0..MOST_LOOKUPS {
        match raw::openat2(directory, path, how) {
            Err(Errno::AGAIN) => {}
            found => return found,
        }
    }
    Err(Errno::AGAIN)
}

/// `mkdirat`.
///
/// # Errors
///
/// `EEXIST` if there is anything of that name, a symlink included.
pub fn mkdirat(directory: Fd, name: &CStr, mode: Mode) -> Result {
    rustix::fs::mkdirat(directory.lend(), name, mode)
}

/// `mknodat` of an empty regular file, which unlike `open` follows no symlink.
///
/// # Errors
///
/// `EEXIST` if there is anything of that name, a symlink included.
pub fn mknodat_file(directory: Fd, name: &CStr, mode: Mode) -> Result {
    rustix::fs::mknodat(directory.lend(), name, FileType::RegularFile, mode, 0)
}

/// What a node stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A character device with its numbers.
    Character(u32, u32),
    /// A block device with its numbers.
    Block(u32, u32),
    /// A named pipe.
    Fifo,
}

/// `mknodat` of a device or a pipe.
///
/// # Errors
///
/// `EPERM` without CAP_MKNOD in the first user namespace; `EEXIST` as `mkdirat`.
pub fn mknodat(directory: Fd, name: &CStr, node: Node, mode: Mode) -> Result {
    let (kind, device) = match node {
        Node::Character(major, minor) => (FileType::CharacterDevice, rustix::fs::makedev(major, minor)),
        Node::Block(major, minor) => (FileType::BlockDevice, rustix::fs::makedev(major, minor)),
        Node::Fifo => (FileType::Fifo, 0),
    };
    rustix::fs::mknodat(directory.lend(), name, kind, mode, device)
}

/// `symlinkat`.
///
/// # Errors
///
/// `EEXIST` as `mkdirat`.
pub fn symlinkat(target: &CStr, directory: Fd, name: &CStr) -> Result {
    rustix::fs::symlinkat(target, directory.lend(), name)
}

/// `fchownat(AT_SYMLINK_NOFOLLOW)`.
///
/// # Errors
///
/// See chown(2).
pub fn fchownat(directory: Fd, name: &CStr, uid: Uid, gid: Gid) -> Result {
    rustix::fs::chownat(directory.lend(), name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
}
