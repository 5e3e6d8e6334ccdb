//! Operates on files below a directory, which is given as a descriptor.

use crate::{Errno, Fd, Gid, Result, Uid, raw};
use core::ffi::CStr;
use rustix::fs::{Access, AtFlags, CWD, OFlags, ResolveFlags};

pub use rustix::fs::{FileType, Mode};

/// How many times a lookup is tried if renames disturb it. The kernel returns EAGAIN when it cannot prove that `..`
/// stayed below the root (fs/namei.c, `handle_dots`).
const MOST_LOOKUPS: u32 = 128;

/// Opens `path` as if `root` were `/`, whatever its symlinks contain, with
/// `openat2(O_PATH, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)`. The descriptor refers to the file that was found, not
/// to its name.
pub fn openat2_in_root(root: Fd, path: &CStr) -> Result<Fd> {
    openat2(Some(root), path, OFlags::PATH, ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
}

/// Like [`openat2_in_root`], but only for a directory.
///
/// # Errors
///
/// `ENOTDIR` if it is not a directory; for the rest see openat2(2).
pub fn openat2_directory_in_root(root: Fd, path: &CStr) -> Result<Fd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    openat2(Some(root), path, flags, ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
}

/// Opens `name` in `directory`, even if it is a symlink, with
/// `openat2(O_PATH | O_NOFOLLOW, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS)`.
pub fn openat2_entry_nofollow(directory: Fd, name: &CStr) -> Result<Fd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    openat2(Some(directory), name, flags, ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)
}

/// Opens a directory below `root` by a path without symlinks, with
/// `openat2(O_PATH | O_DIRECTORY, RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS)`.
///
/// # Errors
///
/// `ELOOP` if the path contains a symlink; for the rest see openat2(2).
pub fn openat2_no_symlinks(root: Fd, path: &CStr) -> Result<Fd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    openat2(Some(root), path, flags, ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS)
}

/// Returns whether `fd` is a directory.
pub fn is_directory(fd: Fd) -> Result<bool> {
    Ok(kind(fd)? == FileType::Directory)
}

/// Returns the file type of `fd`.
pub fn kind(fd: Fd) -> Result<FileType> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(fd.lend())?.st_mode))
}

/// Returns whether `fd` is the null device, and not a file that an image or a volume put there.
pub fn is_null_device(fd: Fd) -> Result<bool> {
    let stat = rustix::fs::fstat(fd.lend())?;
    let is_character = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    Ok(is_character && stat.st_rdev == rustix::fs::makedev(1, 3))
}

/// Returns the standard streams that are the null device. A closed stream is not.
pub fn null_streams() -> impl Iterator<Item = Fd> {
    let streams = [Fd::STDIN, Fd::STDOUT, Fd::STDERR];
    streams.into_iter().filter(|stream| is_null_device(*stream).unwrap_or(false))
}

/// Returns whether `fd` is a device, terminals included.
pub fn is_device(fd: Fd) -> Result<bool> {
    Ok(matches!(kind(fd)?, FileType::CharacterDevice | FileType::BlockDevice))
}

/// Returns the owner of `fd`.
pub fn owner(fd: Fd) -> Result<Uid> {
    rustix::fs::fstat(fd.lend()).map(|stat| Uid::from_raw(stat.st_uid))
}

/// Opens `/proc` with `openat2(O_PATH)`, if it is the root of a procfs.
///
/// # Errors
///
/// `ENODEV` if it is anything else; for the rest see openat2(2).
pub fn openat2_proc() -> Result<Fd> {
    let proc = openat2(None, c"/proc", OFlags::PATH | OFlags::DIRECTORY, ResolveFlags::empty())?;
    match procfs(proc) {
        Ok(ProcfsKind::Root) => Ok(proc),
        other => {
            raw::close(proc);
            other.and(Err(Errno::NODEV))
        }
    }
}

/// Opens a file of the procfs `proc`, but not a file that is mounted over it, with
/// `openat2(RESOLVE_BENEATH | RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS)`.
///
/// # Errors
///
/// `EXDEV` if there is a mount over it; for the rest see openat2(2).
pub fn openat2_in_proc(proc: Fd, path: &CStr, flags: OFlags) -> Result<Fd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS;
    openat2(Some(proc), path, flags, resolve)
}

