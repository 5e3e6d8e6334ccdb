//! Finds the files that inputs select. Symlinks are not followed: in the sandbox they lead where the sandbox leads them.
//!
//! A directory of which everything is selected is mounted as a whole. Of other directories, each file is mounted alone.
//! FIFOs, sockets, devices and directories that the caller may not list are never shown, because their content cannot be
//! in a key.

use super::index::Identity;
use crate::host::HostFile;
use crate::tools::Link;
use glob::{MatchOptions, Pattern};
use rustix::fs::{AtFlags, CWD, FileType, Stat, statat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// `*` stays within a directory, and also matches hidden files.
const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// No path has more symlinks (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// A file that the program can see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: EntryKind,
    pub(crate) identity: Identity,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    File,
    Directory,
    Link(PathBuf),
}

/// The files that are selected at or below a path.
#[derive(Clone, Debug)]
pub(crate) enum Selection {
    Everything,
    Matching(Pattern),
}

/// The files that were found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) entries: BTreeMap<PathBuf, Entry>,
    pub(crate) trees: Vec<HostFile>,
    pub(crate) links: Vec<Link>,
    /// Paths that are not shown.
    pub(crate) excluded: Vec<PathBuf>,
}

/// A mount or symlink that shows a path.
enum Shown {
    Tree(HostFile),
    Link(Link),
}

impl Found {
    /// Adds a path, which may contain symlinks, and what is selected below it. A path that does not exist is left out.
    pub(crate) fn add(&mut self, path: &Path, selection: &Selection) -> io::Result<()> {
        let Some(path) = self.resolve(path)? else { return Ok(()) };
        let mut shown = Vec::new();
        self.walk(path, selection, &mut shown)?;
        for shown in shown {
            match shown {
                Shown::Tree(tree) => self.trees.push(tree),
                Shown::Link(link) => self.links.push(link),
            }
        }
        Ok(())
    }

    /// Removes trees inside other trees, and everything that was found twice.
    pub(crate) fn simplify(&mut self) {
        let mut trees = std::mem::take(&mut self.trees);
        // A parent is before the paths below it.
        trees.sort_by(|one, other| one.path.cmp(&other.path));
        for tree in trees {
            if !self.trees.last().is_some_and(|last| tree.path.starts_with(&last.path)) {
                self.trees.push(tree);
            }
        }
        self.links.sort_by(|one, other| one.path.cmp(&other.path));
        self.links.dedup();
        let trees = &self.trees;
        self.links.retain(|link| !trees.iter().any(|tree| link.path.starts_with(&tree.path)));
    }

