//! Copies what a program has written to its own directories and overlays, after its end.
//!
//! The copy is made when no process of the sandbox is left. It reads below the root of the program's own file system
//! and writes below the target, both by descriptor, without following symlinks or entering other mounts. A name in the
//! sandbox can therefore lead neither of them elsewhere.

use crate::plan::SandboxPlan;
use crate::plan::stack::UPPER;
use bumpalo::Bump;
use husk_script::Step;
use husk_script::sys::tolerate;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RawMode, ResolveFlags, SeekFrom, fchmod, fstat, ftruncate, mkdirat,
    open, openat, openat2, readlinkat, seek, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The permissions that copies keep. Others could gain rights by a program that is set-user-ID.
const PERMISSIONS: RawMode = 0o777;

/// The deepest level of directories that is copied. Each level takes descriptors.
const DEEPEST: usize = 128;

/// The program's own file system, which is kept alive after the sandbox has ended.
#[derive(Clone, Debug)]
pub struct OwnFiles {
    root: Arc<OwnedFd>,
    layout: Layout,
    /// The most bytes that the program could write.
    most: Option<u64>,
}

/// The meaning of paths in the program's own file system. All are relative to its root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Layout {
    /// Directories that the program could write to, and the paths at which it saw them.
    trees: Vec<(PathBuf, PathBuf)>,
    /// Paths that existed before the program started.
    made: BTreeSet<PathBuf>,
}

/// A directory for copies.
#[derive(Debug)]
pub struct KeepDirectory(OwnedFd);

/// The numbers of files that were copied and not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The number of files and symlinks.
    pub files: u64,
    /// The number of files and directories that could not be copied: devices, sockets, pipes, unreadable ones, and what
    /// is nested too deeply.
    pub skipped: u64,
}

impl KeepDirectory {
    /// Opens an empty directory, or creates it for its owner alone.
    ///
    /// # Errors
    ///
    /// If it is not empty, not a directory, or a symlink.
    pub fn open(path: &Path) -> io::Result<Self> {
        match mkdirat(rustix::fs::CWD, path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let directory = open(path, directory_flags(), Mode::empty())?;
        match entries(&directory)?.is_empty() {
            true => Ok(Self(directory)),
            false => Err(io::Error::other("is not empty")),
        }
    }
}

impl OwnFiles {
    /// Returns the files below the root that the first process has sent.
    pub(crate) fn new(root: Arc<OwnedFd>, plan: &SandboxPlan) -> Self {
        let memory = Bump::new();
        // Cannot fail: the sandbox has performed the same plan.
        let layout = plan.plan(&memory).map(|steps| Layout::of(plan, &steps)).unwrap_or_default();
        Self { root, layout, most: plan.profile.limits.disk }
    }

    /// Copies the files to a directory, each to the path at which the program saw it.
    ///
    /// # Errors
    ///
    /// If a file cannot be written, or the files would take more space than the program had: a file with several names
    /// is copied for each of them.
    pub fn keep(&self, to: &KeepDirectory) -> io::Result<Kept> {
        let left = self.most.unwrap_or(u64::MAX);
        let mut copy = Copy { made: &self.layout.made, left, kept: Kept::default() };
        for (source, seen) in &self.layout.trees {
            let Ok(from) = beneath(self.root.as_fd(), source.as_os_str(), directory_flags()) else {
                copy.kept.skipped += 1;
                continue;
            };
            copy.tree(&from, source, &to.0, seen)?;
        }
        Ok(copy.kept)
    }
}

impl Layout {
    fn of(plan: &SandboxPlan, steps: &husk_plan::Plan<'_>) -> Self {
        let mut layout = Self::default();
        let path = |path: &CStr| PathBuf::from(OsStr::from_bytes(path.to_bytes()));
        for (index, step) in steps.steps.iter().enumerate() {
            let origin = steps.origin(index);
            match (origin.field(), step) {
                ("own files", Step::Mkdir { path: made, .. } | Step::Symlink { path: made, .. }) => {
                    layout.made.insert(path(made));
                }
                ("own files", Step::Open { path: made, flags, .. }) if flags.contains(OFlags::CREATE) => {
                    layout.made.insert(path(made));
                }
                ("rootfs", Step::Mount { .. }) if plan.has_written_layer() => {
                    layout.trees.push((UPPER.into(), "/".into()));
                }
                ("rootfs" | "overlay" | "tools", Step::FsconfigString { key, value, .. })
                    if *key == c"upperdir" =>
                {
                    // The layer of a read-only image has only its mount points.
                    let seen = origin.subject().unwrap_or("/");
                    if origin.field() != "rootfs" || plan.has_written_layer() {
                        layout.trees.push((path(value), seen.into()));
                    }
                }
                _ => {}
            }
        }
        layout.made.insert("dev/shm".into());
        // Of the devices' directory, only the shared memory is the program's.
        layout.trees.extend(plan.covers().into_iter().map(|(seen, name)| match name {
            "dev" => ("dev/shm".into(), "/dev/shm".into()),
            name => (name.into(), seen.into()),
        }));
        // A directory comes after those that contain it.
        layout.trees.sort_by_key(|(_, seen)| seen.components().count());
        layout
    }
}

/// A copy in progress.
struct Copy<'a> {
    made: &'a BTreeSet<PathBuf>,
    /// The bytes that may still be written.
    left: u64,
    kept: Kept,
}