/// Checks that `path`, relative to the working directory, is a file that the caller may execute, and not a magic link
/// into procfs. It calls `openat2(O_PATH, RESOLVE_NO_MAGICLINKS)`, then `faccessat(X_OK)`.
///
/// # Errors
///
/// `EISDIR` for a directory, `EACCES` for other file types or without permission to execute, `ELOOP` for a magic link.
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

/// Creates a directory, with `mkdirat`.
///
/// # Errors
///
/// `EEXIST` if the name exists, even as a symlink.
pub fn mkdirat(directory: Fd, name: &CStr, mode: Mode) -> Result {
    rustix::fs::mkdirat(directory.lend(), name, mode)
}

/// Creates an empty regular file with `mknodat`, which unlike `open` follows no symlink.
///
/// # Errors
///
/// `EEXIST` if the name exists, even as a symlink.
pub fn mknodat_file(directory: Fd, name: &CStr, mode: Mode) -> Result {
    rustix::fs::mknodat(directory.lend(), name, FileType::RegularFile, mode, 0)
}

/// The type of a node, with its device numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A character device with its major and minor number.
    Character(u32, u32),
    /// A block device with its major and minor number.
    Block(u32, u32),
    /// A named pipe.
    Fifo,
}

/// Creates a device node or a pipe, with `mknodat`.
///
/// # Errors
///
/// `EPERM` without CAP_MKNOD in the initial user namespace; `EEXIST` as for [`mkdirat`].
pub fn mknodat(directory: Fd, name: &CStr, node: Node, mode: Mode) -> Result {
    let (kind, device) = numbers(node);
    rustix::fs::mknodat(directory.lend(), name, kind, mode, device)
}

/// Returns whether `name` is exactly this node, without following symlinks.
pub fn is_node(directory: Fd, name: &CStr, node: Node) -> Result<bool> {
    let Likeness { kind, device, .. } = likeness(directory, name)?;
    Ok((kind, device) == numbers(node))
}

/// Returns whether `fd` is exactly this node.
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

/// Removes a file that is not a directory, with `unlinkat`.
pub fn unlinkat(directory: Fd, name: &CStr) -> Result {
    rustix::fs::unlinkat(directory.lend(), name, AtFlags::empty())
}

/// Creates a symlink, with `symlinkat`.
///
/// # Errors
///
/// `EEXIST` as for [`mkdirat`].
pub fn symlinkat(target: &CStr, directory: Fd, name: &CStr) -> Result {
    rustix::fs::symlinkat(target, directory.lend(), name)
}

/// Changes owner and group of `name`, even if it is a symlink, with `fchownat(AT_SYMLINK_NOFOLLOW)`.
pub fn fchownat(directory: Fd, name: &CStr, uid: Uid, gid: Gid) -> Result {
    rustix::fs::chownat(directory.lend(), name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
}

/// Like [`openat2_in_root`], but opens only a directory with exactly this name, and not one to which it links, with
/// `openat2(O_PATH | O_DIRECTORY | O_NOFOLLOW)`.
///
/// # Errors
///
/// `ENOTDIR` if it is not a directory, for example a symlink; for the rest see openat2(2).
pub fn openat2_ordinary_directory_in_root(root: Fd, path: &CStr) -> Result<Fd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    openat2(Some(root), path, flags, ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
}

/// Returns whether `fd` is on a procfs, and if so whether it is the root.
pub fn procfs(fd: Fd) -> Result<ProcfsKind> {
    const PROC_SUPER_MAGIC: i64 = 0x9fa0;
    /// The inode number of the root (linux/proc_ns.h), which no other file has.
    const PROC_ROOT_INO: u64 = 1;
    if rustix::fs::fstatfs(fd.lend())?.f_type != PROC_SUPER_MAGIC {
        return Ok(ProcfsKind::No);
    }
    let is_root = rustix::fs::fstat(fd.lend())?.st_ino == PROC_ROOT_INO;
    Ok(if is_root { ProcfsKind::Root } else { ProcfsKind::Below })
}

/// The relation of a file to procfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcfsKind {
    /// It is on another file system.
    No,
    /// It is the root of a procfs.
    Root,
    /// It is another file on a procfs.
    Below,
}