    /// Returns a path without symlinks, and adds the symlinks on the way to it.
    pub(crate) fn resolve(&mut self, path: &Path) -> io::Result<Option<PathBuf>> {
        let mut rest: Vec<_> = path.components().rev().map(|part| part.as_os_str().to_owned()).collect();
        let (mut found, mut links) = (PathBuf::from("/"), 0);
        while let Some(part) = rest.pop() {
            match Path::new(&part).components().next() {
                None | Some(Component::RootDir | Component::CurDir | Component::Prefix(_)) => continue,
                Some(Component::ParentDir) => {
                    found.pop();
                    continue;
                }
                Some(Component::Normal(_)) => found.push(&part),
            }
            let stat = match status(&found) {
                Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => return Ok(None),
                stat => stat?,
            };
            if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
                continue;
            }
            links += 1;
            if links > MOST_LINKS {
                return Ok(None);
            }
            let target = fs::read_link(&found)?;
            self.entry(&found, EntryKind::Link(target.clone()), &stat);
            self.links.push(Link { path: found.clone(), target: target.clone() });
            found = if target.is_absolute() { PathBuf::from("/") } else { parent(&found) };
            rest.extend(target.components().rev().map(|part| part.as_os_str().to_owned()));
        }
        Ok(Some(found))
    }

    fn entry(&mut self, path: &Path, kind: EntryKind, stat: &Stat) {
        let (mode, uid, gid) = (stat.st_mode & 0o7777, stat.st_uid, stat.st_gid);
        let entry = Entry { kind, identity: Identity::of(stat), mode, uid, gid };
        self.entries.insert(path.to_owned(), entry);
    }

    /// Adds what is selected at and below a path. Returns whether that is everything; `shown` then has one tree more.
    fn walk(&mut self, path: PathBuf, selection: &Selection, shown: &mut Vec<Shown>) -> io::Result<bool> {
        if self.excluded.contains(&path) {
            return Ok(false);
        }
        let is_selected = match selection {
            Selection::Everything => true,
            Selection::Matching(pattern) => {
                path.to_str().is_some_and(|path| pattern.matches_with(path, OPTIONS))
            }
        };
        let stat = match status(&path) {
            // It was removed after its directory was listed, whose times show that.
            Err(Errno::NOENT) => return Ok(false),
            stat => stat?,
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                // A pattern can match a directory: then it stands for everything in it.
                let selection = if is_selected { &Selection::Everything } else { selection };
                return self.walk_directory(path, is_selected, &stat, selection, shown);
            }
            FileType::RegularFile if is_selected => {
                self.entry(&path, EntryKind::File, &stat);
                shown.push(Shown::Tree(HostFile { path, is_directory: false, mode: 0o644 }));
            }
            FileType::Symlink if is_selected => {
                let target = fs::read_link(&path)?;
                self.entry(&path, EntryKind::Link(target.clone()), &stat);
                shown.push(Shown::Link(Link { path, target }));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn walk_directory(
        &mut self,
        path: PathBuf,
        is_selected: bool,
        stat: &Stat,
        selection: &Selection,
        shown: &mut Vec<Shown>,
    ) -> io::Result<bool> {
        let names = match fs::read_dir(&path) {
            // The program could still open files in it whose names it knows, so it is not shown.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(false),
            names => names?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?,
        };
        let (before, mut is_whole) = (shown.len(), is_selected);
        for name in names {
            is_whole &= self.walk(name, selection, shown)?;
        }
        if is_selected {
            self.entry(&path, EntryKind::Directory, stat);
        }
        if is_whole {
            shown.truncate(before);
            shown.push(Shown::Tree(HostFile { path, is_directory: true, mode: 0o755 }));
        }
        Ok(is_whole)
    }
}

fn parent(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("/")).to_owned()
}

pub(crate) fn status(path: &Path) -> Result<Stat, Errno> {
    statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
}

/// Splits a glob into the directories before its first special character, and what it selects below them.
pub(crate) fn split(glob: &Path, directory: &Path) -> Result<(PathBuf, Selection), String> {
    let is_special = |part: &Component<'_>| {
        part.as_os_str().to_string_lossy().chars().any(|char| matches!(char, '*' | '?' | '['))
    };
    let base: PathBuf = glob.components().take_while(|part| !is_special(part)).collect();
    let rest: PathBuf = glob.components().skip(base.components().count()).collect();
    let base = directory.join(base);
    if rest.as_os_str().is_empty() || rest == Path::new("**") {
        return Ok((base, Selection::Everything));
    }
    let text = rest.to_str().ok_or("is not UTF-8")?;
    // The walk begins at the base without symlinks.
    let real = fs::canonicalize(&base).unwrap_or_else(|_| base.clone());
    let real = real.to_str().ok_or("its directory is not UTF-8")?;
    let pattern = format!("{}/{text}", Pattern::escape(real.trim_end_matches('/')));
    let pattern = Pattern::new(&pattern).map_err(|error| error.msg.to_owned())?;
    Ok((base, Selection::Matching(pattern)))
}

#[cfg(test)]
mod tests {
    use super::{Found, Selection, split};
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::{Path, PathBuf};
    use tempfile::TempDir;

    /// Returns what a glob shows of a directory: trees, links and entries, relative to it.
    fn shown(directory: &Path, glob: &str, excluded: &[&str]) -> [Vec<String>; 3] {
        let mut found = Found {
            excluded: excluded.iter().map(|path| directory.join(path)).collect(),
            ..Found::default()
        };
        let (base, selection) = split(Path::new(glob), directory).unwrap();
        found.add(&base, &selection).unwrap();
        found.simplify();
        let below = |path: &PathBuf| path.strip_prefix(directory).unwrap().to_str().unwrap().to_owned();
        let trees = found.trees.iter().map(|tree| below(&tree.path)).collect();
        let links = found.links.iter().map(|link| below(&link.path)).collect();
        [trees, links, found.entries.keys().map(below).collect()]
    }

