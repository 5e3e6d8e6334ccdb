//! Makes the directory of a bundle: its config.json, its `rootfs`, and the layers of which `husk run` makes an overlay.
//!
//! ```text
//! DIRECTORY/config.json
//! DIRECTORY/rootfs/              empty; the overlay is mounted here, in the container's mount namespace
//! DIRECTORY/husk-layers/0, 1...  symlinks to layers in the store, from the highest to the lowest
//! DIRECTORY/husk-layers/upper/   what containers of the bundle have written
//! DIRECTORY/husk-layers/work/    overlayfs needs this directory
//! ```
//!
//! The names are short because all options of a mount must fit in a page, and fixed so that no path becomes part of those
//! options. `husk-bundle` reads the directory.

use crate::error::Error;
use crate::layer::{self, Tree, Whiteouts};
use crate::limits::{Budget, Limits};
use crate::manifest::Image;
use crate::store::{self, Ids, Store, Unpacked};
use rustix::fs::{CWD, Gid, Mode, OFlags, Uid, chown, openat, stat};
use rustix::process::geteuid;
use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

/// A bundle that is being made. Unless it is finished, everything that was made is removed.
pub struct Draft {
    path: PathBuf,
    /// The name of the directory of layers.
    layers: &'static str,
    made: Vec<PathBuf>,
}

impl Draft {
    /// Makes the directory of a bundle, which must not contain a bundle yet. Only the caller may enter it: files of the
    /// image can be set-user-ID programs. `layers` is the name of the directory in which the runtime looks for layers.
    ///
    /// # Errors
    ///
    /// Fails if it contains one, or if other users may change a directory that exists.
    pub fn begin(path: &Path, layers: &'static str) -> Result<Self, Error> {
        let mut draft = Self { path: path.to_owned(), layers, made: Vec::new() };
        match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => draft.made.push(path.to_owned()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => check(path)?,
            Err(error) => return Err(Error::file("create", path, error)),
        }
        for name in ["config.json", "rootfs", layers] {
            let below = path.join(name);
            if below.symlink_metadata().is_ok() {
                return Err(Error::file("create", below, ErrorKind::AlreadyExists));
            }
        }
        Ok(draft)
    }

    fn directory(&mut self, name: &str, mode: u32) -> Result<PathBuf, Error> {
        let path = self.path.join(name);
        fs::create_dir(&path).map_err(|reason| Error::file("create", &path, reason))?;
        self.made.push(path.clone());
        let permissions = Permissions::from_mode(mode);
        fs::set_permissions(&path, permissions).map_err(|reason| Error::file("chmod", &path, reason))?;
        Ok(path)
    }

    /// Lets the bundle's root file system consist of layers in the store.
    ///
    /// # Errors
    ///
    /// Fails if the store does not have a layer, or something cannot be made.
    pub fn stack(&mut self, image: &Image, store: &Store) -> Result<Vec<PathBuf>, Error> {
        let layers = store.stack(image)?;
        self.directory("rootfs", 0o755)?;
        let directory = self.directory(self.layers, 0o700)?;
        for (number, layer) in layers.iter().enumerate() {
            let link = directory.join(number.to_string());
            symlink(layer, &link).map_err(|reason| Error::file("create", link, reason))?;
        }
        for name in ["upper", "work"] {
            fs::create_dir(directory.join(name))
                .map_err(|reason| Error::file("create", directory.join(name), reason))?;
        }
        // The root directory of an overlay is that of the upper directory.
        if let Some(top) = layers.first() {
            let upper = directory.join("upper");
            let found = stat(top).map_err(|errno| Error::file("stat", top, errno))?;
            let (uid, gid) = (Uid::from_raw(found.st_uid), Gid::from_raw(found.st_gid));
            chown(&upper, Some(uid), Some(gid)).map_err(|errno| Error::file("chown", &upper, errno))?;
            let permissions = Permissions::from_mode(found.st_mode & 0o7777);
            fs::set_permissions(&upper, permissions).map_err(|reason| Error::file("chmod", upper, reason))?;
        }
        store.register(&self.path)?;
        Ok(layers)
    }

    /// Writes all layers into `rootfs`, one over the other, as a directory that every runtime can use.
    ///
    /// # Errors
    ///
    /// Fails if a layer is damaged or hostile.
    pub fn flatten(
        &mut self,
        image: &Image,
        ids: &Ids,
        limits: Limits,
    ) -> Result<(PathBuf, Unpacked), Error> {
        let rootfs = self.directory("rootfs", 0o755)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = openat(CWD, &rootfs, flags, Mode::empty())
            .map_err(|errno| Error::file("open", &rootfs, errno))?;
        let budget = Budget::new(limits);
        let mut unpacked = Unpacked::default();
        for layer in &image.layers {
            let applied = Whiteouts::Applied { written: HashSet::new() };
            let mut tree = Tree::new(root.as_fd(), ids.owners(), applied);
            layer::unpack(layer, image.source.open(&layer.name)?, &budget, &mut tree)?;
            unpacked.layers += 1;
            unpacked.skipped_devices += tree.skipped_devices;
        }
        Ok((rootfs, unpacked))
    }

    /// Writes config.json, the last part of the bundle.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be written.
    pub fn finish(mut self, config: &str) -> Result<(), Error> {
        let path = self.path.join("config.json");
        let file = File::create_new(&path).and_then(|mut file| file.write_all(config.as_bytes()));
        file.map_err(|reason| Error::file("write", path, reason))?;
        self.made.clear();
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        for path in self.made.iter().rev() {
            // Tolerated: the error that ended the command is the one to report.
            drop(store::remove(path));
        }
    }
}

/// Fails if another user could replace what the caller makes in a directory.
fn check(directory: &Path) -> Result<(), Error> {
    let found = fs::metadata(directory).map_err(|reason| Error::file("stat", directory, reason))?;
    if found.uid() == geteuid().as_raw() && found.mode() & 0o002 == 0 {
        return Ok(());
    }
    let reason = io::Error::other("other users may change it; choose a directory of your own");
    Err(Error::file("use", directory, reason))
}

/// Returns the layers that a bundle's directory of layers names, from the highest to the lowest. Empty if it does not
/// exist.
#[must_use]
pub fn layers(directory: &Path) -> Vec<PathBuf> {
    (0..).map_while(|number: u32| fs::read_link(directory.join(number.to_string())).ok()).collect()
}
