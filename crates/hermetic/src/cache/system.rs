//! The identity of the system's directories. They have too many files to look at each for every run: 150,000 take a
//! second.
//!
//! A machine's package manager knows what it has installed, so the content of its database stands for the packages'
//! files. The programs and libraries directly in the usual directories are compared themselves, since those are
//! replaced by hand. So are the names of packages that Python's and JavaScript's own tools install.
//!
//! A change of another file in place, past the package manager, is not noticed. `--strict` compares every file, and so
//! does a machine whose package manager is unknown.

use super::digest::{Digest, Fields};
use super::index::{Identity, Index};
use super::walk::{Entry, EntryKind, Found, Selection, status};
use rustix::fs::FileType;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// The databases of package managers: dpkg, apk, rpm and pacman.
const DATABASES: &[&str] = &[
    "/var/lib/dpkg/status",
    "/lib/apk/db/installed",
    "/usr/lib/apk/db/installed",
    "/var/lib/rpm/rpmdb.sqlite",
    "/var/lib/rpm/Packages.db",
    "/var/lib/rpm/Packages",
    "/usr/lib/sysimage/rpm/rpmdb.sqlite",
    "/usr/lib/sysimage/rpm/Packages.db",
    "/var/lib/pacman/local",
];

/// Directories whose own files are compared, with one `*` for any name.
const COMPARED: &[&str] = &[
    "/usr/bin",
    "/usr/sbin",
    "/usr/libexec",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/lib/*-linux-gnu",
    "/usr/lib/*-linux-gnueabihf",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
];

/// Directories whose names are compared.
const NAMED: &[&str] = &[
    "/usr/lib/python3*/site-packages",
    "/usr/lib/python3*/dist-packages",
    "/usr/lib64/python3*/site-packages",
    "/usr/lib/node_modules",
];

/// How closely the system's files are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closeness {
    Packages,
    EveryFile,
}

/// The files that were compared, in the state that they had.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct System {
    entries: BTreeMap<PathBuf, Entry>,
    names: Vec<PathBuf>,
}

impl System {
    /// Looks at the system. Returns a reason if its directories have files that neither packages nor directories account
    /// for.
    pub(crate) fn look(closeness: Closeness, directories: &[PathBuf]) -> io::Result<Result<Self, String>> {
        if let Some(mount) = mount_below(directories)? {
            return Ok(Err(format!("a file system is mounted at {}", mount.display())));
        }
        let mut found = Found::default();
        let mut names = Vec::new();
        let database = DATABASES.iter().map(Path::new).find(|path| path.exists());
        let is_shown = |path: &Path| directories.iter().any(|directory| path.starts_with(directory));
        match (database, closeness) {
            (Some(database), Closeness::Packages) => {
                if database.is_dir() {
                    names.extend(listed(database)?);
                } else {
                    found.add(database, &Selection::Everything)?;
                }
                for directory in COMPARED.iter().flat_map(|path| matching(path)).filter(|path| is_shown(path))
                {
                    add_files(&directory, &mut found)?;
                }
                for directory in NAMED.iter().flat_map(|path| matching(path)).filter(|path| is_shown(path)) {
                    names.extend(listed(&directory)?);
                }
            }
            _ => {
                for directory in directories {
                    found.add(directory, &Selection::Everything)?;
                }
            }
        }
        names.sort();
        Ok(Ok(Self { entries: found.entries, names }))
    }

    pub(crate) fn digest(&self, index: &mut Index, owner: (u32, u32)) -> Result<Digest, String> {
        let mut digest = Fields::default();
        digest_entries(&self.entries, index, owner, &mut digest)?;
        digest.add_all(self.names.iter().map(|name| name.as_os_str().as_bytes()));
        Ok(digest.finish())
    }
}

