//! The store: one directory below the root for each container, named by its ID.
//!
//! Making the directory reserves the ID: mkdir(2) is atomic, so only one of two concurrent creators succeeds. Files are
//! written under another name and renamed, so they are never seen half written.
//!
//! husk acts on what a record says. So it refuses a store that a user other than root or the caller could change
//! ([`trust`]). A record must be a regular file of root or the caller, of bounded size.

pub(crate) mod atomic;
pub(crate) mod process;
pub(crate) mod record;
mod trust;

use crate::error::{Error, MOST_BYTES, NoRecord};
use husk_script::sys::file::{LockHolder, fcntl_lock_holder};
use husk_script::sys::tolerate;
use husk_spawn::sys::Fd;
use log::debug;
use record::{Record, RecordVersion};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, fchmod, fcntl_lock, flock, fstat, mkdirat,
    openat, statat, unlinkat,
};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::Pid;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

const RECORD: &str = "state.json";
const SOCKET: &str = "start.sock";
const NOTIFY: &str = "notify";
const ROOT: &str = "root";
/// The file that tells a creator that its container has been deleted.
const DELETED: &str = "deleted";

#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

#[derive(Debug)]
pub(crate) struct Entry {
    path: PathBuf,
    directory: OwnedFd,
}

impl Store {
    /// Returns the store below `root`, an absolute path.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// Makes the directory of the container `id`, and marks it as being created.
    pub(crate) fn reserve(&self, id: &str) -> Result<Entry, Error> {
        check(id)?;
        let root = self.make()?;
        let path = self.root.join(id);
        match mkdirat(&root, id, Mode::RWXU) {
            Ok(()) => Entry::open(&root, id, path).and_then(Entry::held).inspect_err(|_| {
                // Only an empty directory is removed. A creator that has reserved the same ID since then loses nothing
                // that it has written.
                tolerate(unlinkat(&root, id, AtFlags::REMOVEDIR), "the error of opening it is reported");
            }),
            Err(Errno::EXIST) => Err(Error::Exists),
            Err(errno) => Err(Error::file("mkdir", path, errno)),
        }
    }

    /// Opens the directory of the container `id`.
    pub(crate) fn entry(&self, id: &str) -> Result<Entry, Error> {
        check(id)?;
        match self.open() {
            Ok(root) => Entry::open(&root, id, self.root.join(id)),
            Err(error) if is_missing(&error) => Err(Error::Missing),
            Err(error) => Err(error),
        }
    }

    /// Returns the IDs of all containers, sorted.
    pub(crate) fn ids(&self) -> Result<Vec<String>, Error> {
        let root = self.open()?;
        let failed = |errno| Error::file("read", &self.root, errno);
        let mut ids = Vec::new();
        for entry in Dir::new(root).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // Other names are not containers.
            let name = entry.file_name().to_str().ok().filter(|name| check(name).is_ok());
            // Some file systems do not report the type here.
            if matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
                ids.extend(name.map(str::to_owned));
            }
        }
        ids.sort();
        Ok(ids)
    }

    /// Makes the store, unless it exists, and sets its sticky bit. Otherwise a program that cleans up
    /// `$XDG_RUNTIME_DIR` may remove it (XDG Base Directory Specification).
    ///
    /// # Errors
    ///
    /// If it cannot be made, or another user could change it.
    pub fn make_sticky(&self) -> Result<(), Error> {
        let root = self.make()?;
        fchmod(root, Mode::RWXU | Mode::SVTX).map_err(|errno| Error::file("chmod", &self.root, errno))
    }

    /// Opens the directory, and makes it if it does not exist.
    fn make(&self) -> Result<OwnedFd, Error> {
        match self.open() {
            Err(error) if is_missing(&error) => {}
            opened => return opened,
        }
        let made = DirBuilder::new().mode(0o700).recursive(true).create(&self.root);
        made.map_err(|reason| Error::file("mkdir", &self.root, reason))?;
        self.open()
    }

    /// Opens the directory. Fails if a user other than root or the caller could change it.
    fn open(&self) -> Result<OwnedFd, Error> {
        let failed = |errno| Error::file("open", &self.root, errno);
        // No other user can change what this path refers to, so looking it up once more is safe.
        let path = trust::resolve(&self.root)?;
        let root = openat(CWD, &path, DIRECTORY, Mode::empty()).map_err(failed)?;
        check_directory(&self.root, &path, &root)?;
        Ok(root)
    }
}

/// The flags to open a directory that is not a symlink.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn check_directory(store: &Path, place: &Path, directory: &OwnedFd) -> Result<(), Error> {
    let found = fstat(directory).map_err(|errno| Error::file("stat", place, errno))?;
    let distrusted = |why| Error::Distrusted { store: store.to_owned(), place: place.to_owned(), why };
    trust::check(&found).map_err(distrusted)
}

/// Returns whether the error is that a file or directory does not exist.
fn is_missing(error: &Error) -> bool {
    matches!(error, Error::File { reason, .. } if reason.errno() == Some(Errno::NOENT))
}

