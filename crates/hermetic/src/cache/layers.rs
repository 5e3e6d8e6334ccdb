//! The files of an image's layers, as a key describes them.
//!
//! The store has verified each layer when it unpacked it, and the name of its directory is its digest. But the store
//! belongs to the caller, who could have changed a file in it since. So every file is compared, like an input. Attributes
//! are part of it, because some of them hide the files of lower layers.

use super::digest::Fields;
use super::index::{Identity, Index};
use rustix::fs::{AtFlags, CWD, FileType, lgetxattr, llistxattr, statat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::{CStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The most bytes of a list of attributes, and of a value (xattr(7)).
const MOST_ATTRIBUTES: usize = 1 << 16;

/// The files of an image's layers, from the highest layer to the lowest.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Layers(Vec<Layer>);

#[derive(Debug, PartialEq, Eq)]
struct Layer {
    path: PathBuf,
    /// The digest that the store knows it by.
    name: OsString,
    entries: BTreeMap<PathBuf, Entry>,
}

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    kind: Kind,
    identity: Identity,
    mode: u32,
    uid: u32,
    gid: u32,
    /// Names and values.
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
    Link(PathBuf),
    /// A FIFO, socket, whiteout or other device: its type and number.
    Special(u32, u64),
}

impl Layers {
    /// Looks at all files of these layers.
    pub(super) fn of(paths: &[PathBuf]) -> io::Result<Self> {
        let layer = |path: &PathBuf| {
            let name = path.parent().and_then(Path::file_name).unwrap_or_default().to_owned();
            Ok(Layer { path: path.clone(), name, entries: entries(path)? })
        };
        paths.iter().map(layer).collect::<io::Result<_>>().map(Self)
    }

    /// Adds the layers to a key. The path of the store is not part of it, and neither are times and inode numbers.
    pub(super) fn add_to(
        &self,
        digest: &mut Fields,
        index: &mut Index,
        (uid, gid): (u32, u32),
    ) -> Result<(), String> {
        for Layer { path, name, entries } in &self.0 {
            digest.add(b"layer").add(name.as_bytes());
            for (below, entry) in entries {
                let owners = [u8::from(entry.uid == uid), u8::from(entry.gid == gid)];
                digest.add(below.as_os_str().as_bytes()).add(owners).add(entry.mode.to_le_bytes());
                digest.add(entry.attributes.len().to_le_bytes());
                for (name, value) in &entry.attributes {
                    digest.add(name).add(value);
                }
                let path = path.join(below);
                entry
                    .add_content(&path, digest, index)
                    .map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
        Ok(())
    }

    /// Returns a file that differs.
    pub(super) fn differing(&self, other: &Self) -> Option<PathBuf> {
        if self.0.len() != other.0.len() {
            return Some("the image".into());
        }
        let (one, other) = self.0.iter().zip(&other.0).find(|(one, other)| one != other)?;
        let mut paths = one.entries.keys().chain(other.entries.keys());
        let differs = |below: &&PathBuf| one.entries.get(*below) != other.entries.get(*below);
        Some(paths.find(differs).map_or(one.path.clone(), |below| one.path.join(below)))
    }
}

impl Entry {
    fn add_content(&self, path: &Path, digest: &mut Fields, index: &mut Index) -> io::Result<()> {
        match &self.kind {
            Kind::Directory => digest.add(b"d"),
            Kind::Link(target) => digest.add(b"l").add(target.as_os_str().as_bytes()),
            Kind::Special(kind, number) => digest.add(b"s").add(kind.to_le_bytes()).add(number.to_le_bytes()),
            Kind::File => match index.digest(path, self.identity) {
                Ok(content) => digest.add(b"f").add(content.0),
                // The program owns its copy in the overlay, and could give itself the permission.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    digest.add(b"u").add(format!("{:?}", self.identity))
                }
                Err(error) => return Err(error),
            },
        };
        Ok(())
    }
}

/// Returns all files of a layer by their paths in it.
fn entries(layer: &Path) -> io::Result<BTreeMap<PathBuf, Entry>> {
    let mut entries = BTreeMap::new();
    let mut directories = vec![PathBuf::new()];
    let mut buffer = vec![0; MOST_ATTRIBUTES];
    entries.insert(PathBuf::new(), entry(layer, &mut buffer)?);
    // A loop, because an image may have directories deeper than the stack.
    while let Some(directory) = directories.pop() {
        for found in fs::read_dir(layer.join(&directory))? {
            let below = directory.join(found?.file_name());
            let entry = entry(&layer.join(&below), &mut buffer)?;
            if entry.kind == Kind::Directory {
                directories.push(below.clone());
            }
            entries.insert(below, entry);
        }
    }
    Ok(entries)
}

fn entry(path: &Path, buffer: &mut [u8]) -> io::Result<Entry> {
    let stat = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Link(fs::read_link(path)?),
        kind => Kind::Special(kind.as_raw_mode(), stat.st_rdev),
    };
    let (mode, uid, gid) = (stat.st_mode & 0o7777, stat.st_uid, stat.st_gid);
    Ok(Entry { kind, identity: Identity::of(&stat), mode, uid, gid, attributes: attributes(path, buffer)? })
}

/// Returns the extended attributes of a file, sorted by name.
fn attributes(path: &Path, buffer: &mut [u8]) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let length = match llistxattr(path, &mut *buffer) {
        Err(Errno::NOTSUP) => 0,
        length => length?,
    };
    let names = buffer.get(..length).unwrap_or_default().to_owned();
    let mut attributes = Vec::new();
    for name in names.split_inclusive(|byte| *byte == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
        let length = lgetxattr(path, name, &mut *buffer)?;
        attributes.push((name.to_bytes().to_owned(), buffer.get(..length).unwrap_or_default().to_owned()));
    }
    attributes.sort();
    Ok(attributes)
}

