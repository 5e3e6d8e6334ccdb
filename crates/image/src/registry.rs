//! Images from registries, which skopeo copies. Their configuration is remembered, so that a second bundle of the same
//! name needs neither skopeo nor a network.
//!
//! ```text
//! STORE/images/DIGEST/     an image in the OCI layout without its layers, under the digest of its name
//! ```

use crate::digest::Digest;
use crate::error::Error;
use crate::manifest::Image;
use crate::reference::Reference;
use crate::store::{New, Store};
use husk_spawn::{Command, Stdio, find_program};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The user of a process that is root of a user namespace, as podman tells it too.
const USER: &str = "_CONTAINERS_ROOTLESS_UID";
const RUNTIME_DIRECTORY: &str = "XDG_RUNTIME_DIR";

/// The tag under which skopeo writes an image into a layout of its own.
const TAG: &str = "image";

/// An image that skopeo has copied. Its layers are removed with this value.
pub struct Pulled {
    pub image: Image,
    layout: New,
    name: String,
}

impl Store {
    /// Returns an image that was copied earlier, if the store still has its layers.
    #[must_use]
    pub fn remembered(&self, name: &str) -> Option<Image> {
        let path = self.remembered_at(name);
        let image = Image::open(&Reference::Layout { path, tag: Some(TAG.to_owned()) }).ok()?;
        self.has(&image).then_some(image)
    }

    /// Copies an image from a registry with skopeo.
    ///
    /// # Errors
    ///
    /// Fails if skopeo is not installed or fails.
    pub fn pull(&self, name: &str) -> Result<Pulled, Error> {
        let skopeo = find_program("skopeo").ok_or_else(|| Error::NoSkopeo { image: name.to_owned() })?;
        let layout = self.new_directory()?;
        let mut to = std::ffi::OsString::from("oci:");
        to.push(layout.path.join("layout"));
        to.push(format!(":{TAG}"));
        let mut command = Command::new(skopeo);
        command.args(["copy", "--quiet", "--"]).arg(format!("docker://{name}")).arg(to);
        // Root of a user's namespace would look for credentials where the host's root has them. A newer skopeo knows
        // the user by this variable. For older ones there are only those in the home directory.
        if env::var_os(USER).is_some() && env::var_os(RUNTIME_DIRECTORY).is_none() {
            command.env(RUNTIME_DIRECTORY, &layout.path);
        }
        // Standard output is husk's own.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let failed = |reason: String| Error::Skopeo { image: name.to_owned(), reason };
        let status = command.status().map_err(|error| failed(error.to_string()))?;
        if !status.success() {
            return Err(failed(status.to_string()));
        }
        let path = layout.path.join("layout");
        let image = Image::open(&Reference::Layout { path, tag: Some(TAG.to_owned()) })?;
        Ok(Pulled { image, layout, name: name.to_owned() })
    }

    /// Remembers an image whose layers were unpacked.
    ///
    /// # Errors
    ///
    /// Fails if its files cannot be moved.
    pub fn remember(&self, pulled: &Pulled) -> Result<(), Error> {
        let layout = pulled.layout.path.join("layout");
        for layer in &pulled.image.layers {
            match fs::remove_file(layout.join(&layer.name)) {
                // An image may have a layer twice.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                removed => {
                    removed.map_err(|reason| Error::file("remove", layout.join(&layer.name), reason))?
                }
            }
        }
        let place = self.remembered_at(&pulled.name);
        let earlier = pulled.layout.path.join("earlier");
        match renameat_with(CWD, &place, CWD, &earlier, RenameFlags::NOREPLACE) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(Error::file("rename", place, errno)),
        }
        match renameat_with(CWD, &layout, CWD, &place, RenameFlags::NOREPLACE) {
            // Another process has copied the image at the same time.
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(Error::file("rename", place, errno)),
        }
    }

    fn remembered_at(&self, name: &str) -> PathBuf {
        self.path().join("images").join(Digest::of(name.as_bytes()).hex())
    }

    /// Forgets the images whose layers are not in the store any more.
    pub(crate) fn forget(&self) -> Result<(), Error> {
        let has_layers = |path: &Path| {
            let image = Image::open(&Reference::Layout { path: path.to_owned(), tag: Some(TAG.to_owned()) });
            image.is_ok_and(|image| self.has(&image))
        };
        for path in self.images()? {
            if !has_layers(&path) {
                crate::store::remove(&path)?;
            }
        }
        Ok(())
    }
}
