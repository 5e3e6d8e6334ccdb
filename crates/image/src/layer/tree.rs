//! Writes the entries of a layer below a directory.
//!
//! The archive may be hostile. Every directory is resolved from the descriptor of the root with `openat2`, which follows
//! no symlink and leaves no directory. The last name is only used in calls that do not follow it. So an entry that
//! replaces a directory by a symlink gains nothing: the next entry below it is refused.
//!
//! Directories get their permissions and times at the end, because entries below them would change the times.

mod metadata;
pub(crate) mod remove;

use super::Failure;
use super::names::{self, Name, join, split};
use super::sparse::Sparse;
use crate::error::Problem;
use metadata::Metadata;
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, chownat, fsetxattr, ftruncate, linkat, makedev,
    mkdirat, mknodat, openat, openat2, statat, symlinkat, unlinkat, utimensat,
};
use rustix::fs::{XattrFlags, chmodat, fchmod, fchown, futimens};
use rustix::io::{Errno, pwrite};
use std::collections::{BTreeMap, HashSet};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tar::{Entry, EntryType};

/// How names below the root are resolved.
const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
/// How a directory is opened that only serves to find names in it.
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// The pieces of a file of which those that are zero become holes.
const PIECE: usize = 64 << 10;
/// The attribute of a directory that hides lower layers' content (overlayfs.rst, "userxattr").
pub(crate) const OPAQUE: &str = "user.overlay.opaque";

/// To whom files belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owners {
    /// The owners in the archive.
    Archives,
    /// The caller, because no other id is mapped.
    Caller,
}

/// The treatment of files that hide others in lower layers.
pub(crate) enum Whiteouts {
    /// It stays, in the form that overlayfs knows.
    Kept,
    /// The hidden file is removed. `written` has the paths that this layer has written, which stay.
    Applied { written: HashSet<Vec<u8>> },
}

/// A directory into which a layer is written.
pub(crate) struct Tree<'a> {
    root: BorrowedFd<'a>,
    owners: Owners,
    whiteouts: Whiteouts,
    /// The directory of the last entry.
    parent: Option<(Vec<u8>, OwnedFd)>,
    /// The attributes that the directories of this layer get at the end.
    directories: BTreeMap<Vec<u8>, Pending>,
    /// The devices that were left out, because only root can make them.
    pub(crate) skipped_devices: u64,
    buffer: Vec<u8>,
}

/// The attributes that a directory gets at the end.
#[derive(Default)]
struct Pending {
    metadata: Option<Metadata>,
    is_opaque: bool,
}

/// A file to make under a name.
enum New<'a> {
    Directory,
    File,
    Symlink(&'a [u8]),
    Node(FileType, u64),
    Link(BorrowedFd<'a>, &'a [u8]),
}

impl<'a> Tree<'a> {
    pub(crate) fn new(root: BorrowedFd<'a>, owners: Owners, whiteouts: Whiteouts) -> Self {
        let (parent, directories, buffer) = (None, BTreeMap::new(), vec![0; 4 * PIECE]);
        Self { root, owners, whiteouts, parent, directories, skipped_devices: 0, buffer }
    }

