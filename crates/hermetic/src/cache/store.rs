//! The store: a directory of small files, each named by the digest of its key. Any file system can hold it, and several
//! machines can share it.
//!
//! A file appears under its name whole or not at all, because it is renamed into place. Two writers of one key write
//! equivalent entries, so it does not matter which is last. Nothing is locked and nothing is synchronized to disk: an
//! entry that a crash has damaged does not have the digest at its end, and counts as absent.
//!
//! A user who can write to the store can make a test appear to have passed. So a directory that every user can write
//! to is refused. A directory of another user or a group is accepted, because the caller has named it. It is refused
//! where every user could have made it, such as in `/tmp`. There, the name says nothing about the owner.

use super::digest::Digest;
use super::entry::{MOST_OUTPUT, Remembered};
use crate::error::Error;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, mkdirat, open, openat, renameat, stat, statat,
    unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;

/// The version of the format, which is the name of a directory in the store.
const VERSION: &str = "v1";

/// No entry is longer than this.
const MOST_BYTES: u64 = MOST_OUTPUT as u64 + 4096;

pub(crate) struct Store {
    directory: OwnedFd,
}

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::RDONLY).union(OFlags::CLOEXEC);

impl Store {
    /// Opens the store, and creates it if it is missing.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let failed = |error: io::Error| Error::Look {
            act: format!("open the cache {}", path.display()),
            reason: error.into(),
        };
        fs::create_dir_all(path).map_err(failed)?;
        let outer = open(path, DIRECTORY, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        let forgers = "who could make tests appear to have passed";
        let refused = |path: &Path| {
            let path = path.display();
            Error::Setting(format!(
                "the cache {path} is writable by all users, {forgers}; remove that permission"
            ))
        };
        if is_public(&fstat(&outer).map_err(|errno| failed(errno.into()))?) {
            return Err(refused(path));
        }
        let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let named = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).map_err(|errno| failed(errno.into()))?;
        let is_own = [0, geteuid().as_raw()].contains(&named.st_uid);
        if !is_own && is_public(&stat(above).map_err(|errno| failed(errno.into()))?) {
            return Err(Error::Setting(format!(
                "the cache {} was made by another user in a directory where all users can, {forgers}; choose another one",
                path.display()
            )));
        }
        // Without permission to write, the store still serves what it has.
        let directory = match below(&outer, VERSION) {
            Err(Errno::ROFS | Errno::ACCESS | Errno::PERM) => outer,
            directory => directory.map_err(|errno| failed(errno.into()))?,
        };
        if is_public(&fstat(&directory).map_err(|errno| failed(errno.into()))?) {
            return Err(refused(&path.join(VERSION)));
        }
        Ok(Self { directory })
    }

    /// Returns the entry of a key. A damaged or foreign file counts as absent.
    pub(crate) fn find(&self, key: Digest) -> Option<Remembered> {
        let (directory, name) = place(key);
        let directory =
            openat(&self.directory, directory, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()).ok()?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = openat(&directory, name, flags, Mode::empty()).ok()?;
        let stat = fstat(&file).ok()?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !is_file || is_public(&stat) || is_public(&fstat(&directory).ok()?) {
            return None;
        }
        let mut bytes = Vec::new();
        File::from(file).take(MOST_BYTES + 1).read_to_end(&mut bytes).ok()?;
        Remembered::from_bytes(&bytes, key)
    }

    pub(crate) fn write(&self, key: Digest, entry: &Remembered) -> io::Result<()> {
        let (directory, name) = place(key);
        let directory = below(&self.directory, &directory)?;
        // The name is unpredictable, so writers on all machines have names of their own.
        let random = RandomState::new().build_hasher().finish();
        let new = format!(".new-{}-{random:016x}", std::process::id());
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&directory, &new, flags, Mode::from_raw_mode(0o644))?);
        let written = file.write_all(&entry.to_bytes(key));
        let placed = written.and_then(|()| Ok(renameat(&directory, &new, &directory, &name)?));
        if placed.is_err() {
            husk_script::sys::tolerate(unlinkat(&directory, &new, AtFlags::empty()), "the write has failed");
        }
        placed
    }

    /// Removes the entry of a key that was found to be wrong.
    pub(crate) fn remove(&self, key: Digest) -> io::Result<()> {
        let (directory, name) = place(key);
        let directory = openat(&self.directory, directory, DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
        match directory.and_then(|directory| unlinkat(&directory, name, AtFlags::empty())) {
            Err(Errno::NOENT) => Ok(()),
            removed => Ok(removed?),
        }
    }
}

/// Whether every user can write to it.
fn is_public(stat: &Stat) -> bool {
    stat.st_mode & 0o002 != 0
}

/// Returns the directory and the name of a key's file.
fn place(key: Digest) -> (String, String) {
    let mut directory = key.to_string();
    let name = directory.split_off(2);
    (directory, name)
}

