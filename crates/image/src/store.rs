//! The store: every layer is unpacked once and then shared, read-only, by all bundles of a user.
//!
//! ```text
//! $XDG_CACHE_HOME/husk/                mode 0700
//!     lock                             shared by `husk bundle`, exclusive for `husk bundle --prune`
//!     new/PID-NUMBER/                  a layer that is being unpacked; locked by the process that does it
//!     layers/OWNERS/DIGEST/files/      the files of a layer; OWNERS says how ids of the archive became ids of the host
//!     layers/OWNERS/DIGEST/complete    written last; without it, or with other words in it, the layer counts as absent
//!     images/DIGEST/                   what is remembered of an image from a registry: registry.rs
//!     bundles/DIGEST                   the path of a bundle that uses layers, under the digest of the path
//!     held/DIGEST                      a list of layers, locked by the processes that use them: held.rs
//! ```
//!
//! A layer is unpacked below `new` and renamed. If two processes unpack the same layer, the second rename fails, and that
//! process uses the first one's. Before the first rename, all files are written to the disk (`syncfs`), once for
//! an image. So a name in `layers` never stands for files that a crash has emptied.

use crate::digest::Digest;
use crate::error::Error;
use crate::held::{self, Held};
use crate::layer::{self, Owners, Tree, Whiteouts};
use crate::limits::{Budget, Limits};
use crate::manifest::{Image, Layer};
use rustix::fs::{
    CWD, FlockOperation, Mode, OFlags, RenameFlags, flock, fstat, getxattr, mkdirat, openat, renameat_with,
    syncfs,
};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

/// A user's store of layers.
pub struct Store {
    path: PathBuf,
    directory: OwnedFd,
    /// Held while layers are looked up and until a bundle that uses them is registered.
    _lock: File,
    owners: Ids,
}

/// How the owners in archives become owners on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids {
    /// The name of the directory of such layers.
    name: String,
    owners: Owners,
}

/// The result of unpacking an image's layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// The layers that were not in the store.
    pub layers: usize,
    /// The devices that only root can make, and that were left out.
    pub skipped_devices: u64,
}

/// The numbers of things that `prune` removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    pub layers: usize,
    pub bundles: usize,
}

impl Ids {
    /// Reads how this process's user namespace maps ids.
    ///
    /// # Errors
    ///
    /// Fails if `/proc` is not mounted.
    pub fn of_this_process() -> Result<Self, Error> {
        let read = |kind: &str| {
            let path = format!("/proc/self/{kind}_map");
            fs::read_to_string(&path).map_err(|reason| Error::file("read", path, reason))
        };
        Ok(Self::of_maps(&read("uid")?, &read("gid")?))
    }

    /// Returns the ids of a user namespace with these maps, in the format of `/proc/PID/uid_map`.
    #[must_use]
    pub fn of_maps(uids: &str, gids: &str) -> Self {
        // Commas and colons separate the options of a mount.
        let words = |map: &str| map.split_whitespace().collect::<Vec<_>>().join("-");
        let everybody = "0-0-4294967295";
        let (uids, gids) = (words(uids), words(gids));
        let is_single = |map: &str| map.split('-').count() == 3 && map.ends_with("-1");
        match (uids == everybody && gids == everybody, is_single(&uids) || is_single(&gids)) {
            (true, _) => Self { name: "all".to_owned(), owners: Owners::Archives },
            (false, true) => Self { name: format!("one_{uids}_{gids}"), owners: Owners::Caller },
            (false, false) => Self { name: format!("many_{uids}_{gids}"), owners: Owners::Archives },
        }
    }

    pub(crate) fn owners(&self) -> Owners {
        self.owners
    }

    /// Returns the ids of a sandbox, which maps only those of this process. All files belong to the sandbox's program.
    #[must_use]
    pub fn of_sandboxes() -> Self {
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        Self::of_maps(&format!("0 {uid} 1"), &format!("0 {gid} 1"))
    }

    /// Whether every file belongs to the caller, whoever owns it in the image.
    #[must_use]
    pub fn are_one(&self) -> bool {
        self.owners == Owners::Caller
    }
}

/// The other processes that may use the store at the same time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Others that make bundles.
    Shared,
    /// Nobody, because layers will be removed.
    Alone,
}