    /// Writes an entry of an archive.
    pub(super) fn add(
        &mut self,
        name: &[u8],
        entry: &mut Entry<'_, impl Read>,
        sparse: Option<Sparse>,
    ) -> Result<(), Failure> {
        let mut kind = entry.header().entry_type();
        // Archives from before POSIX mark directories so.
        if matches!(kind, EntryType::Regular) && name.ends_with(b"/") {
            kind = EntryType::Directory;
        }
        if matches!(kind, EntryType::XGlobalHeader) {
            return Ok(());
        }
        let path = match names::name(name).map_err(Problem::Refused)? {
            Name::Nothing => return Ok(()),
            Name::Hidden(path) => return Ok(self.hide(&path)?),
            Name::Opaque(path) => return Ok(self.make_opaque(&path)?),
            Name::Root if kind == EntryType::Directory => Vec::new(),
            Name::Root => return Err(refused("replaces the root directory")),
            Name::Path(path) => path,
        };
        let metadata = Metadata::of(entry)?;
        match kind {
            EntryType::Directory => self.directory(&path, metadata)?,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => match sparse {
                Some(sparse) => {
                    let (stored, size) = (entry.size(), sparse.size);
                    self.file(&path, &metadata, &mut sparse.content(entry, stored)?, size)?;
                }
                None => {
                    let size = entry.size();
                    self.file(&path, &metadata, entry, size)?;
                }
            },
            EntryType::Symlink => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                if target.is_empty() || target.contains(&0) {
                    return Err(refused("is a symlink without a target"));
                }
                self.make(&path, &New::Symlink(&target))?;
                self.set_all(&path, &metadata, Kind::Symlink)?;
            }
            EntryType::Link => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                self.link(&path, &target)?;
            }
            EntryType::Fifo => {
                self.make(&path, &New::Node(FileType::Fifo, 0))?;
                self.set_all(&path, &metadata, Kind::Node)?;
            }
            EntryType::Char | EntryType::Block => {
                let numbers = (entry.header().device_major(), entry.header().device_minor());
                let (Ok(Some(major)), Ok(Some(minor))) = numbers else {
                    return Err(refused("is a device without a number"));
                };
                let kind =
                    if kind == EntryType::Char { FileType::CharacterDevice } else { FileType::BlockDevice };
                if (major, minor) == (0, 0) {
                    return Err(refused("is a whiteout of overlayfs, which an archive cannot contain"));
                }
                self.device(&path, &metadata, kind, makedev(major, minor))?;
            }
            _ => return Err(refused("has a type that husk does not know")),
        }
        Ok(())
    }

    fn directory(&mut self, path: &[u8], metadata: Metadata) -> Result<(), Problem> {
        if !path.is_empty() {
            self.make(path, &New::Directory)?;
        }
        self.directories.entry(path.to_vec()).or_default().metadata = Some(metadata);
        Ok(())
    }

    fn file(
        &mut self,
        path: &[u8],
        metadata: &Metadata,
        content: &mut impl Read,
        size: u64,
    ) -> Result<(), Failure> {
        let file = self.make(path, &New::File)?.ok_or(Problem::Refused("is not a file"))?;
        let mut at = 0;
        let mut ends_with_hole = false;
        loop {
            let read = fill(content, &mut self.buffer)?;
            if read == 0 {
                break;
            }
            for piece in self.buffer[..read].chunks(PIECE) {
                ends_with_hole = piece.len() == PIECE && piece.iter().all(|byte| *byte == 0);
                if !ends_with_hole {
                    write_at(file.as_fd(), piece, at).map_err(|errno| failed("write", errno))?;
                }
                at += piece.len() as u64;
            }
        }
        if at != size {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        if ends_with_hole {
            ftruncate(&file, at).map_err(|errno| failed("ftruncate", errno))?;
        }
        Ok(self.set_by_descriptor(file.as_fd(), metadata)?)
    }

    /// Makes a hard link to a file of the same layer. A link to a symlink is a link to the symlink itself.
    fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), Problem> {
        let target = match names::name(target) {
            Ok(Name::Path(target)) => target,
            Ok(_) => return Err(Problem::Refused("is a hard link to something that is not a file")),
            Err(_) => return Err(Problem::Refused("is a hard link to a name that a layer cannot have")),
        };
        if target == path {
            return Err(Problem::Refused("is a hard link to itself"));
        }
        let (directory, name) = split(&target);
        let directory = match directory {
            b"" => self.root.try_clone_to_owned().map_err(|reason| Problem::Failed { act: "dup", reason })?,
            directory => openat2(self.root, directory, DIRECTORY, Mode::empty(), BENEATH)
                .map_err(|errno| absent(errno, "find the target of the link"))?,
        };
        let found = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| absent(errno, "find the target of the link"))?;
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory || is_whiteout(&found) {
            return Err(Problem::Refused("is a hard link to something that is not a file"));
        }
        self.make(path, &New::Link(directory.as_fd(), name)).map(drop)
    }

    fn device(
        &mut self,
        path: &[u8],
        metadata: &Metadata,
        kind: FileType,
        number: u64,
    ) -> Result<(), Problem> {
        match self.make(path, &New::Node(kind, number)) {
            // Only root outside of user namespaces may make devices.
            Err(Problem::Failed { act: "mknod", reason })
                if reason.raw_os_error() == Some(Errno::PERM.raw_os_error()) =>
            {
                self.skipped_devices += 1;
                Ok(())
            }
            made => {
                made?;
                self.set_all(path, metadata, Kind::Node)
            }
        }
    }

    /// Makes a file, in place of an earlier one of that name. Returns the descriptor of a regular file.
    fn make(&mut self, path: &[u8], new: &New<'_>) -> Result<Option<OwnedFd>, Problem> {
        let made = {
            let parent = self.parent(path)?;
            make_in(parent, split(path).1, new)
        };
        let file = match made {
            Err(Problem::Failed { act, reason }) if is(&reason, Errno::EXIST) => {
                if !self.clear(path, matches!(new, New::Directory))? {
                    self.note(path);
                    return Ok(None);
                }
                let parent = self.parent(path)?;
                make_in(parent, split(path).1, new).map_err(|problem| match problem {
                    Problem::Failed { reason, .. } => Problem::Failed { act, reason },
                    problem => problem,
                })?
            }
            made => made?,
        };
        self.note(path);
        Ok(file)
    }

    /// Removes what has the name of a new entry. Returns false if it is a directory that the new one continues.
    fn clear(&mut self, path: &[u8], for_directory: bool) -> Result<bool, Problem> {
        let (parent, name) = (self.parent(path)?.try_clone_to_owned(), split(path).1);
        let parent = parent.map_err(|reason| Problem::Failed { act: "dup", reason })?;
        let found =
            statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|errno| failed("stat", errno))?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory if for_directory => return Ok(false),
            FileType::Directory => {
                remove::tree(parent.as_fd(), name, &mut |_| true)?;
                self.forget(path);
            }
            _ => {
                unlinkat(&parent, name, AtFlags::empty()).map_err(|errno| failed("unlink", errno))?;
                if for_directory && is_whiteout(&found) {
                    // The layer removes what lower layers have here, and makes a new directory.
                    self.directories.entry(path.to_vec()).or_default().is_opaque = true;
                }
            }
        }
        Ok(true)
    }

    /// Hides a file of lower layers.
    fn hide(&mut self, path: &[u8]) -> Result<(), Problem> {
        let name = split(path).1;
        let parent = self.parent(path)?.try_clone_to_owned();
        let parent = parent.map_err(|reason| Problem::Failed { act: "dup", reason })?;
        let found = match statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Some(FileType::from_raw_mode(found.st_mode)),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(failed("stat", errno)),
        };
        match (&self.whiteouts, found) {
            (Whiteouts::Kept, None) => {
                let mode = Mode::empty();
                mknodat(&parent, name, FileType::CharacterDevice, mode, 0)
                    .map_err(|errno| failed("make a whiteout", errno))
            }
            // The whiteout does not concern entries of its own layer (layer.md, "Whiteouts").
            (Whiteouts::Kept, Some(FileType::Directory)) => self.make_opaque(path),
            (Whiteouts::Kept, Some(_)) | (Whiteouts::Applied { .. }, None) => Ok(()),
            (Whiteouts::Applied { written }, Some(kind)) => match (written.contains(path), kind) {
                (true, FileType::Directory) => self.make_opaque(path),
                (true, _) => Ok(()),
                (false, FileType::Directory) => {
                    remove::tree(parent.as_fd(), name, &mut |_| true)?;
                    self.parent = None;
                    Ok(())
                }
                (false, _) => {
                    unlinkat(&parent, name, AtFlags::empty()).map_err(|errno| failed("unlink", errno))
                }
            },
        }
    }

    /// Hides what lower layers have in a directory.
    fn make_opaque(&mut self, path: &[u8]) -> Result<(), Problem> {
        let within = join(path, b"x");
        let directory = self.parent(&within)?.try_clone_to_owned();
        let directory = directory.map_err(|reason| Problem::Failed { act: "dup", reason })?;
        match &self.whiteouts {
            Whiteouts::Kept => self.directories.entry(path.to_vec()).or_default().is_opaque = true,
            Whiteouts::Applied { written } => {
                // The descriptor that finds names cannot list them.
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let directory = openat(&directory, ".", flags, Mode::empty())
                    .map_err(|errno| failed("open the directory", errno))?;
                remove::content(directory.as_fd(), path, &mut |below| !written.contains(below))?;
                self.parent = None;
            }
        }
        Ok(())
    }

    /// Returns the directory of a path, which is made where the layer does not have it.
    fn parent(&mut self, path: &[u8]) -> Result<BorrowedFd<'_>, Problem> {
        let wanted = split(path).0;
        if self.parent.as_ref().is_none_or(|(known, _)| known != wanted) {
            let fd = self.find(wanted)?;
            self.parent = Some((wanted.to_vec(), fd));
        }
        self.parent.as_ref().map(|(_, fd)| fd.as_fd()).ok_or(Problem::Refused("has no directory"))
    }

    fn find(&mut self, wanted: &[u8]) -> Result<OwnedFd, Problem> {
        if wanted.is_empty() {
            return openat(self.root, ".", DIRECTORY, Mode::empty()).map_err(|errno| failed("open", errno));
        }
        match openat2(self.root, wanted, DIRECTORY, Mode::empty(), BENEATH) {
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => self.make_parents(wanted),
            found => found.map_err(|errno| failed("open the directory", errno)),
        }
    }

    /// Opens a directory and makes it and those above it where they are missing.
    fn make_parents(&mut self, wanted: &[u8]) -> Result<OwnedFd, Problem> {
        let mut at =
            openat(self.root, ".", DIRECTORY, Mode::empty()).map_err(|errno| failed("open", errno))?;
        let mut path = Vec::new();
        for part in wanted.split(|byte| *byte == b'/') {
            path = join(&path, part);
            let open = |at: &OwnedFd| openat2(at, part, DIRECTORY, Mode::empty(), BENEATH);
            at = match open(&at) {
                Err(Errno::LOOP | Errno::NOTDIR) => {
                    self.make_way(at.as_fd(), &path, part)?;
                    make_parent(at.as_fd(), part)?;
                    open(&at)
                }
                Err(Errno::NOENT) => {
                    make_parent(at.as_fd(), part)?;
                    open(&at)
                }
                found => found,
            }
            .map_err(|errno| failed("open the directory", errno))?;
            self.note(&path);
        }
        Ok(at)
    }

    /// Removes a file that is in the place of a directory, if it is a whiteout or comes from a lower layer: there an
    /// overlay would show the directory. If this layer has put it there, the layer contradicts itself.
    fn make_way(&mut self, parent: BorrowedFd<'_>, path: &[u8], name: &[u8]) -> Result<(), Problem> {
        let found = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|errno| failed("stat", errno))?;
        match &self.whiteouts {
            Whiteouts::Kept if is_whiteout(&found) => {
                self.directories.entry(path.to_vec()).or_default().is_opaque = true;
            }
            Whiteouts::Applied { written } if !written.contains(path) => {}
            _ => return Err(Problem::Refused("is below a symlink or a file of the same layer")),
        }
        unlinkat(parent, name, AtFlags::empty()).map_err(|errno| failed("unlink", errno))
    }

    fn note(&mut self, path: &[u8]) {
        if let Whiteouts::Applied { written } = &mut self.whiteouts {
            written.insert(path.to_vec());
        }
    }

    /// Forgets a directory that was removed, and what was below it.
    fn forget(&mut self, path: &[u8]) {
        self.parent = None;
        let below = [path, b"/"].concat();
        let is_gone = |known: &[u8]| known == path || known.starts_with(&below);
        self.directories.retain(|known, _| !is_gone(known));
        if let Whiteouts::Applied { written } = &mut self.whiteouts {
            written.retain(|known| !is_gone(known));
        }
    }

    /// Sets what belongs to a file that was just made under this name, and that nobody else can exchange.
    fn set_all(&mut self, path: &[u8], metadata: &Metadata, kind: Kind) -> Result<(), Problem> {
        let owner = self.owner(metadata)?;
        let (parent, name) = (self.parent(path)?, split(path).1);
        if let Some((uid, gid)) = owner {
            chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|errno| unmapped(errno, metadata))?;
        }
        if kind == Kind::Node {
            chmodat(parent, name, metadata.mode, AtFlags::empty()).map_err(|errno| failed("chmod", errno))?;
        }
        utimensat(parent, name, &metadata.times(), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| failed("set the times", errno))
    }

    fn set_by_descriptor(&self, file: BorrowedFd<'_>, metadata: &Metadata) -> Result<(), Problem> {
        if let Some((uid, gid)) = self.owner(metadata)? {
            fchown(file, Some(uid), Some(gid)).map_err(|errno| unmapped(errno, metadata))?;
        }
        // Must follow the owner, whose change removes these bits and file capabilities.
        fchmod(file, metadata.mode).map_err(|errno| failed("chmod", errno))?;
        for (name, value) in &metadata.attributes {
            fsetxattr(file, &**name, value, XattrFlags::empty())
                .map_err(|errno| failed("set an extended attribute", errno))?;
        }
        futimens(file, &metadata.times()).map_err(|errno| failed("set the times", errno))
    }

    /// Returns the owner to set; `None` if files stay the caller's.
    fn owner(&self, metadata: &Metadata) -> Result<Option<(Uid, Gid)>, Problem> {
        if self.owners == Owners::Caller {
            return Ok(None);
        }
        let id = |id: u64| u32::try_from(id).ok().filter(|id| *id != u32::MAX);
        match (id(metadata.uid), id(metadata.gid)) {
            (Some(uid), Some(gid)) => Ok(Some((Uid::from_raw(uid), Gid::from_raw(gid)))),
            _ => Err(Problem::Refused("has an owner that no system can have")),
        }
    }

    /// Gives the directories their permissions and times. An error has the name of the directory.
    pub(super) fn finish(&mut self) -> Result<(), (Vec<u8>, Problem)> {
        self.parent = None;
        for (path, pending) in std::mem::take(&mut self.directories).into_iter().rev() {
            self.finish_directory(&path, &pending).map_err(|problem| (path, problem))?;
        }
        Ok(())
    }

    fn finish_directory(&self, path: &[u8], pending: &Pending) -> Result<(), Problem> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = if path.is_empty() { b"." } else { path };
        let directory = match openat2(self.root, path, flags, Mode::empty(), BENEATH) {
            // A later entry or whiteout removed it.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            found => found.map_err(|errno| failed("open the directory", errno))?,
        };
        if pending.is_opaque && matches!(self.whiteouts, Whiteouts::Kept) {
            fsetxattr(&directory, OPAQUE, b"y", XattrFlags::empty())
                .map_err(|errno| failed("set user.overlay.opaque", errno))?;
        }
        match &pending.metadata {
            Some(metadata) => self.set_by_descriptor(directory.as_fd(), metadata),
            None => Ok(()),
        }
    }
}