impl Entry {
    /// Marks the directory as one whose container this process is creating, until [`release`](Self::release) or the
    /// process ends. The mark is an fcntl(2) lock: it belongs to this process and not to its children, and the kernel
    /// reports its owner. It is lost when this process closes any descriptor of the directory.
    fn held(self) -> Result<Self, Error> {
        match fcntl_lock(&self.directory, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(self),
            Err(errno) => Err(Error::file("lock", self.path, errno)),
        }
    }

    /// Removes the mark of [`held`](Self::held): the container has been created, and a deleter may leave this process
    /// alone.
    pub(crate) fn release(&self) -> Result<(), Error> {
        fcntl_lock(&self.directory, FlockOperation::NonBlockingUnlock)
            .map_err(|errno| Error::file("unlock", &self.path, errno))
    }

    /// Returns the process that is creating the container, if there is one.
    pub(crate) fn creator(&self) -> Result<Option<Pid>, Error> {
        let holder = fcntl_lock_holder(Fd::of(&self.directory));
        match holder.map_err(|errno| Error::file("find the creator of", &self.path, errno))? {
            None => Ok(None),
            Some(LockHolder::Process(pid)) => Ok(Some(pid)),
            Some(LockHolder::Elsewhere) => {
                Err(Error::State("the container is being created by a process of another pid namespace"))
            }
            // husk never takes such a lock, and no process could be told to release it.
            Some(LockHolder::Description) => {
                Err(Error::State("the container's directory is locked by a program that is not husk"))
            }
        }
    }

    fn open(root: &OwnedFd, id: &str, path: PathBuf) -> Result<Self, Error> {
        match openat(root, id, DIRECTORY, Mode::empty()) {
            Ok(directory) => {
                check_directory(path.parent().unwrap_or(&path), &path, &directory)?;
                Ok(Self { path, directory })
            }
            Err(Errno::NOENT) => Err(Error::Missing),
            Err(errno) => Err(Error::file("open", path, errno)),
        }
    }

    /// Takes the lock that excludes other commands which change the container, until this entry is dropped.
    pub(crate) fn lock(&self) -> Result<(), Error> {
        retry_on_intr(|| flock(&self.directory, FlockOperation::LockExclusive))
            .map_err(|errno| Error::file("lock", &self.path, errno))
    }

    /// Returns a path to a file in the directory that stays short: a socket's path is limited to 107 bytes.
    fn short(&self, name: &str) -> PathBuf {
        Path::new("/proc/self/fd").join(self.directory.as_raw_fd().to_string()).join(name)
    }

    /// The path of the socket on which a created container waits for `start`.
    pub(crate) fn socket(&self) -> PathBuf {
        self.short(SOCKET)
    }

    /// Returns whether that socket exists.
    pub(crate) fn has_socket(&self) -> bool {
        statat(&self.directory, SOCKET, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Removes the socket, once the container has been started.
    pub(crate) fn remove_socket(&self) -> Result<(), Error> {
        self.take_away(SOCKET).map(drop)
    }

    /// The directory of the socket on which a container reports its readiness.
    pub(crate) fn notify(&self) -> PathBuf {
        self.short(NOTIFY)
    }

    /// The same directory by a path that is valid in other processes too.
    pub(crate) fn notify_source(&self) -> PathBuf {
        self.path.join(NOTIFY)
    }

    /// Makes the directory on which CRIU mounts the root file system, and returns its path without symlinks.
    pub(crate) fn make_root(&self) -> Result<PathBuf, Error> {
        let root = self.path.join(ROOT);
        let made = DirBuilder::new().mode(0o700).create(&root).and_then(|()| fs::canonicalize(&root));
        made.map_err(|reason| Error::file("mkdir", root, reason))
    }

    pub(crate) fn write(&self, record: &Record) -> Result<(), Error> {
        let text = serde_json::to_vec(record).map_err(Error::Record)?;
        let written = if text.len() as u64 > MOST_BYTES {
            Err(Errno::FBIG.into())
        } else {
            atomic::write(&self.directory, RECORD.as_ref(), Mode::RUSR | Mode::WUSR, &text)
        };
        written.map_err(|reason| self.failed("write", reason))
    }

    pub(crate) fn read(&self) -> Result<Record, Error> {
        let text = self.read_text()?;
        let record = serde_json::from_slice::<Record>(&text);
        let version = match &record {
            Ok(record) => record.version,
            // The record of a later version may lack a field that this one needs.
            Err(_) => serde_json::from_slice(&text).map_or(0, |RecordVersion { version }| version),
        };
        if version > record::VERSION {
            return Err(Error::NewerRecord { version, known: record::VERSION });
        }
        record.map_err(Error::Record)
    }

    fn read_text(&self) -> Result<Vec<u8>, Error> {
        let no_record = |why| Error::NoRecord { path: self.path.join(RECORD), why };
        let failed = |errno: Errno| self.failed("read", errno.into());
        // Does not block on a FIFO, and does not make a terminal the controlling one.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match openat(&self.directory, RECORD, flags, Mode::empty()) {
            // It is a symlink or a socket.
            Err(Errno::LOOP | Errno::NXIO) => return Err(no_record(NoRecord::NoFile)),
            opened => opened.map_err(failed)?,
        };
        let found = fstat(&file).map_err(failed)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(no_record(NoRecord::NoFile));
        }
        // The mode is not checked: the file may have been written without a umask, and only root and the caller can
        // enter the directory.
        trust::check_is_ours(&found).map_err(|why| no_record(NoRecord::Distrusted(why)))?;
        let length = u64::try_from(found.st_size).unwrap_or(u64::MAX);
        if length > MOST_BYTES {
            return Err(no_record(NoRecord::TooLong));
        }
        // With room for one more byte, so that the last read sees the end of the file at once.
        let mut text = Vec::with_capacity(usize::try_from(length).unwrap_or_default() + 1);
        let read = File::from(file).take(MOST_BYTES).read_to_end(&mut text);
        read.map_err(|reason| self.failed("read", reason))?;
        Ok(text)
    }