impl Store {
    /// Opens the store at a path, and makes it if it is missing.
    ///
    /// # Errors
    ///
    /// Fails if another user could change it.
    pub fn open(path: &Path, how: Use, owners: Ids) -> Result<Self, Error> {
        let failed = |act| move |reason: std::io::Error| Error::file(act, path, reason);
        if let Some(above) = path.parent() {
            fs::create_dir_all(above).map_err(|reason| Error::file("create", above, reason))?;
        }
        match mkdirat(CWD, path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(Error::file("create", path, errno)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory =
            openat(CWD, path, flags, Mode::empty()).map_err(|errno| Error::file("open", path, errno))?;
        let found = fstat(&directory).map_err(|errno| Error::file("stat", path, errno))?;
        if let Some(why) = distrust(found.st_uid, found.st_mode) {
            return Err(Error::Distrusted { path: path.to_owned(), why });
        }
        for below in ["new", "layers", "bundles", "images", "held"]
            .map(PathBuf::from)
            .into_iter()
            .chain([Path::new("layers").join(&owners.name)])
        {
            match mkdirat(&directory, &below, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(Error::file("create", path.join(below), errno)),
            }
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = openat(&directory, "lock", flags, Mode::from(0o600))
            .map_err(Into::into)
            .map_err(failed("lock"))?;
        let operation =
            if how == Use::Alone { FlockOperation::LockExclusive } else { FlockOperation::LockShared };
        flock(&lock, operation).map_err(|errno| Error::file("lock", path, errno))?;
        Ok(Self { path: path.to_owned(), directory, _lock: lock.into(), owners })
    }

    /// Returns the directory of a layer's files, if the store has the layer.
    #[must_use]
    pub fn layer(&self, diff_id: Digest) -> Option<PathBuf> {
        let entry = self.entry(diff_id);
        let says = fs::read_to_string(entry.join("complete")).ok()?;
        let files = entry.join("files");
        (says == mark(diff_id) && files.is_dir()).then_some(files)
    }

    /// Whether the store has all layers of an image.
    #[must_use]
    pub fn has(&self, image: &Image) -> bool {
        image.layers().all(|diff_id| self.layer(diff_id).is_some())
    }

    /// Whether the store has all layers of an image, and the root directory of the image belongs to the caller. Then a
    /// bundle of it can be made without a user namespace.
    #[must_use]
    pub fn serves(&self, image: &Image) -> bool {
        let top = image.layers().next_back().and_then(|diff_id| self.layer(diff_id));
        let is_ours = |top: PathBuf| top.metadata().is_ok_and(|found| found.uid() == geteuid().as_raw());
        top.is_some_and(is_ours) && self.has(image)
    }

    /// Returns the layers of an image from the highest to the lowest. Layers below one that hides everything are left out,
    /// because overlayfs does not heed the attribute on the root of a layer.
    ///
    /// # Errors
    ///
    /// Fails if the store does not have a layer.
    pub fn stack(&self, image: &Image) -> Result<Vec<PathBuf>, Error> {
        let mut layers = Vec::new();
        for diff_id in image.layers().rev() {
            let missing = || Error::malformed(diff_id.to_string(), "is not in the store");
            let layer = self.layer(diff_id).ok_or_else(missing)?;
            let is_opaque = getxattr(&layer, layer::OPAQUE, &mut [0; 8][..]).is_ok();
            // The kernel refuses a layer that occurs twice (fs/overlayfs/super.c, `ovl_check_layer`); the higher one wins.
            if !layers.contains(&layer) {
                layers.push(layer);
            }
            if is_opaque {
                break;
            }
        }
        Ok(layers)
    }

    /// Keeps these layers in the store as long as the returned value exists.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be written to.
    pub fn hold(&self, layers: &[PathBuf]) -> Result<Held, Error> {
        held::hold_in(&self.path, layers)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn new_directory(&self) -> Result<New, Error> {
        New::make(&self.path.join("new"))
    }

    pub(crate) fn images(&self) -> Result<Vec<PathBuf>, Error> {
        entries(&self.path.join("images"))
    }

    fn entry(&self, diff_id: Digest) -> PathBuf {
        self.path.join("layers").join(&self.owners.name).join(diff_id.hex())
    }

    /// Unpacks the layers that the store does not have, several at a time.
    ///
    /// # Errors
    ///
    /// Fails if a layer is damaged or hostile. Nothing of it then stays.
    pub fn unpack(&self, image: &Image, limits: Limits) -> Result<Unpacked, Error> {
        let mut missing: Vec<&Layer> = Vec::new();
        for layer in &image.layers {
            let is_known = missing.iter().any(|known| known.diff_id == layer.diff_id);
            if !is_known && self.layer(layer.diff_id).is_none() {
                missing.push(layer);
            }
        }
        if missing.is_empty() {
            return Ok(Unpacked::default());
        }
        let budget = Budget::new(limits);
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::new());
        let work = || {
            while let Some(layer) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                let unpacked = self.unpack_one(image, layer, &budget);
                if unpacked.is_err() {
                    // The other threads begin no further layer.
                    next.store(missing.len(), Ordering::Relaxed);
                }
                if let Ok(mut done) = done.lock() {
                    done.push((layer.diff_id, unpacked));
                }
            }
        };
        let threads =
            thread::available_parallelism().map_or(1, |count| count.get().min(4)).min(missing.len());
        thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
        let done = done.into_inner().unwrap_or_default();
        let mut unpacked = Unpacked { layers: missing.len(), skipped_devices: 0 };
        let mut finished = Vec::new();
        for (diff_id, outcome) in done {
            let (new, skipped) = outcome?;
            unpacked.skipped_devices += skipped;
            finished.push((diff_id, new));
        }
        syncfs(&self.directory).map_err(|errno| Error::file("sync", &self.path, errno))?;
        for (diff_id, new) in finished {
            self.publish(new, diff_id)?;
        }
        Ok(unpacked)
    }

    /// Unpacks a layer below `new`.
    fn unpack_one(&self, image: &Image, layer: &Layer, budget: &Budget) -> Result<(New, u64), Error> {
        let new = New::make(&self.path.join("new"))?;
        let files = new.path.join("files");
        fs::create_dir(&files).map_err(|reason| Error::file("create", &files, reason))?;
        let root = open(&files)?;
        let permissions = Permissions::from_mode(0o755);
        fs::set_permissions(&files, permissions).map_err(|reason| Error::file("chmod", &files, reason))?;
        let mut tree = Tree::new(root.as_fd(), self.owners.owners, Whiteouts::Kept);
        layer::unpack(layer, image.source.open(&layer.name)?, budget, &mut tree)?;
        let skipped = tree.skipped_devices;
        let complete = new.path.join("complete");
        let mut file = File::create(&complete).map_err(|reason| Error::file("create", &complete, reason))?;
        file.write_all(mark(layer.diff_id).as_bytes())
            .map_err(|reason| Error::file("write", &complete, reason))?;
        Ok((new, skipped))
    }

    /// Gives a layer its name in the store.
    fn publish(&self, mut new: New, diff_id: Digest) -> Result<(), Error> {
        let entry = self.entry(diff_id);
        let rename = || renameat_with(CWD, &new.path, CWD, &entry, RenameFlags::NOREPLACE);
        match rename() {
            Err(Errno::EXIST) if self.layer(diff_id).is_none() => {
                // A damaged entry makes way. If another process does the same, one of the renames fails, and its
                // entry is as good as this one.
                let damaged = New::make(&self.path.join("new"))?;
                match renameat_with(CWD, &entry, CWD, damaged.path.join("damaged"), RenameFlags::NOREPLACE) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(errno) => return Err(Error::file("rename", entry, errno)),
                }
                match rename() {
                    Err(Errno::EXIST) => return Ok(()),
                    renamed => renamed.map_err(|errno| Error::file("rename", &entry, errno))?,
                }
            }
            // Another process was faster.
            Err(Errno::EXIST) => return Ok(()),
            renamed => renamed.map_err(|errno| Error::file("rename", &entry, errno))?,
        }
        new.is_kept = true;
        Ok(())
    }

    /// Notes that a bundle uses layers, so that `prune` keeps them.
    ///
    /// # Errors
    ///
    /// Fails if the note cannot be written.
    pub fn register(&self, bundle: &Path) -> Result<(), Error> {
        let note = self.path.join("bundles").join(Digest::of(bundle.as_os_str().as_bytes()).hex());
        let new = New::make(&self.path.join("new"))?;
        let draft = new.path.join("note");
        fs::write(&draft, bundle.as_os_str().as_bytes())
            .map_err(|reason| Error::file("write", &draft, reason))?;
        fs::rename(&draft, &note).map_err(|reason| Error::file("rename", note, reason))
    }

    /// Removes the layers that no registered bundle uses, and what killed processes have left. `layers_of` returns the
    /// directories of the layers that a bundle uses. It returns none if the bundle does not exist any more.
    ///
    /// # Errors
    ///
    /// Fails if something cannot be removed.
    pub fn prune(&self, layers_of: impl Fn(&Path) -> Vec<PathBuf>) -> Result<Pruned, Error> {
        let mut pruned = Pruned::default();
        let mut used = Vec::new();
        for note in entries(&self.path.join("bundles"))? {
            let path = fs::read(&note).map_err(|reason| Error::file("read", &note, reason))?;
            let layers = layers_of(Path::new(std::ffi::OsStr::from_bytes(&path)));
            if layers.is_empty() {
                fs::remove_file(&note).map_err(|reason| Error::file("remove", &note, reason))?;
                pruned.bundles += 1;
            }
            used.extend(layers);
        }
        used.extend(held::held(&self.path.join("held"))?);
        for owners in entries(&self.path.join("layers"))? {
            for entry in entries(&owners)? {
                if !used.contains(&entry.join("files")) {
                    // The rename comes first: a layer that is half removed must not be found.
                    let new = New::make(&self.path.join("new"))?;
                    fs::rename(&entry, new.path.join("old"))
                        .map_err(|reason| Error::file("rename", &entry, reason))?;
                    pruned.layers += 1;
                }
            }
        }
        self.forget()?;
        for left in entries(&self.path.join("new"))? {
            let Ok(directory) = open(&left) else { continue };
            if flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok() {
                remove(&left)?;
            }
        }
        Ok(pruned)
    }
}

/// A directory below `new`, which is removed unless it is kept. Its lock ends with the process, so `prune` knows what a
/// killed process has left.
pub(crate) struct New {
    pub(crate) path: PathBuf,
    is_kept: bool,
    _lock: OwnedFd,
}

impl New {
    pub(crate) fn make(above: &Path) -> Result<Self, Error> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = above.join(format!("{}-{number}", std::process::id()));
            match mkdirat(CWD, &path, Mode::RWXU) {
                // A process in another pid namespace may have the same pid.
                Err(Errno::EXIST) => continue,
                made => made.map_err(|errno| Error::file("create", &path, errno))?,
            }
            let lock = open(&path)?;
            flock(&lock, FlockOperation::LockExclusive).map_err(|errno| Error::file("lock", &path, errno))?;
            return Ok(Self { path, is_kept: false, _lock: lock });
        }
    }
}

