//! Looks up paths in an image that is not mounted yet.

use crate::error::Error;
use crate::host::HostFile;
use crate::profile::{Image, Root};
use husk_script::sys::Errno;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, getxattr, open, openat2, readlink};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

/// The attribute of a directory that hides those of lower layers (overlayfs.rst, "userxattr").
const OPAQUE: &str = "user.overlay.opaque";

/// The most symlinks that a path may lead through (linux/namei.h, `MAXSYMLINKS`).
const MOST_LINKS: usize = 40;

/// An opened image, in which absolute paths start at its root.
pub(crate) enum Inside<'i> {
    Directory { directory: PathBuf, root: OwnedFd },
    Layers(&'i [PathBuf]),
}

impl<'i> Inside<'i> {
    pub(crate) fn of(image: &'i Image) -> Result<Self, Error> {
        let directory = match &image.root {
            Root::Directory(directory) => directory,
            Root::Layers(layers) => return Ok(Self::Layers(layers)),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |directory: PathBuf| {
            let root = open(&directory, flags, Mode::empty())?;
            Ok(Self::Directory { directory, root })
        };
        fs::canonicalize(directory).and_then(open).map_err(|error| Error::Look {
            act: format!("open {}", directory.display()),
            reason: error.into(),
        })
    }

    pub(crate) fn find(&self, path: &Path) -> io::Result<HostFile> {
        let (directory, root) = match self {
            Self::Directory { directory, root } => (directory, root),
            Self::Layers(layers) => return merged(layers, path),
        };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let found = loop {
            match openat2(root, path, flags, Mode::empty(), resolve) {
                // A rename or mount on the machine interfered with the lookup of a `..` (openat2(2)).
                Err(Errno::AGAIN) => {}
                found => break found?,
            }
        };
        let mode = fstat(&found)?.st_mode;
        let is_directory = FileType::from_raw_mode(mode) == FileType::Directory;
        let source = readlink(format!("/proc/self/fd/{}", found.as_raw_fd()), Vec::new())?;
        let source = PathBuf::from(OsString::from_vec(source.into_bytes()));
        let below = source.strip_prefix(directory).map_err(io::Error::other)?;
        Ok(HostFile { path: Path::new("/").join(below), is_directory, mode: mode & 0o1777 })
    }

    pub(crate) fn has(&self, path: &Path) -> bool {
        self.find(path).is_ok()
    }

    /// Returns whether one of the program's own directories may be mounted here. It may not cover another kind of file
    /// or a symlink, even a dangling one.
    pub(crate) fn has_own(&self, path: &Path) -> bool {
        let is_made = path == Path::new("/dev") || path == Path::new("/tmp");
        match self.find(path) {
            Ok(found) => found.is_directory && found.path == path,
            Err(_) => is_made && self.lacks(path),
        }
    }

    /// Returns whether nothing has this name, not even a dangling symlink.
    fn lacks(&self, path: &Path) -> bool {
        match self {
            Self::Directory { root, .. } => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let entry = openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT);
                entry.is_err_and(|errno| errno == Errno::NOENT)
            }
            Self::Layers(layers) => {
                let name = path.file_name().unwrap_or_default();
                entry(layers, name).is_ok_and(|entry| entry.is_none())
            }
        }
    }
}

/// A name in a directory of an overlay.
enum Entry {
    /// A directory, which consists of those of these layers.
    Directory(Vec<PathBuf>),
    Symlink(PathBuf),
    Other,
}

