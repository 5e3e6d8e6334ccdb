//! Digests of files that this machine has read before, by the files' identity, so that unchanged files need not be read
//! again.
//!
//! The kernel changes a file's ctime with each change of its content or attributes, and no user can set it. A change
//! within the same tick of the clock leaves it as it was. So the digest of a file that was changed shortly before it was
//! read is not kept.
//!
//! The index is a file in the user's cache directory. Only the user and root can write to it; otherwise it is ignored.

use super::digest::Digest;
use crate::trust::distrust;
use husk_script::sys::tolerate;
use rustix::fs::{Mode, OFlags, Stat, fstat, open};
use rustix::process::{getegid, geteuid};
use std::collections::HashMap;
use std::env;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A file that was changed more recently than this might be changed again with the same times. Some file systems count
/// in seconds.
const RACY: Duration = Duration::from_secs(3);

/// Above this number of records, those that were not used are dropped.
const MOST_RECORDS: usize = 300_000;

/// The state of a file. If it is the same as before, so is the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    pub(crate) size: u64,
    /// Nanoseconds since 1970.
    modified: i64,
    changed: i64,
}

const NUMBERS: usize = 5 * 8;
const RECORD: usize = NUMBERS + 32;

impl Identity {
    pub(crate) fn of(stat: &Stat) -> Self {
        let nanoseconds = |seconds: i64, rest| {
            seconds.saturating_mul(1_000_000_000).saturating_add(i64::try_from(rest).unwrap_or_default())
        };
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            modified: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            changed: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    fn numbers(&self) -> [u64; 5] {
        [self.device, self.inode, self.size, self.modified.cast_unsigned(), self.changed.cast_unsigned()]
    }

    fn is_racy(&self, now: Duration) -> bool {
        let now = i64::try_from(now.saturating_sub(RACY).as_nanos()).unwrap_or(i64::MAX);
        self.modified.max(self.changed) >= now
    }
}

/// The digests that are known.
#[derive(Default)]
pub(crate) struct Index {
    path: Option<PathBuf>,
    known: HashMap<Identity, (Digest, Used)>,
    is_changed: bool,
    /// Files whose digests were not kept because they had just been changed.
    racy: Vec<(PathBuf, Identity, Digest)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Used {
    Yes,
    No,
}

impl Index {
    /// Reads the user's index. An index that cannot be used counts as empty.
    pub(crate) fn open() -> Self {
        let base = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let home = || crate::sandbox::probe::caller_home().map(|home| home.join(".cache"));
        let path = base.or_else(home).map(|base| base.join("husk/digests"));
        let known = path.as_deref().and_then(read).unwrap_or_default();
        Self { path, known, ..Self::default() }
    }