impl Drop for New {
    fn drop(&mut self) {
        if !self.is_kept {
            // Tolerated: `prune` removes what is left.
            drop(remove(&self.path));
        }
    }
}

/// Removes a directory below the store.
pub(crate) fn remove(path: &Path) -> Result<(), Error> {
    let failed = |problem| Error::malformed(format!("remove {}", path.display()), format!("{problem}"));
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let above = open(above)?;
    layer::remove_tree(above.as_fd(), name.as_bytes()).map_err(failed)
}

pub(crate) fn open(path: &Path) -> Result<OwnedFd, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty()).map_err(|errno| Error::file("open", path, errno))
}

pub(crate) fn entries(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |reason| Error::file("read", path, reason);
    let entries = fs::read_dir(path).map_err(failed)?;
    entries.map(|entry| Ok(entry.map_err(failed)?.path())).collect()
}

/// Returns the content of the file `complete`.
fn mark(diff_id: Digest) -> String {
    format!("{diff_id}\n")
}

/// Returns why somebody else could change a directory.
pub(crate) fn distrust(owner: u32, mode: u32) -> Option<String> {
    if owner != geteuid().as_raw() {
        return Some(format!("belongs to user {owner}"));
    }
    (mode & 0o077 != 0).then(|| format!("has the mode {:03o} instead of 700", mode & 0o777))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_with_other_owners_have_another_name() {
        let everybody = "         0          0 4294967295\n";
        assert_eq!(Ids::of_maps(everybody, everybody).name, "all");
        let one = Ids::of_maps("0 1000 1\n", "0 1000 1\n");
        assert!(one.are_one() && one.name == "one_0-1000-1_0-1000-1");
        let many = Ids::of_maps("0 1000 1\n1 100000 65536\n", "0 1000 1\n1 100000 65536\n");
        assert!(!many.are_one());
        assert_eq!(many.name, "many_0-1000-1-1-100000-65536_0-1000-1-1-100000-65536");
    }

    #[test]
    fn store_of_another_user_is_not_used() {
        let me = geteuid().as_raw();
        assert_eq!(distrust(me, 0o40700), None);
        assert_eq!(distrust(me + 1, 0o40700).unwrap(), format!("belongs to user {}", me + 1));
        assert_eq!(distrust(me, 0o40755).unwrap(), "has the mode 755 instead of 700");
    }
}