impl Copy<'_> {
    /// Copies a directory to this path below the target, whose parents are created.
    fn tree(&mut self, from: &OwnedFd, source: &Path, target: &OwnedFd, seen: &Path) -> io::Result<()> {
        let mut made = Vec::new();
        for component in seen.components() {
            let Component::Normal(name) = component else { continue };
            let parent = made.last().map_or(target, |(_, directory)| directory);
            let directory = ensure_directory(parent.as_fd(), name, Mode::from_raw_mode(0o755))?;
            made.push((name, directory));
        }
        let to = made.last().map_or(target, |(_, directory)| directory);
        self.directory(from, source, to, 0)?;
        // Removes what stayed empty, from the innermost directory on.
        while let Some((name, _)) = made.pop() {
            let parent = made.last().map_or(target, |(_, directory)| directory);
            tolerate(unlinkat(parent, name, AtFlags::REMOVEDIR), "it is not empty");
        }
        Ok(())
    }

    fn directory(&mut self, from: &OwnedFd, source: &Path, to: &OwnedFd, depth: usize) -> io::Result<()> {
        for name in entries(from)? {
            let path = source.join(&name);
            let stat = statat(from, &name, AtFlags::SYMLINK_NOFOLLOW)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory if depth < DEEPEST => {
                    let Ok(inner) = beneath(from.as_fd(), &name, directory_flags()) else {
                        self.kept.skipped += 1;
                        continue;
                    };
                    let copy = ensure_directory(to.as_fd(), &name, Mode::RWXU)?;
                    self.directory(&inner, &path, &copy, depth + 1)?;
                    fchmod(&copy, Mode::from_raw_mode(stat.st_mode & PERMISSIONS))?;
                    if self.made.contains(&path) {
                        tolerate(unlinkat(to, &name, AtFlags::REMOVEDIR), "it is not empty");
                    }
                }
                // A mount point, or a link that the sandbox provides.
                _ if self.made.contains(&path) => {}
                FileType::Symlink => {
                    symlinkat(readlinkat(from, &name, Vec::new())?, to, &name)?;
                    self.kept.files += 1;
                }
                FileType::RegularFile => {
                    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                    match beneath(from.as_fd(), &name, flags) {
                        Ok(file) => self.file(file, to.as_fd(), &name)?,
                        Err(_) => self.kept.skipped += 1,
                    }
                }
                _ => self.kept.skipped += 1,
            }
        }
        Ok(())
    }

    /// Copies the data of a file, but not its holes: they may be longer than any disk.
    fn file(&mut self, from: OwnedFd, directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
        let stat = fstat(&from)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (from, to) =
            (File::from(from), File::from(openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?));
        match ftruncate(&to, u64::try_from(stat.st_size).unwrap_or_default()) {
            // The target's file system has smaller files than a tmpfs.
            Err(Errno::FBIG) => {
                self.kept.skipped += 1;
                return Ok(unlinkat(directory, name, AtFlags::empty())?);
            }
            done => done?,
        }
        let (mut place, mut buffer) = (0, vec![0; 64 << 10]);
        loop {
            let hole = match seek(&from, SeekFrom::Data(place)) {
                // No data follows.
                Err(Errno::NXIO) => break,
                data => {
                    place = data?;
                    seek(&from, SeekFrom::Hole(place))?
                }
            };
            while place < hole {
                let most = usize::try_from(hole - place).unwrap_or(usize::MAX).min(buffer.len());
                let chunk = buffer.get_mut(..most).unwrap_or_default();
                let read = from.read_at(chunk, place)?;
                let bytes = chunk.get(..read).unwrap_or_default();
                let count = u64::try_from(read).unwrap_or(u64::MAX);
                self.left = self.left.checked_sub(count).ok_or_else(|| {
                    io::Error::other(
                        "the copies take more space than the program had, because files have several names",
                    )
                })?;
                if read == 0 {
                    break;
                }
                to.write_all_at(bytes, place)?;
                place += count;
            }
        }
        fchmod(&to, Mode::from_raw_mode(stat.st_mode & PERMISSIONS))?;
        self.kept.files += 1;
        Ok(())
    }
}

fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// Opens an entry of a directory without following symlinks or entering another mount.
fn beneath(directory: BorrowedFd<'_>, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    openat2(directory, name, flags, Mode::empty(), resolve)
}

/// Opens a directory of the target, and creates it if it is missing.
fn ensure_directory(parent: BorrowedFd<'_>, name: &OsStr, mode: Mode) -> io::Result<OwnedFd> {
    match mkdirat(parent, name, mode) {
        Ok(()) | Err(Errno::EXIST) => Ok(beneath(parent, name, directory_flags())?),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns the names in a directory.
fn entries(directory: &OwnedFd) -> io::Result<Vec<std::ffi::OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}