#[cfg(test)]
mod tests {
    use super::super::digest::{Digest, Fields};
    use super::super::index::Index;
    use super::Layers;
    use rustix::fs::{CWD, FileType, Mode, XattrFlags, mknodat, setxattr};
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::{Path, PathBuf};
    use tempfile::TempDir;

    /// Returns a layer of a store with a file, a directory and a symlink.
    fn layer(store: &Path, name: &str) -> PathBuf {
        let files = store.join(name).join("files");
        fs::create_dir_all(files.join("directory")).unwrap();
        fs::write(files.join("file"), "one").unwrap();
        symlink("file", files.join("link")).unwrap();
        files
    }

    fn key(layers: &[PathBuf]) -> Digest {
        let mut digest = Fields::default();
        Layers::of(layers).unwrap().add_to(&mut digest, &mut Index::default(), (0, 0)).unwrap();
        digest.finish()
    }

    #[test]
    fn every_change_of_a_layer_changes_the_key() {
        let store = TempDir::new().unwrap();
        let (upper, lower) = (layer(store.path(), "a"), layer(store.path(), "b"));
        let first = key(&[upper.clone(), lower.clone()]);
        assert_eq!(key(&[upper.clone(), lower.clone()]), first);
        // The same layers in another store.
        let other = TempDir::new().unwrap();
        assert_eq!(key(&[layer(other.path(), "a"), layer(other.path(), "b")]), first);
        assert_ne!(key(&[lower.clone(), upper.clone()]), first);
        assert_ne!(key(std::slice::from_ref(&upper)), first);
        let mut known = vec![first];
        let mut changed = |what: &str| {
            let layers = [upper.clone(), lower.clone()];
            let key = key(&layers);
            assert!(!known.contains(&key), "{what}");
            known.push(key);
        };
        fs::write(lower.join("file"), "two").unwrap();
        changed("content");
        fs::set_permissions(lower.join("directory"), Permissions::from_mode(0o700)).unwrap();
        changed("permissions");
        mknodat(CWD, upper.join("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        changed("special file");
        fs::remove_file(upper.join("link")).unwrap();
        symlink("other", upper.join("link")).unwrap();
        changed("symlink");
        if setxattr(upper.join("directory"), "user.overlay.opaque", b"y", XattrFlags::empty()).is_ok() {
            changed("attribute that hides lower files");
        }
    }

    #[test]
    fn changed_file_is_named() {
        let store = TempDir::new().unwrap();
        let layers = [layer(store.path(), "a"), layer(store.path(), "b")];
        let before = Layers::of(&layers).unwrap();
        assert_eq!(before.differing(&Layers::of(&layers).unwrap()), None);
        fs::write(layers[1].join("directory/new"), "").unwrap();
        let now = Layers::of(&layers).unwrap();
        assert!(before.differing(&now).unwrap().starts_with(&layers[1]));
        // Without permission to list a directory, nothing is known.
        assert!(Layers::of(&[store.path().join("none")]).is_err());
    }
}
