//! Where containers are known: a directory for each, named after it, below one root.
//!
//! Making that directory is what reserves the name: mkdir(2) is atomic, so of two who create the same
//! container one fails. Everything in it is written beside its place and renamed, so it is never seen
//! half written.

use crate::error::Error;
use crate::record::Record;
use crate::whole;
use log::debug;
use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, fcntl_lock, flock, fstat, openat, statat, unlinkat,
};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Flock, FlockType, Pid, fcntl_getlk};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

const RECORD: &str = "state.json";
const SOCKET: &str = "start.sock";
const NOTIFY: &str = "notify";
const ROOT: &str = "root";
/// Says to a creator that its container is not wanted any more.
const DELETED: &str = "deleted";

/// The directory that holds containers.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

/// The directory of one container.
#[derive(Debug)]
pub(crate) struct Entry {
    path: PathBuf,
    directory: OwnedFd,
}

impl Store {
    /// The store below `root`, an absolute path.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// Reserves the name `id`.
    pub(crate) fn reserve(&self, id: &str) -> Result<Entry, Error> {
        check(id)?;
        let private = |recursive| {
            let mut builder = DirBuilder::new();
            builder.mode(0o700).recursive(recursive);
            builder
        };
        private(true).create(&self.root).map_err(|reason| Error::file("mkdir", &self.root, reason))?;
        let path = self.root.join(id);
        match private(false).create(&path) {
            Ok(()) => Entry::opened(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(Error::Exists),
            Err(reason) => Err(Error::file("mkdir", path, reason)),
        }
    }

    /// The container `id`.
    pub(crate) fn entry(&self, id: &str) -> Result<Entry, Error> {
        check(id)?;
        Entry::open(self.root.join(id))
    }

    /// Every name there is.
    pub(crate) fn ids(&self) -> Result<Vec<String>, Error> {
        let entries = match fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(reason) => return Err(Error::file("open", &self.root, reason)),
        };
        let entries = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        // What is no container's name is not ours.
        let mut ids: Vec<_> = names.filter(|name| check(name).is_ok()).collect();
        ids.sort();
        Ok(ids)
    }
}

impl Entry {
    /// Opens a directory that has just been made, and takes it away again if that is not possible.
    fn opened(path: PathBuf) -> Result<Self, Error> {
        Self::open(path.clone()).and_then(Self::held).inspect_err(|_| {
            // Tolerated: the first error is the one to report. Only an empty directory is removed, so a creator that
            // has reserved the same name since then loses nothing that it has written.
            fs::remove_dir(path).unwrap_or(());
        })
    }

    /// Marks the directory as that of a container which this process is creating, until [`release`](Self::release) or the
    /// end of this process. The mark is a lock of fcntl(2): it belongs to this process, not to its children, and the
    /// kernel says whose it is. It is lost when this process closes any descriptor of the directory.
    fn held(self) -> Result<Self, Error> {
        match fcntl_lock(&self.directory, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(self),
            Err(errno) => Err(Error::file("lock", self.path, errno)),
        }
    }

    /// The container is created: whoever deletes it need not ask this process.
    pub(crate) fn release(&self) -> Result<(), Error> {
        fcntl_lock(&self.directory, FlockOperation::NonBlockingUnlock)
            .map_err(|errno| Error::file("unlock", &self.path, errno))
    }

    /// The process that is creating the container, if there still is one.
    pub(crate) fn creator(&self) -> Result<Option<Pid>, Error> {
        let mark = fcntl_getlk(&self.directory, &Flock::from(FlockType::WriteLock));
        match mark.map_err(|errno| Error::file("look for the creator of", &self.path, errno))? {
            None => Ok(None),
            Some(Flock { pid: Some(pid), .. }) => Ok(Some(pid)),
            Some(_) => {
                Err(Error::State("the container is being created by a process of another pid namespace"))
            }
        }
    }