    /// Returns whether there is a record. Opens no descriptor.
    pub(crate) fn has_record(&self) -> bool {
        statat(&self.directory, RECORD, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Reads the record. Returns `None` if it is missing or invalid: then it names no process or anything else to clean
    /// up. Any other failure to read it is an error, because what the record names would be lost. The record of a later
    /// version is such a failure.
    pub(crate) fn known(&self) -> Result<Option<Record>, Error> {
        match self.read() {
            Ok(record) => Ok(Some(record)),
            Err(Error::Record(_) | Error::NoRecord { .. } | Error::Deleted(_)) => Ok(None),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the error of an operation on the record. If the record is gone, [`explain`](Self::explain) says why.
    fn failed(&self, act: &'static str, reason: io::Error) -> Error {
        let is_gone = reason.kind() == io::ErrorKind::NotFound;
        let error = Error::file(act, self.path.join(RECORD), reason);
        if is_gone { self.explain(error) } else { error }
    }

    /// Returns [`Error::Deleted`] instead of the error if the container was deleted meanwhile.
    pub(crate) fn explain(&self, error: Error) -> Error {
        let is_marked = statat(&self.directory, DELETED, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        // If that cannot be found out, the error stays as it is.
        let has_its_name =
            self.has_its_name().unwrap_or_else(|error| error.kind() != io::ErrorKind::NotFound);
        if has_its_name && !is_marked { error } else { Error::Deleted(self.id()) }
    }

    fn id(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Tells the creator that its container has been deleted.
    pub(crate) fn mark_deleted(&self) {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let marked = openat(&self.directory, DELETED, flags, Mode::from_raw_mode(0o600));
        tolerate(marked, "without the file the creator ends too, and says so in other words");
    }

    /// Removes the directory if it is empty. Returns whether it is gone.
    pub(crate) fn remove_empty(&self) -> Result<bool, Error> {
        match fs::remove_dir(&self.path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
            Err(reason) => Err(Error::file("remove", &self.path, reason)),
        }
    }

    /// Removes the record, which only one caller can do. Returns whether it was this one.
    pub(crate) fn claim(&self) -> Result<bool, Error> {
        self.take_away(RECORD)
    }

    /// Removes a file. Returns whether it existed.
    fn take_away(&self, name: &str) -> Result<bool, Error> {
        match unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(Error::file("remove", self.path.join(name), errno)),
        }
    }

    /// Removes the container's directory. Ignores what is gone already, so that a second attempt completes a failed
    /// one.
    pub(crate) fn discard(&self) -> Result<(), Error> {
        match self.has_its_name().and_then(|ours| if ours { self.remove_directory() } else { Ok(()) }) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::file("remove", &self.path, error))
            }
            _ => {
                debug!("delete: nothing is left in {}", self.path.display());
                Ok(())
            }
        }
    }

    /// Removes the files that almost every container has by name, which opens no descriptor, and then everything else.
    fn remove_directory(&self) -> io::Result<()> {
        for name in [RECORD, SOCKET, DELETED] {
            tolerate(
                unlinkat(&self.directory, name, AtFlags::empty()),
                "what is still there is reported below",
            );
        }
        match fs::remove_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => fs::remove_dir_all(&self.path),
            removed => removed,
        }
    }

    /// Returns whether the path still refers to this directory. Another command may have deleted it and another
    /// container may have its ID.
    fn has_its_name(&self) -> io::Result<bool> {
        let (named, own) = (statat(CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW)?, fstat(&self.directory)?);
        Ok((named.st_dev, named.st_ino) == (own.st_dev, own.st_ino))
    }
}

/// Checks that an ID consists of the characters that runc allows, and is not a path.
fn check(id: &str) -> Result<(), Error> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_+.-".contains(&byte);
    if id.is_empty() || id == "." || id == ".." || !id.bytes().all(allowed) {
        return Err(Error::Id(id.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn container_id_cannot_be_a_path() {
        for id in ["a", "web-1", "a_b.c+d", "0"] {
            assert!(check(id).is_ok(), "{id}");
        }
        for id in ["", ".", "..", "a/b", "../a", "a b", "a\n", "ä"] {
            assert!(check(id).is_err(), "{id}");
        }
    }
}