/// Adds the digests of files, and what the program sees of their attributes. Times and inode numbers are not part of it,
/// so equal files on two machines have the same digest.
pub(crate) fn digest_entries(
    entries: &BTreeMap<PathBuf, Entry>,
    index: &mut Index,
    (uid, gid): (u32, u32),
    digest: &mut Fields,
) -> Result<(), String> {
    for (path, entry) in entries {
        let kind = match &entry.kind {
            EntryKind::File => b"f",
            EntryKind::Directory => b"d",
            EntryKind::Link(_) => b"l",
        };
        // The program sees all other owners as nobody.
        let owners = [u8::from(entry.uid == uid), u8::from(entry.gid == gid)];
        digest.add(path.as_os_str().as_bytes()).add(kind).add(owners).add(entry.mode.to_le_bytes());
        match &entry.kind {
            EntryKind::Link(target) => {
                digest.add(target.as_os_str().as_bytes());
            }
            EntryKind::File => match index.digest(path, entry.identity) {
                Ok(content) => {
                    digest.add(content.0);
                }
                // The program has the caller's ids and no more privileges, so it cannot read the file either.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    digest.add(b"unreadable");
                }
                Err(error) => return Err(format!("read {}: {error}", path.display())),
            },
            _ => {}
        }
    }
    Ok(())
}

/// Returns a mount point below one of these directories. Its files belong to no package.
fn mount_below(directories: &[PathBuf]) -> io::Result<Option<PathBuf>> {
    let mounts = fs::read("/proc/self/mountinfo")?;
    let points =
        mounts.split(|byte| *byte == b'\n').filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    let mut points = points.map(|point| PathBuf::from(OsString::from_vec(unescaped(point))));
    let is_below = |point: &PathBuf| directories.iter().any(|directory| point.starts_with(directory));
    Ok(points.find(is_below))
}

/// Undoes the kernel's octal escapes of spaces and line breaks.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let number = after.get(..3).filter(|_| first == b'\\');
        let number = number.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(number.unwrap_or(first));
        rest = if number.is_some() { after.get(3..).unwrap_or_default() } else { after };
    }
    bytes
}

fn matching(pattern: &str) -> Vec<PathBuf> {
    if !pattern.contains('*') {
        return vec![pattern.into()];
    }
    glob::glob(pattern).into_iter().flatten().flatten().collect()
}

/// Returns the paths in a directory, which may be missing.
fn listed(directory: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.map(|entry| Ok(entry?.path())).collect(),
    }
}

/// Adds the files and symlinks in a directory, but nothing of its directories.
fn add_files(directory: &Path, found: &mut Found) -> io::Result<()> {
    for path in listed(directory)? {
        let stat = status(&path)?;
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => EntryKind::File,
            FileType::Symlink => EntryKind::Link(fs::read_link(&path)?),
            _ => continue,
        };
        let (mode, uid, gid) = (stat.st_mode & 0o7777, stat.st_uid, stat.st_gid);
        found.entries.insert(path, Entry { kind, identity: Identity::of(&stat), mode, uid, gid });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Closeness, System, mount_below, unescaped};
    use std::path::PathBuf;

    #[test]
    fn escapes_of_mount_points_are_undone() {
        assert_eq!(unescaped(b"/a\\040b\\134c"), b"/a b\\c");
        assert_eq!(unescaped(b"/a\\"), b"/a\\");
        assert_eq!(mount_below(&["/proc".into()]).unwrap(), Some(PathBuf::from("/proc")));
        assert_eq!(mount_below(&["/no/such".into()]).unwrap(), None);
    }

    #[test]
    fn strict_comparison_has_every_file() {
        let directories = [PathBuf::from("/usr/include")];
        let look = |closeness| System::look(closeness, &directories).unwrap().unwrap();
        let (packages, all) = (look(Closeness::Packages), look(Closeness::EveryFile));
        assert!(packages.entries.keys().all(|path| !path.starts_with("/usr/include")));
        assert!(all.entries.contains_key(&directories[0]) || !directories[0].exists());
        assert_eq!(all, look(Closeness::EveryFile));
    }
}