/// Returns the permissions of `fd`.
pub fn permissions(fd: Fd) -> Result<Mode> {
    Ok(Mode::from_raw_mode(rustix::fs::fstat(fd.lend())?.st_mode))
}

/// Opens `name` in `directory`, with `openat(O_NOFOLLOW | O_CLOEXEC)`.
///
/// # Errors
///
/// `ELOOP` if it is a symlink; for the rest see open(2).
pub fn openat_nofollow(directory: Fd, name: &CStr, flags: OFlags, mode: Mode) -> Result<Fd> {
    raw::openat(Some(directory), name, (flags | OFlags::NOFOLLOW | OFlags::CLOEXEC).bits(), mode.bits())
}

/// The attributes of a file that its copy needs.
#[derive(Clone, Copy)]
pub struct Likeness {
    /// Its file type.
    pub kind: FileType,
    /// Its permissions.
    pub mode: Mode,
    /// Its owner.
    pub uid: Uid,
    /// Its group.
    pub gid: Gid,
    /// Whether it uses less space than its length: it has holes, or its file system stores it in less.
    pub is_sparse: bool,
    /// Its device numbers, if it is a node.
    device: u64,
}

/// Returns the attributes of `name`, even if it is a symlink, from `fstatat(AT_SYMLINK_NOFOLLOW)`.
pub fn likeness(directory: Fd, name: &CStr) -> Result<Likeness> {
    let stat = rustix::fs::statat(directory.lend(), name, AtFlags::SYMLINK_NOFOLLOW)?;
    /// The unit of `st_blocks` on every file system (stat(2)).
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

/// Creates a node like `like`, which is not a regular file, directory or symlink, with `mknodat`.
///
/// # Errors
///
/// As for [`mknodat`].
pub fn mknodat_like(directory: Fd, name: &CStr, like: &Likeness) -> Result {
    rustix::fs::mknodat(directory.lend(), name, like.kind, like.mode, like.device)
}

/// Sets the permissions of `name` with `fchmodat`. The call follows a symlink, so it is for files that the caller has
/// just created.
pub fn fchmodat(directory: Fd, name: &CStr, mode: Mode) -> Result {
    rustix::fs::chmodat(directory.lend(), name, mode, AtFlags::empty())
}

/// Reads a symlink with `readlinkat`, and adds the NUL that the kernel leaves out.
///
/// # Errors
///
/// `ENAMETOOLONG` if the target does not fit into `buffer`; for the rest see readlink(2).
pub fn readlinkat<'a>(directory: Fd, name: &CStr, buffer: &'a mut [u8]) -> Result<&'a CStr> {
    let length = raw::readlinkat(directory, name, buffer)?;
    // A target that fills the buffer may have been truncated.
    *buffer.get_mut(length).ok_or(Errno::NAMETOOLONG)? = 0;
    CStr::from_bytes_until_nul(buffer).map_err(|_| Errno::NAMETOOLONG)
}

/// Reads as many entries of a directory as fit into `buffer`, with `getdents64`; none at the end.
pub fn getdents(directory: Fd, buffer: &mut [u8]) -> Result<Entries<'_>> {
    let length = raw::getdents64(directory, buffer)?;
    Ok(Entries { rest: buffer.get(..length).unwrap_or_default() })
}

/// The entries that [`getdents`] has read.
pub struct Entries<'a> {
    rest: &'a [u8],
}

impl Entries<'_> {
    /// Returns whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

impl<'a> Iterator for Entries<'a> {
    /// A name, and the position of the next entry in the directory.
    type Item = (&'a CStr, u64);

    fn next(&mut self) -> Option<Self::Item> {
        // `struct linux_dirent64`: inode, position of the next entry, length of this one, type, name.
        let offset = u64::from_ne_bytes(*self.rest.get(8..)?.first_chunk()?);
        let length = u16::from_ne_bytes(*self.rest.get(16..)?.first_chunk()?);
        let (entry, rest) = self.rest.split_at_checked(length.into())?;
        self.rest = rest;
        Some((CStr::from_bytes_until_nul(entry.get(19..)?).ok()?, offset))
    }
}
