//! Files below a directory that is known by its descriptor.

use crate::{Errno, Fd, Gid, Result, Uid, raw};
use core::ffi::CStr;
use rustix::fs::{Access, AtFlags, CWD, OFlags, ResolveFlags};

pub use rustix::fs::{FileType, Mode};

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

/// `openat2(O_PATH | O_NOFOLLOW, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS)`: `name` itself in `directory`,
/// also if it is a symlink.
///
/// # Errors
///
/// See openat2(2).
pub fn openat2_entry_nofollow(directory: Fd, name: &CStr) -> Result<Fd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    openat2(Some(directory), name, flags, ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)
}

/// `openat2(O_PATH | O_DIRECTORY, RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS)`: a directory below `root` by its
/// true name.
///
/// # Errors
///
/// `ELOOP` if there is a symlink in the way; for the rest see openat2(2).
pub fn openat2_no_symlinks(root: Fd, path: &CStr) -> Result<Fd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    openat2(Some(root), path, flags, ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS)
}

/// Whether what `fd` is is a directory.
///
/// # Errors
///
/// See fstat(2).
pub fn is_directory(fd: Fd) -> Result<bool> {
    Ok(kind(fd)? == FileType::Directory)
}

/// What `fd` is.
///
/// # Errors
///
/// See fstat(2).
pub fn kind(fd: Fd) -> Result<FileType> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(fd.lend())?.st_mode))
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

