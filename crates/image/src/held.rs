//! Layers that processes use without a bundle, or perhaps longer than the bundle exists.
//!
//! A list of layers has one file in the store, named after its digest. A process that uses the layers holds a shared lock on
//! it, which ends with the process. `prune` removes the files that nobody holds, and keeps the layers of the others.

use crate::digest::Digest;
use crate::error::Error;
use crate::store::{self, New};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, fstat, openat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Layers that `prune` keeps as long as this value exists.
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "its lock counts")] OwnedFd);

/// Holds layers, whichever of the caller's stores has them. Layers elsewhere cannot be pruned, and are not held.
///
/// # Errors
///
/// Fails if a layer is gone, or the store cannot be written to.
pub fn hold(layers: &[PathBuf]) -> Result<Option<Held>, Error> {
    // STORE/layers/OWNERS/DIGEST/files
    let Some(path) = layers.first().and_then(|layer| layer.ancestors().nth(4)) else { return Ok(None) };
    let Ok(directory) = store::open(path) else { return Ok(None) };
    let found = fstat(&directory).map_err(|errno| Error::file("stat", path, errno))?;
    if store::distrust(found.st_uid, found.st_mode).is_some() {
        return Ok(None);
    }
    // Without this file, the directory is not a store.
    let Ok(lock) = openat(&directory, "lock", OFlags::RDWR | FLAGS, Mode::empty()) else { return Ok(None) };
    flock(&lock, FlockOperation::LockShared).map_err(|errno| Error::file("lock", path, errno))?;
    hold_in(path, layers).map(Some)
}

/// Holds layers in a store that nobody prunes meanwhile.
pub(crate) fn hold_in(store: &Path, layers: &[PathBuf]) -> Result<Held, Error> {
    // No path contains this byte.
    let list = layers.iter().map(|layer| layer.as_os_str().as_bytes()).collect::<Vec<_>>().join(&0);
    let path = store.join("held").join(Digest::of(&list).hex());
    let flags = OFlags::RDONLY | FLAGS;
    let file = match openat(CWD, &path, flags, Mode::empty()) {
        Err(Errno::NOENT) => {
            let new = New::make(&store.join("new"))?;
            let draft = new.path.join("list");
            fs::write(&draft, &list).map_err(|reason| Error::file("write", &draft, reason))?;
            // Another process may have made the file meanwhile, and holds it. It says the same, so both count.
            match fs::hard_link(&draft, &path) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                made => made.map_err(|reason| Error::file("create", &path, reason))?,
            }
            openat(CWD, &path, flags, Mode::empty())
        }
        file => file,
    };
    let file = file.map_err(|errno| Error::file("open", &path, errno))?;
    flock(&file, FlockOperation::LockShared).map_err(|errno| Error::file("lock", &path, errno))?;
    match layers.iter().find(|layer| !layer.is_dir()) {
        Some(gone) => Err(Error::file("open", gone, Errno::NOENT)),
        None => Ok(Held(file)),
    }
}

const FLAGS: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

/// Returns the layers that processes hold, and removes the lists that nobody holds. The caller has the store alone.
pub(crate) fn held(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut layers = Vec::new();
    for path in store::entries(directory)? {
        let file = openat(CWD, &path, OFlags::RDONLY | FLAGS, Mode::empty())
            .map_err(|errno| Error::file("open", &path, errno))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            fs::remove_file(&path).map_err(|reason| Error::file("remove", &path, reason))?;
            continue;
        }
        let mut list = Vec::new();
        fs::File::from(file).read_to_end(&mut list).map_err(|reason| Error::file("read", &path, reason))?;
        layers.extend(list.split(|byte| *byte == 0).map(|layer| PathBuf::from(OsStr::from_bytes(layer))));
    }
    Ok(layers)
}