/// Opens a directory, and creates it if it is missing.
fn below(directory: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    let open = || openat(directory, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
    match open() {
        Err(Errno::NOENT) => match mkdirat(directory, name, Mode::from_raw_mode(0o775)) {
            Ok(()) | Err(Errno::EXIST) => open(),
            Err(errno) => Err(errno),
        },
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use super::{Digest, Remembered, Store};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::thread;
    use tempfile::TempDir;

    fn files(directory: &TempDir) -> Vec<std::path::PathBuf> {
        let entries = fs::read_dir(directory.path().join("v1")).unwrap();
        let below = entries.flat_map(|entry| fs::read_dir(entry.unwrap().path()).unwrap());
        below.map(|entry| entry.unwrap().path()).collect()
    }

    #[test]
    fn damaged_and_foreign_entries_are_absent() {
        let directory = TempDir::new().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let (key, entry) =
            (Digest::of(b"a"), Remembered { out: vec![b"out".to_vec()], ..Remembered::default() });
        assert_eq!(store.find(key), None);
        store.write(key, &entry).unwrap();
        assert_eq!(store.find(key), Some(entry.clone()));
        let file = files(&directory).pop().unwrap();
        let bytes = fs::read(&file).unwrap();
        fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(store.find(key), None);
        // A directory, a symlink and a FIFO in its place.
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert_eq!(store.find(key), None);
        fs::remove_dir(&file).unwrap();
        fs::write(directory.path().join("elsewhere"), &bytes).unwrap();
        symlink(directory.path().join("elsewhere"), &file).unwrap();
        assert_eq!(store.find(key), None);
        // An entry of another key.
        fs::remove_file(&file).unwrap();
        fs::write(&file, entry.to_bytes(Digest::of(b"b"))).unwrap();
        assert_eq!(store.find(key), None);
        // The next run repairs it.
        store.write(key, &entry).unwrap();
        assert_eq!(store.find(key), Some(entry));
        store.remove(key).unwrap();
        store.remove(key).unwrap();
        assert_eq!(store.find(key), None);
    }

    #[test]
    fn store_serves_nothing_that_all_users_could_have_written() {
        let directory = TempDir::new().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let (key, entry) = (Digest::of(b"a"), Remembered::default());
        store.write(key, &entry).unwrap();
        let file = files(&directory).pop().unwrap();
        let above = file.parent().unwrap().to_owned();
        let allow = |path: &std::path::Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap()
        };
        for (path, before) in [(&file, 0o644), (&above, 0o755)] {
            assert_eq!(store.find(key).as_ref(), Some(&entry));
            allow(path, before | 0o002);
            assert_eq!(store.find(key), None);
            allow(path, before);
        }
        allow(&directory.path().join("v1"), 0o777);
        assert!(Store::open(directory.path()).is_err());
        allow(&directory.path().join("v1"), 0o755);
        // Symlinks in place of the directories.
        let elsewhere = directory.path().join("elsewhere");
        fs::rename(&above, &elsewhere).unwrap();
        symlink(&elsewhere, &above).unwrap();
        assert_eq!(store.find(key), None);
        assert!(store.write(key, &entry).is_err() && store.remove(key).is_err());
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
        fs::rename(directory.path().join("v1"), directory.path().join("v2")).unwrap();
        symlink("v2", directory.path().join("v1")).unwrap();
        assert!(Store::open(directory.path()).is_err());
    }

    #[test]
    fn store_that_another_user_made_where_all_can_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let directory = TempDir::new().unwrap();
        let (store, link) = (directory.path().join("store"), directory.path().join("link"));
        fs::create_dir(&store).unwrap();
        symlink(&store, &link).unwrap();
        let own = |path, uid| std::os::unix::fs::lchown(path, Some(uid), Some(uid)).unwrap();
        let allow = |mode| fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
        own(&store, 1234);
        allow(0o755);
        assert!(Store::open(&store).is_ok());
        allow(0o1777);
        assert!(Store::open(&store).is_err());
        // The symlink is root's.
        assert!(Store::open(&link).is_ok());
        own(&store, 0);
        own(&link, 1234);
        assert!(Store::open(&store).is_ok() && Store::open(&link).is_err());
    }

    #[test]
    fn concurrent_writers_leave_one_whole_entry() {
        let directory = TempDir::new().unwrap();
        let key = Digest::of(b"a");
        let entry = |letter| Remembered { out: vec![vec![letter; 100_000]], ..Remembered::default() };
        thread::scope(|scope| {
            for letter in b'a'..b'e' {
                let directory = &directory;
                scope.spawn(move || {
                    let store = Store::open(directory.path()).unwrap();
                    for _ in 0..50 {
                        store.write(key, &entry(letter)).unwrap();
                        let found = store.find(key).unwrap();
                        assert!(found.out.iter().all(|byte| *byte == found.out[0]));
                    }
                });
            }
        });
        assert_eq!(files(&directory).len(), 1);
    }

    #[test]
    fn store_that_all_users_may_write_to_is_refused() {
        let directory = TempDir::new().unwrap();
        for (mode, is_refused) in [(0o1777, true), (0o777, true), (0o775, false), (0o700, false)] {
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(Store::open(directory.path()).is_err(), is_refused, "{mode:o}");
        }
    }
}