/// Makes a directory that the layer does not describe, whatever the umask.
fn make_parent(parent: BorrowedFd<'_>, name: &[u8]) -> Result<(), Problem> {
    mkdirat(parent, name, Mode::from(0o755)).map_err(|errno| failed("mkdir", errno))?;
    chmodat(parent, name, Mode::from(0o755), AtFlags::empty()).map_err(|errno| failed("chmod", errno))
}

/// The kinds of files whose attributes are set by name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Symlink,
    Node,
}

fn make_in(parent: BorrowedFd<'_>, name: &[u8], new: &New<'_>) -> Result<Option<OwnedFd>, Problem> {
    let made = |act, made: Result<(), Errno>| made.map(|()| None).map_err(|errno| failed(act, errno));
    match *new {
        // Permissions follow when the content is complete.
        New::Directory => made("mkdir", mkdirat(parent, name, Mode::from(0o755))),
        New::Symlink(target) => made("symlink", symlinkat(target, parent, name)),
        New::Node(kind, number) => made("mknod", mknodat(parent, name, kind, Mode::from(0o600), number)),
        New::Link(directory, target) => {
            made("link", linkat(directory, target, parent, name, AtFlags::empty()))
        }
        New::File => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = openat(parent, name, flags, Mode::from(0o600));
            file.map(Some).map_err(|errno| failed("create", errno))
        }
    }
}

/// Reads until the buffer is full or the content ends.
fn fill(content: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match content.read(&mut buffer[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

fn write_at(file: BorrowedFd<'_>, mut bytes: &[u8], mut at: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = pwrite(file, bytes, at)?;
        bytes = &bytes[written..];
        at += written as u64;
    }
    Ok(())
}

/// Whether a file is a whiteout of overlayfs.
fn is_whiteout(found: &rustix::fs::Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice && found.st_rdev == 0
}

fn is(reason: &io::Error, errno: Errno) -> bool {
    reason.raw_os_error() == Some(errno.raw_os_error())
}

fn refused(why: &'static str) -> Failure {
    Problem::Refused(why).into()
}

fn failed(act: &'static str, errno: Errno) -> Problem {
    Problem::Failed { act, reason: errno.into() }
}

fn absent(errno: Errno, act: &'static str) -> Problem {
    match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP => {
            Problem::Refused("is a hard link to a file that the layer does not have")
        }
        errno => failed(act, errno),
    }
}

fn unmapped(errno: Errno, metadata: &Metadata) -> Problem {
    match errno {
        Errno::INVAL => Problem::Owner { uid: metadata.uid, gid: metadata.gid },
        errno => failed("chown", errno),
    }
}