    fn open(path: PathBuf) -> Result<Self, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(CWD, &path, flags, Mode::empty()) {
            Ok(directory) => Ok(Self { path, directory }),
            Err(Errno::NOENT) => Err(Error::Missing),
            Err(errno) => Err(Error::file("open", path, errno)),
        }
    }

    /// Keeps other commands that change the container waiting until this entry is dropped.
    pub(crate) fn lock(&self) -> Result<(), Error> {
        retry_on_intr(|| flock(&self.directory, FlockOperation::LockExclusive))
            .map_err(|errno| Error::file("lock", &self.path, errno))
    }

    /// A path to something in it that is short however long the directory's own is: a socket's may
    /// have 107 bytes.
    fn short(&self, name: &str) -> PathBuf {
        Path::new("/proc/self/fd").join(self.directory.as_raw_fd().to_string()).join(name)
    }

    /// Where a created container listens for `start`.
    pub(crate) fn socket(&self) -> PathBuf {
        self.short(SOCKET)
    }

    /// Whether it does.
    pub(crate) fn has_socket(&self) -> bool {
        statat(&self.directory, SOCKET, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Takes the socket away: the container has been started.
    pub(crate) fn remove_socket(&self) -> Result<(), Error> {
        self.take_away(SOCKET).map(drop)
    }

    /// The directory of the socket at which a container says that it is ready.
    pub(crate) fn notify(&self) -> PathBuf {
        self.short(NOTIFY)
    }

    /// The same by a path that is not only ours.
    pub(crate) fn notify_source(&self) -> PathBuf {
        self.path.join(NOTIFY)
    }

    /// Makes a directory for CRIU to mount the root file system on, and names it without symlinks.
    pub(crate) fn make_root(&self) -> Result<PathBuf, Error> {
        let root = self.path.join(ROOT);
        let made = DirBuilder::new().mode(0o700).create(&root).and_then(|()| fs::canonicalize(&root));
        made.map_err(|reason| Error::file("mkdir", root, reason))
    }

    pub(crate) fn write(&self, record: &Record) -> Result<(), Error> {
        let text = serde_json::to_vec(record).map_err(Error::Record)?;
        whole::write(&self.directory, RECORD.as_ref(), Mode::RUSR | Mode::WUSR, &text)
            .map_err(|reason| self.failed("write", reason))
    }

    pub(crate) fn read(&self) -> Result<Record, Error> {
        let text = read_whole(&self.directory, RECORD);
        let text = text.map_err(|reason| self.failed("read", reason))?;
        serde_json::from_slice(&text).map_err(Error::Record)
    }

    /// The record, or nothing if there is none, or none that makes sense: it names no process, and nothing else. One that
    /// only we cannot read now is an error, for what it names would be lost.
    pub(crate) fn known(&self) -> Result<Option<Record>, Error> {
        let is_no_record = |kind| matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::IsADirectory);
        match self.read() {
            Ok(record) => Ok(Some(record)),
            Err(Error::Record(_) | Error::Deleted(_)) => Ok(None),
            Err(Error::File { reason, .. }) if is_no_record(reason.kind()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Why something cannot be done with the record: if it is not there any more, because somebody has deleted it.
    fn failed(&self, act: &'static str, reason: io::Error) -> Error {
        let is_gone = reason.kind() == io::ErrorKind::NotFound;
        let error = Error::file(act, self.path.join(RECORD), reason);
        if is_gone { self.explain(error) } else { error }
    }

    /// This error, unless the container was deleted meanwhile, which is then the reason for it.
    pub(crate) fn explain(&self, error: Error) -> Error {
        let is_marked = statat(&self.directory, DELETED, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        // Where that cannot be known, the error stays what it is.
        let has_its_name =
            self.has_its_name().unwrap_or_else(|error| error.kind() != io::ErrorKind::NotFound);
        if has_its_name && !is_marked { error } else { Error::Deleted(self.id()) }
    }

    fn id(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Says to the creator that its container is not wanted any more.
    pub(crate) fn mark_deleted(&self) {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Tolerated: in a full store, and without descriptors, the creator is told to end all the same, and says so in
        // other words.
        openat(&self.directory, DELETED, flags, Mode::from_raw_mode(0o600)).map(drop).unwrap_or(());
    }

    /// Removes a directory in which nothing is, and says whether that was so.
    pub(crate) fn remove_empty(&self) -> Result<bool, Error> {
        match fs::remove_dir(&self.path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
            Err(reason) => Err(Error::file("remove", &self.path, reason)),
        }
    }

    /// Takes the record away, which can be done once: whether it was still there.
    pub(crate) fn claim(&self) -> Result<bool, Error> {
        self.take_away(RECORD)
    }

    /// Takes a file away: whether it was there.
    fn take_away(&self, name: &str) -> Result<bool, Error> {
        match unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(Error::file("remove", self.path.join(name), errno)),
        }
    }

    /// Leaves nothing of a container. Takes no descriptor if nothing was recorded: a creator that has run out of them
    /// leaves no empty entry.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        if statat(&self.directory, RECORD, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            self.known()?.map_or(Ok(()), |record| record.leave())?;
        }
        self.discard()
    }

    /// Forgets the container. What is gone already is no error, so that a second try finishes what
    /// the first could not.
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

    /// Removes what almost every container has by name, which takes no descriptor, and then whatever else is there.
    fn remove_directory(&self) -> io::Result<()> {
        for name in [RECORD, SOCKET, DELETED] {
            // Tolerated: what is still there is found below, and said.
            unlinkat(&self.directory, name, AtFlags::empty()).unwrap_or(());
        }
        match fs::remove_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => fs::remove_dir_all(&self.path),
            removed => removed,
        }
    }

    /// Whether the name is still its own: somebody else may have deleted it, and another may be called so by now.
    fn has_its_name(&self) -> io::Result<bool> {
        let (named, own) = (statat(CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW)?, fstat(&self.directory)?);
        Ok((named.st_dev, named.st_ino) == (own.st_dev, own.st_ino))
    }
}

fn read_whole(directory: &OwnedFd, name: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = openat(directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    File::from(file).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Names that runc takes, and no path.
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
    fn a_name_is_no_path() {
        for id in ["a", "web-1", "a_b.c+d", "0"] {
            assert!(check(id).is_ok(), "{id}");
        }
        for id in ["", ".", "..", "a/b", "../a", "a b", "a\n", "ä"] {
            assert!(check(id).is_err(), "{id}");
        }
    }
}