    /// Returns the digest of a regular file, which must have this identity.
    pub(crate) fn digest(&mut self, path: &Path, identity: Identity) -> io::Result<Digest> {
        if let Some((digest, used)) = self.known.get_mut(&identity) {
            *used = Used::Yes;
            return Ok(*digest);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let digest = read_whole(path, identity)?;
        if identity.is_racy(now) {
            self.racy.push((path.to_owned(), identity, digest));
        } else {
            self.known.insert(identity, (digest, Used::Yes));
            self.is_changed = true;
        }
        Ok(digest)
    }

    /// Returns a file whose content has changed since its digest was returned, although its identity may be the same.
    pub(crate) fn changed(&self) -> Option<&Path> {
        let changed = |(path, identity, digest): &&(PathBuf, Identity, Digest)| {
            !read_whole(path, *identity).is_ok_and(|found| found == *digest)
        };
        self.racy.iter().find(changed).map(|(path, ..)| path.as_path())
    }

    /// Writes the index if it has changed.
    pub(crate) fn save(&mut self) -> io::Result<()> {
        let Some(path) = self.path.as_ref().filter(|_| self.is_changed) else { return Ok(()) };
        if self.known.len() > MOST_RECORDS {
            self.known.retain(|_, (_, used)| *used == Used::Yes);
        }
        let mut bytes = Vec::with_capacity((self.known.len() + 1) * RECORD);
        for (identity, (digest, _)) in &self.known {
            identity.numbers().iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
            bytes.extend_from_slice(&digest.0);
        }
        bytes.extend_from_slice(&Digest::of(&bytes).0);
        let directory = path.parent().ok_or(ErrorKind::InvalidInput)?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let random = RandomState::new().build_hasher().finish();
        let new = directory.join(format!("digests.new-{random:016x}"));
        let mut file = File::options().create_new(true).write(true).mode(0o600).open(&new)?;
        let placed = file.write_all(&bytes).and_then(|()| fs::rename(&new, path));
        if placed.is_err() {
            tolerate(fs::remove_file(&new), "the write has failed");
        }
        self.is_changed = false;
        placed
    }
}

/// Reads the index. Returns `None` if it is damaged, or if another user could have written it.
fn read(path: &Path) -> Option<HashMap<Identity, (Digest, Used)>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty()).ok()?;
    let stat = fstat(&file).ok()?;
    if distrust(&stat, (geteuid().as_raw(), getegid().as_raw())).is_some() {
        return None;
    }
    let mut bytes = Vec::new();
    File::from(file).read_to_end(&mut bytes).ok()?;
    let (records, digest) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
    if digest != Digest::of(records).0 {
        return None;
    }
    records.chunks(RECORD).map(record).collect()
}

fn record(bytes: &[u8]) -> Option<(Identity, (Digest, Used))> {
    let (numbers, digest) = bytes.split_at_checked(NUMBERS)?;
    let mut numbers =
        numbers.chunks(8).filter_map(|number| Some(u64::from_le_bytes(number.try_into().ok()?)));
    let mut next = || numbers.next();
    let identity = Identity {
        device: next()?,
        inode: next()?,
        size: next()?,
        modified: next()?.cast_signed(),
        changed: next()?.cast_signed(),
    };
    Some((identity, (Digest(digest.try_into().ok()?), Used::No)))
}

/// Reads a file to its end. Fails if it is not the file with this identity, or changes while it is read.
fn read_whole(path: &Path, identity: Identity) -> io::Result<Digest> {
    let changed = || io::Error::other("the file has changed");
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty())?;
    let is_same = |file: &_| fstat(file).is_ok_and(|stat| Identity::of(&stat) == identity);
    if !is_same(&file) {
        return Err(changed());
    }
    let file = File::from(file);
    let (digest, size) = Digest::of_stream(&file)?;
    // Files of procfs and the like have more or less content than their size says.
    (size == identity.size && fstat(&file).is_ok_and(|stat| Identity::of(&stat) == identity))
        .then_some(digest)
        .ok_or_else(changed)
}

#[cfg(test)]
mod tests {
    use super::{Digest, Identity, Index};
    use rustix::fs::stat;
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;
    use tempfile::TempDir;

    fn index(directory: &TempDir) -> Index {
        let path = directory.path().join("husk/digests");
        Index { known: super::read(&path).unwrap_or_default(), path: Some(path), ..Index::default() }
    }

    #[test]
    fn digest_is_kept_by_the_identity_of_the_file() {
        let directory = TempDir::new().unwrap();
        // A file that was not changed for long.
        let path = fs::canonicalize("/usr/bin/env").unwrap();
        let identity = Identity::of(&stat(&path).unwrap());
        let mut first = index(&directory);
        let digest = first.digest(&path, identity).unwrap();
        assert_eq!(digest, Digest::of(&fs::read(&path).unwrap()));
        first.save().unwrap();
        let mut second = index(&directory);
        assert_eq!(second.known.len(), 1);
        // It is not read again.
        assert_eq!(second.digest("/no/such".as_ref(), identity).unwrap(), digest);
        // A damaged index, and one that others may write to, count as empty.
        let file = directory.path().join("husk/digests");
        let bytes = fs::read(&file).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(index(&directory).known.is_empty());
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let mut damaged = bytes.clone();
        damaged[70] ^= 1;
        for bytes in [&bytes[1..], &damaged, &[]] {
            fs::write(&file, bytes).unwrap();
            assert!(index(&directory).known.is_empty());
        }
    }

    #[test]
    fn file_that_has_just_changed_is_read_again() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "one").unwrap();
        let identity = Identity::of(&stat(&path).unwrap());
        let mut index = index(&directory);
        let one = index.digest(&path, identity).unwrap();
        assert!(index.known.is_empty());
        assert_eq!(index.changed(), None);
        fs::write(&path, "two").unwrap();
        assert_eq!(index.changed(), Some(&*path));
        let two = index.digest(&path, Identity::of(&stat(&path).unwrap())).unwrap();
        assert_ne!(one, two);
        // The identity must be that of the file.
        fs::File::options().append(true).open(&path).unwrap().write_all(b"!").unwrap();
        assert!(index.digest(&path, identity).is_err());
    }

    #[test]
    fn identity_is_racy_for_some_seconds() {
        let identity = Identity { device: 1, inode: 1, size: 1, modified: 0, changed: 10_000_000_000 };
        assert!(identity.is_racy(Duration::from_secs(12)));
        assert!(identity.is_racy(Duration::from_secs(5)));
        assert!(!identity.is_racy(Duration::from_secs(14)));
    }
}