/// Finds a file in an overlay of layers, as the kernel would if they were mounted.
fn merged(layers: &[PathBuf], path: &Path) -> io::Result<HostFile> {
    let mut left: VecDeque<OsString> = names(path).collect();
    // The directories on the way, each as it is in the layers that have it.
    let mut way: Vec<(OsString, Vec<PathBuf>)> = Vec::new();
    let mut links = 0;
    let place = |way: &[(OsString, Vec<PathBuf>)]| -> PathBuf {
        Path::new("/").join(way.iter().map(|(name, _)| name).collect::<PathBuf>())
    };
    while let Some(name) = left.pop_front() {
        if name == ".." {
            way.pop();
            continue;
        }
        let within = way.last().map_or(layers, |(_, directories)| directories);
        match entry(within, &name)? {
            None => return Err(Errno::NOENT.into()),
            Some(Entry::Directory(directories)) => way.push((name, directories)),
            Some(Entry::Symlink(_)) if links == MOST_LINKS => return Err(Errno::LOOP.into()),
            Some(Entry::Symlink(target)) => {
                links += 1;
                if target.is_absolute() {
                    way.clear();
                }
                let rest = std::mem::take(&mut left);
                left = names(&target).chain(rest).collect();
            }
            Some(Entry::Other) if left.is_empty() => {
                return Ok(HostFile { path: place(&way).join(name), is_directory: false, mode: 0o644 });
            }
            Some(Entry::Other) => return Err(Errno::NOTDIR.into()),
        }
    }
    Ok(HostFile { path: place(&way), is_directory: true, mode: 0o755 })
}

/// Returns the names and `..` of a path.
fn names(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    })
}

/// Returns what has a name in a directory that consists of those of several layers. None of their paths leads through a
/// symlink.
fn entry(directories: &[PathBuf], name: &OsStr) -> io::Result<Option<Entry>> {
    let mut merged = Vec::new();
    for directory in directories {
        let path = directory.join(name);
        let found = match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            found => found?,
        };
        let kind = found.file_type();
        if kind.is_dir() {
            let is_opaque = getxattr(&path, OPAQUE, &mut [0; 8][..]).is_ok();
            merged.push(path);
            if is_opaque {
                break;
            }
            continue;
        }
        let is_whiteout = kind.is_char_device() && found.rdev() == 0;
        return Ok(match merged.is_empty() {
            // A directory of a higher layer hides the file.
            false => Some(Entry::Directory(merged)),
            true if is_whiteout => None,
            true if kind.is_symlink() => Some(Entry::Symlink(fs::read_link(path)?)),
            true => Some(Entry::Other),
        });
    }
    Ok((!merged.is_empty()).then_some(Entry::Directory(merged)))
}

#[cfg(test)]
mod tests {
    use super::merged;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};

    #[test]
    fn lookup_in_layers_is_that_of_an_overlay() {
        let directory = tempfile::TempDir::new().unwrap();
        let layers = ["upper", "lower"].map(|name| directory.path().join(name));
        let [upper, lower] = &layers;
        for path in [upper.join("etc"), lower.join("etc/deep"), lower.join("usr/bin"), upper.join("opaque")] {
            fs::create_dir_all(path).unwrap();
        }
        fs::create_dir(lower.join("opaque")).unwrap();
        for path in
            [upper.join("etc/new"), lower.join("etc/old"), lower.join("opaque/hidden"), lower.join("f")]
        {
            fs::write(path, "").unwrap();
        }
        fs::create_dir(upper.join("f")).unwrap();
        rustix::fs::setxattr(upper.join("opaque"), super::OPAQUE, b"y", rustix::fs::XattrFlags::empty())
            .unwrap();
        let mode = rustix::fs::Mode::empty();
        let device = rustix::fs::FileType::CharacterDevice;
        rustix::fs::mknodat(rustix::fs::CWD, upper.join("etc/gone"), device, mode, 0).unwrap();
        fs::write(lower.join("etc/gone"), "").unwrap();
        symlink("/usr/bin", lower.join("bin")).unwrap();
        symlink("../../../../etc/../bin", lower.join("etc/up")).unwrap();
        symlink("loop", upper.join("loop")).unwrap();
        let find =
            |path: &str| merged(&layers, Path::new(path)).ok().map(|found| (found.path, found.is_directory));
        let is = |path: &str, is_directory| Some((PathBuf::from(path), is_directory));
        for (path, found) in [
            ("/", is("/", true)),
            ("/etc/new", is("/etc/new", false)),
            ("etc/old", is("/etc/old", false)),
            ("/etc/deep/..", is("/etc", true)),
            ("/etc/up", is("/usr/bin", true)),
            ("/bin/../bin", is("/usr/bin", true)),
            ("/../../f", is("/f", true)),
            ("/etc/gone", None),
            ("/opaque/hidden", None),
            ("/etc/new/below", None),
            ("/loop", None),
            ("/none", None),
        ] {
            assert_eq!(find(path), found, "{path}");
        }
    }
}