    #[test]
    fn globs_select_files_and_whole_directories() {
        let directory = TempDir::new().unwrap();
        let directory = fs::canonicalize(directory.path()).unwrap();
        for path in ["a/x.rs", "a/y.txt", "a/b/z.rs", "a/b/.hidden", "c/d/e/f"] {
            fs::create_dir_all(directory.join(path).parent().unwrap()).unwrap();
            fs::write(directory.join(path), path).unwrap();
        }
        symlink("/etc/passwd", directory.join("a/b/out")).unwrap();
        symlink("a/b", directory.join("to")).unwrap();
        let is = |glob: &str, wanted: [&[&str]; 3]| {
            assert_eq!(
                shown(&directory, glob, &[]),
                wanted.map(|list| list.iter().map(|&path| path.to_owned()).collect::<Vec<_>>()),
                "{glob}"
            );
        };
        is("a/x.rs", [&["a/x.rs"], &[], &["a/x.rs"]]);
        is("a/*.rs", [&["a/x.rs"], &[], &["a/x.rs"]]);
        is("**/*.rs", [&["a/b/z.rs", "a/x.rs"], &[], &["a/b/z.rs", "a/x.rs"]]);
        is("a/b/**", [&["a/b"], &[], &["a/b", "a/b/.hidden", "a/b/out", "a/b/z.rs"]]);
        is("a/b/*", [&["a/b/.hidden", "a/b/z.rs"], &["a/b/out"], &["a/b/.hidden", "a/b/out", "a/b/z.rs"]]);
        is("*/d", [&["c/d"], &[], &["c/d", "c/d/e", "c/d/e/f"]]);
        is("c", [&["c"], &[], &["c", "c/d", "c/d/e", "c/d/e/f"]]);
        // The symlink on the way is shown too.
        is("to/z.rs", [&["a/b/z.rs"], &["to"], &["a/b/z.rs", "to"]]);
        is("to/*.rs", [&["a/b/z.rs"], &["to"], &["a/b/z.rs", "to"]]);
        is("none/**", [&[], &[], &[]]);
        assert!(split(Path::new("a/[x"), &directory).is_err());
    }

    #[test]
    fn special_and_excluded_files_are_not_shown() {
        let directory = TempDir::new().unwrap();
        let directory = fs::canonicalize(directory.path()).unwrap();
        fs::create_dir_all(directory.join("a/cache")).unwrap();
        fs::create_dir(directory.join("a/b")).unwrap();
        fs::write(directory.join("a/b/file"), "").unwrap();
        mknodat(CWD, directory.join("a/fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let wanted = [vec!["a/b"], vec![], vec!["a", "a/b", "a/b/file"]];
        assert_eq!(shown(&directory, "a", &["a/cache"]), wanted);
    }

    #[test]
    fn directory_that_cannot_be_listed_is_not_shown() {
        if rustix::process::geteuid().is_root() {
            return;
        }
        let directory = TempDir::new().unwrap();
        let directory = fs::canonicalize(directory.path()).unwrap();
        fs::create_dir_all(directory.join("a/b")).unwrap();
        fs::write(directory.join("a/b/file"), "").unwrap();
        fs::write(directory.join("a/file"), "").unwrap();
        let allow =
            |mode| fs::set_permissions(directory.join("a/b"), fs::Permissions::from_mode(mode)).unwrap();
        allow(0o311);
        let found = shown(&directory, "a", &[]);
        allow(0o711);
        assert_eq!(found, [vec!["a/file"], vec![], vec!["a", "a/file"]]);
    }

    #[test]
    fn patterns_do_not_reach_into_the_names_above_them() {
        let directory = TempDir::new().unwrap();
        let directory = fs::canonicalize(directory.path()).unwrap().join("[x]*");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("f"), "").unwrap();
        assert_eq!(shown(&directory, "?", &[])[0], ["f"]);
        assert!(matches!(split(Path::new("."), &directory), Ok((_, Selection::Everything))));
    }
}