/// Whether `fd` refers to a device, terminals included.
///
/// # Errors
///
/// See fstat(2).
pub fn is_device(fd: Fd) -> Result<bool> {
    Ok(matches!(kind(fd)?, FileType::CharacterDevice | FileType::BlockDevice))
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
/// `EISDIR` if it is a directory, `EACCES` if it is something else or may not be executed, `ELOOP` for a
/// magic link.
pub fn check_executable(path: &CStr) -> Result {
    let resolve = ResolveFlags::NO_MAGICLINKS;
    let file = openat2(None, path, OFlags::PATH, resolve)?;
    let kind = rustix::fs::fstat(file.lend()).map(|stat| FileType::from_raw_mode(stat.st_mode));
    raw::close(file);
    match kind? {
        FileType::RegularFile => {}
        FileType::Directory => return Err(Errno::ISDIR),
        _ => return Err(Errno::ACCESS),
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
    let (kind, device) = numbers(node);
    rustix::fs::mknodat(directory.lend(), name, kind, mode, device)
}

/// Whether `name` itself is this very node.
///
/// # Errors
///
/// See stat(2).
pub fn is_node(directory: Fd, name: &CStr, node: Node) -> Result<bool> {
    let Likeness { kind, device, .. } = likeness(directory, name)?;
    Ok((kind, device) == numbers(node))
}

/// Whether what `fd` is is this very node.
///
/// # Errors
///
/// See fstat(2).
pub fn is_open_node(fd: Fd, node: Node) -> Result<bool> {
    let stat = rustix::fs::fstat(fd.lend())?;
    Ok((FileType::from_raw_mode(stat.st_mode), stat.st_rdev) == numbers(node))
}

fn numbers(node: Node) -> (FileType, u64) {
    match node {
        Node::Character(major, minor) => (FileType::CharacterDevice, rustix::fs::makedev(major, minor)),
        Node::Block(major, minor) => (FileType::BlockDevice, rustix::fs::makedev(major, minor)),
        Node::Fifo => (FileType::Fifo, 0),
    }
}

/// `unlinkat` of what is no directory.
///
/// # Errors
///
/// See unlink(2).
pub fn unlinkat(directory: Fd, name: &CStr) -> Result {
    rustix::fs::unlinkat(directory.lend(), name, AtFlags::empty())
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

/// `openat2(O_PATH | O_DIRECTORY | O_NOFOLLOW)`, otherwise as [`openat2_in_root`]: the directory of that
/// very name, and none that it links to.
///
/// # Errors
///
/// `ENOTDIR` if it is something else, a symlink among them; for the rest see openat2(2).
pub fn openat2_ordinary_directory_in_root(root: Fd, path: &CStr) -> Result<Fd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    openat2(Some(root), path, flags, ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
}

/// Whether `fd` is on a procfs, and if so whether it is its root.
///
/// # Errors
///
/// See fstatfs(2).
pub fn procfs(fd: Fd) -> Result<Procfs> {
    const PROC_SUPER_MAGIC: i64 = 0x9fa0;
    /// The number of the root's inode (linux/proc_ns.h), which is nothing else's.
    const PROC_ROOT_INO: u64 = 1;
    if rustix::fs::fstatfs(fd.lend())?.f_type != PROC_SUPER_MAGIC {
        return Ok(Procfs::No);
    }
    let is_root = rustix::fs::fstat(fd.lend())?.st_ino == PROC_ROOT_INO;
    Ok(if is_root { Procfs::Root } else { Procfs::Below })
}

/// Where a file is as regards procfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Procfs {
    /// On another file system.
    No,
    /// It is the root of one.
    Root,
    /// It is something else of one.
    Below,
}

/// The permissions of what `fd` is.
///
/// # Errors
///
/// See fstat(2).
pub fn permissions(fd: Fd) -> Result<Mode> {
    Ok(Mode::from_raw_mode(rustix::fs::fstat(fd.lend())?.st_mode))
}

/// `openat(O_NOFOLLOW | O_CLOEXEC)` of `name` itself in `directory`.
///
/// # Errors
///
/// `ELOOP` if it is a symlink; for the rest see open(2).
pub fn openat_nofollow(directory: Fd, name: &CStr, flags: OFlags, mode: Mode) -> Result<Fd> {
    raw::openat(Some(directory), name, (flags | OFlags::NOFOLLOW | OFlags::CLOEXEC).bits(), mode.bits())
}

/// What there is to know of a file to make another like it.
#[derive(Clone, Copy)]
pub struct Likeness {
    /// What it is.
    pub kind: FileType,
    /// Its permissions.
    pub mode: Mode,
    /// Its owner.
    pub uid: Uid,
    /// Its group.
    pub gid: Gid,
    /// Whether it takes less room than its length: it has holes, or its file system keeps it in less.
    pub is_sparse: bool,
    /// What it stands for, if it is a node.
    device: u64,
}

/// `fstatat(AT_SYMLINK_NOFOLLOW)`.
///
/// # Errors
///
/// See stat(2).
pub fn likeness(directory: Fd, name: &CStr) -> Result<Likeness> {
    let stat = rustix::fs::statat(directory.lend(), name, AtFlags::SYMLINK_NOFOLLOW)?;
    /// What `st_blocks` counts, whatever the file system (stat(2)).
    const BLOCK: u64 = 512;
    let length = u64::try_from(stat.st_size).unwrap_or_default();
    let room = u64::try_from(stat.st_blocks).unwrap_or_default().saturating_mul(BLOCK);
    Ok(Likeness {
        kind: FileType::from_raw_mode(stat.st_mode),
        mode: Mode::from_raw_mode(stat.st_mode),
        uid: Uid::from_raw(stat.st_uid),
        gid: Gid::from_raw(stat.st_gid),
        is_sparse: room < length,
        device: stat.st_rdev,
    })
}

/// `mknodat` of what is no regular file, directory or symlink.
///
/// # Errors
///
/// As `mknodat`.
pub fn mknodat_like(directory: Fd, name: &CStr, like: &Likeness) -> Result {
    rustix::fs::mknodat(directory.lend(), name, like.kind, like.mode, like.device)
}

/// `fchmodat`. The last component is followed if it is a symlink: for what was just made.
///
/// # Errors
///
/// See chmod(2).
pub fn fchmodat(directory: Fd, name: &CStr, mode: Mode) -> Result {
    rustix::fs::chmodat(directory.lend(), name, mode, AtFlags::empty())
}

/// `readlinkat`, with the NUL that the kernel leaves out.
///
/// # Errors
///
/// `ENAMETOOLONG` if `buffer` has no room for it; for the rest see readlink(2).
pub fn readlinkat<'a>(directory: Fd, name: &CStr, buffer: &'a mut [u8]) -> Result<&'a CStr> {
    let length = raw::readlinkat(directory, name, buffer)?;
    // A target that fills the buffer may be longer than it.
    *buffer.get_mut(length).ok_or(Errno::NAMETOOLONG)? = 0;
    CStr::from_bytes_until_nul(buffer).map_err(|_| Errno::NAMETOOLONG)
}

/// `getdents64`: entries of a directory, as many as `buffer` has room for; none at the end.
///
/// # Errors
///
/// See getdents(2).
pub fn getdents(directory: Fd, buffer: &mut [u8]) -> Result<Entries<'_>> {
    let length = raw::getdents64(directory, buffer)?;
    Ok(Entries { rest: buffer.get(..length).unwrap_or_default() })
}

/// See [`getdents`].
pub struct Entries<'a> {
    rest: &'a [u8],
}

impl Entries<'_> {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

impl<'a> Iterator for Entries<'a> {
    /// A name, and where in the directory the next one is.
    type Item = (&'a CStr, u64);

    fn next(&mut self) -> Option<Self::Item> {
        // `struct linux_dirent64`: inode, offset of the next, length of this, kind, name.
        let offset = u64::from_ne_bytes(*self.rest.get(8..)?.first_chunk()?);
        let length = u16::from_ne_bytes(*self.rest.get(16..)?.first_chunk()?);
        let (entry, rest) = self.rest.split_at_checked(length.into())?;
        self.rest = rest;
        Some((CStr::from_bytes_until_nul(entry.get(19..)?).ok()?, offset))
    }
}
