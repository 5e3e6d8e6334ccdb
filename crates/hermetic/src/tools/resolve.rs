//! Follows a path through its symlinks, and refuses paths that another user could have led elsewhere.
//!
//! Like `PATH` itself, a shown directory is trusted. If another user can change an entry on the way to it, that user
//! chooses which of the caller's hidden files the program sees.

use crate::trust::{distrust, is_foreign};
use rustix::fs::{FileType, Stat, lstat, readlink};
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

/// As many symlinks as the kernel follows (include/linux/namei.h, `MAXSYMLINKS`).
const MOST_LINKS: usize = 40;

/// A path without symlinks, and how it was reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) path: PathBuf,
    pub(crate) is_directory: bool,
    /// The symlinks on the way that are in hidden directories.
    pub(crate) links: Vec<Link>,
}

/// A symlink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its path, in which no other symlink occurs.
    pub path: PathBuf,
    /// The text of the symlink, which may be relative.
    pub target: PathBuf,
}

/// Why a path cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It does not exist or cannot be reached.
    Missing,
    /// Another user could change it.
    Distrusted(String),
}

/// An entry of a directory.
#[derive(Clone, Debug)]
enum Entry {
    Directory,
    File,
    Link(PathBuf),
}

/// Resolves paths, and remembers the entries on the way.
pub(crate) struct Resolver {
    /// The directories that the sandbox hides.
    hidden: Vec<PathBuf>,
    /// The caller's uid and gid. Without them, every entry is trusted.
    user: Option<(u32, u32)>,
    known: BTreeMap<OsString, Result<Entry, Refusal>>,
    /// The directories of paths, as their callers name them.
    directories: BTreeMap<OsString, Result<Place, Refusal>>,
}

/// A place on the way along a path.
#[derive(Clone, Debug)]
struct Place {
    resolved: Resolved,
    /// How many symlinks led to it.
    followed: usize,
}

impl Place {
    fn root() -> Self {
        let resolved = Resolved { path: "/".into(), is_directory: true, links: Vec::new() };
        Self { resolved, followed: 0 }
    }
}

impl Resolver {
    pub(crate) fn new(hidden: Vec<PathBuf>, user: Option<(u32, u32)>) -> Self {
        Self { hidden, user, known: BTreeMap::new(), directories: BTreeMap::new() }
    }

    pub(crate) fn trust_all(&mut self) {
        self.user = None;
    }

    pub(crate) fn is_hidden(&self, path: &Path) -> bool {
        self.hidden.iter().any(|hidden| is_in(path, hidden))
    }

    /// Returns whether a path is a directory that the sandbox hides, or contains one.
    pub(crate) fn holds_hidden(&self, path: &Path) -> bool {
        self.hidden.iter().any(|hidden| is_in(hidden, path))
    }

    /// Follows an absolute path.
    pub(crate) fn resolve(&mut self, path: &Path) -> Result<Resolved, Refusal> {
        let found = match (path.parent(), path.file_name()) {
            (Some(directory), Some(name)) => {
                let directory = self.directory(directory)?;
                self.follow(directory, [name.to_owned()].into())
            }
            _ => self.follow(Place::root(), parts(path).collect()),
        };
        found.map(|place| place.resolved)
    }

    /// Follows the path of a directory, which many paths have in common.
    fn directory(&mut self, path: &Path) -> Result<Place, Refusal> {
        if let Some(known) = self.directories.get(path.as_os_str()) {
            return known.clone();
        }
        let place = self.follow(Place::root(), parts(path).collect());
        self.directories.insert(path.into(), place.clone());
        place
    }

    /// Follows a relative path from a place.
    fn follow(&mut self, from: Place, mut waiting: VecDeque<OsString>) -> Result<Place, Refusal> {
        let Place { mut resolved, mut followed } = from;
        while let Some(part) = waiting.pop_front() {
            if !resolved.is_directory {
                return Err(Refusal::Missing);
            }
            if part == ".." {
                resolved.path.pop();
                continue;
            }
            let path = resolved.path.join(&part);
            match self.entry(&path)? {
                Entry::Directory => resolved.path = path,
                Entry::File => {
                    resolved.path = path;
                    resolved.is_directory = false;
                }
                Entry::Link(target) => {
                    followed += 1;
                    if followed > MOST_LINKS {
                        return Err(Refusal::Missing);
                    }
                    if target.is_absolute() {
                        resolved.path = "/".into();
                    }
                    for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
                        waiting.push_front(part);
                    }
                    if self.is_hidden(&path) {
                        resolved.links.push(Link { path, target });
                    }
                }
            }
        }
        Ok(Place { resolved, followed })
    }

    /// Returns the entry at a path. None of the directories above it may be a symlink.
    fn entry(&mut self, path: &Path) -> Result<Entry, Refusal> {
        if let Some(known) = self.known.get(path.as_os_str()) {
            return known.clone();
        }
        let entry = self.look(path);
        self.known.insert(path.into(), entry.clone());
        entry
    }

    fn look(&self, path: &Path) -> Result<Entry, Refusal> {
        let missing = |_: Errno| Refusal::Missing;
        let stat = lstat(path).map_err(missing)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        // Visible directories may belong to anyone; only a symlink leads from them to a hidden place.
        let matters = self.is_hidden(path) || kind == FileType::Symlink;
        if let Some(why) = self.user.filter(|_| matters).and_then(|user| changeable(&stat, user)) {
            return Err(Refusal::Distrusted(format!("{} {why}", path.display())));
        }
        Ok(match kind {
            FileType::Directory => Entry::Directory,
            FileType::Symlink => {
                let target = readlink(path, Vec::new()).map_err(missing)?;
                Entry::Link(OsString::from_vec(target.into_bytes()).into())
            }
            FileType::RegularFile => Entry::File,
            _ => return Err(Refusal::Missing),
        })
    }
}

/// Returns whether a path is that of a directory or of something in it. Both must be absolute, with single slashes and
/// without `.`. It compares bytes: to compare components took a fifth of a search.
pub(crate) fn is_in(path: &Path, directory: &Path) -> bool {
    let rest = path.as_os_str().as_bytes().strip_prefix(directory.as_os_str().as_bytes());
    rest.is_some_and(|rest| rest.first().is_none_or(|first| *first == b'/') || directory.parent().is_none())
}

/// Returns the components of a path, without the root.
fn parts(path: &Path) -> impl Iterator<Item = OsString> {
    let is_part = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().filter(is_part).map(|part| part.as_os_str().to_owned())
}

/// Returns why a user other than the caller and root could change an entry, or `None`. In a directory with the sticky
/// bit, users can change only entries of their own.
fn changeable(stat: &Stat, user: (u32, u32)) -> Option<String> {
    const STICKY: u32 = 0o1000;
    let is_closed = stat.st_mode & STICKY != 0 || FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
    distrust(stat, user).filter(|_| is_foreign(stat, user.0) || !is_closed)
}

#[cfg(test)]
mod tests {
    use super::is_in;
    use std::path::Path;

    #[test]
    fn path_is_in_its_directories_only() {
        let is = |path: &str, directory: &str| is_in(Path::new(path), Path::new(directory));
        for (path, directory) in
            [("/a/b", "/a"), ("/a/b", "/a/b"), ("/a/b", "/"), ("/", "/"), ("/a/b/c", "/a")]
        {
            assert!(is(path, directory), "{path} {directory}");
        }
        for (path, directory) in [("/ab", "/a"), ("/a", "/a/b"), ("/", "/a"), ("/b/a", "/a")] {
            assert!(!is(path, directory), "{path} {directory}");
        }
    }
}
