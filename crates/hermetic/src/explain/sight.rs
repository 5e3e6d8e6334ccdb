//! Looks paths up, inside a sandbox and outside. Files are only looked at: a FIFO or a device is never opened.

use rustix::fs::{Access, FileType, Mode, OFlags, ResolveFlags, access, fstat, open, openat2, readlink};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

/// A file that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its path without symlinks.
    pub(crate) path: PathBuf,
    pub(crate) is_directory: bool,
    /// Whether the caller could write to it.
    pub(crate) is_writable: bool,
}

/// A path as the program sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inside {
    pub(crate) target: Option<Found>,
    /// The directory that contains it.
    pub(crate) parent: Option<Found>,
}

/// A path as the caller sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outside {
    pub(crate) target: Option<Found>,
    /// The innermost directory that exists.
    pub(crate) directory: Option<Found>,
    /// The symlinks on the way.
    pub(crate) links: Vec<PathBuf>,
}

/// Whether the last component of a path is followed if it is a symlink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastLink {
    Followed,
    Kept,
}

/// How many symlinks a path may lead through, as for the kernel.
const MOST_LINKS: usize = 40;

/// How often a lookup is repeated that a rename has disturbed.
const MOST_TRIES: usize = 4;

/// File systems whose files mean something else to every process.
const VIRTUAL: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Returns whether a path leads to a file of the kernel.
pub(crate) fn is_virtual(path: &Path) -> bool {
    VIRTUAL.iter().any(|known| path.starts_with(known))
}

/// The root directory of a thread.
pub(crate) struct Root(OwnedFd);

impl Root {
    pub(crate) fn of(thread: u32) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        open(format!("/proc/{thread}/root"), flags, Mode::empty()).ok().map(Self)
    }

    /// Looks an absolute path up.
    pub(crate) fn look(&self, path: &Path, last: LastLink) -> Inside {
        Inside {
            target: self.find(path, last),
            parent: path.parent().and_then(|parent| self.find(parent, LastLink::Followed)),
        }
    }

    fn find(&self, path: &Path, last: LastLink) -> Option<Found> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let mut flags = OFlags::PATH | OFlags::CLOEXEC;
        if last == LastLink::Kept {
            flags |= OFlags::NOFOLLOW;
        }
        let tries = (0..MOST_TRIES).map(|_| openat2(&self.0, path, flags, Mode::empty(), resolve));
        let file = tries.into_iter().find(|tried| !matches!(tried, Err(Errno::AGAIN)))?.ok()?;
        let here = format!("/proc/self/fd/{}", file.as_raw_fd());
        let kind = FileType::from_raw_mode(fstat(&file).ok()?.st_mode);
        Some(Found {
            path: PathBuf::from(OsString::from_vec(readlink(&here, Vec::new()).ok()?.into_bytes())),
            is_directory: kind == FileType::Directory,
            // Fails with EROFS on a read-only mount (fs/open.c, `do_faccessat`).
            is_writable: kind != FileType::Symlink && access(&here, Access::WRITE_OK).is_ok(),
        })
    }
}

/// Looks an absolute path up on the host, with the rights of this process.
pub(crate) fn look_outside(path: &Path) -> Outside {
    let mut links = Vec::new();
    let mut done = PathBuf::from("/");
    let mut rest: VecDeque<OsString> = names(path).collect();
    let existing = |path: &Path| {
        let is_directory = fs::metadata(path).ok()?.is_dir();
        let is_writable = access(path, Access::WRITE_OK).is_ok();
        Some(Found { path: path.to_owned(), is_directory, is_writable })
    };
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            done.pop();
            continue;
        }
        let next = done.join(&name);
        if is_virtual(&next) {
            return Outside::default();
        }
        match fs::symlink_metadata(&next) {
            Err(_) => {
                return Outside {
                    target: None,
                    directory: existing(&done).filter(|done| done.is_directory),
                    links,
                };
            }
            Ok(found) if found.is_symlink() => {
                let Some(target) = fs::read_link(&next).ok().filter(|_| links.len() < MOST_LINKS) else {
                    return Outside::default();
                };
                links.push(next);
                if target.is_absolute() {
                    done = PathBuf::from("/");
                }
                names(&target).rev().for_each(|name| rest.push_front(name));
            }
            Ok(_) => done = next,
        }
    }
    let target = existing(&done);
    let directory = match &target {
        Some(found) if !found.is_directory => done.parent().and_then(existing),
        found => found.clone(),
    };
    Outside { target, directory, links }
}

fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> + '_ {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::{LastLink, Root, look_outside};
    use std::path::Path;

    #[test]
    fn path_outside_is_resolved_with_its_links() {
        let link = Path::new("/proc/self/exe");
        assert_eq!(look_outside(link), super::Outside::default());
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).canonicalize().unwrap();
        let seen = look_outside(&here.join("src/../no/such"));
        assert_eq!(seen.target, None);
        assert_eq!(seen.directory.map(|found| found.path), Some(here.clone()));
        let seen = look_outside(&here.join("src/lib.rs"));
        assert_eq!(seen.target.map(|found| found.path), Some(here.join("src/lib.rs")));
        assert_eq!(seen.directory.map(|found| found.path), Some(here.join("src")));
    }

    #[test]
    fn path_inside_is_found_below_the_root_of_the_thread() {
        let root = Root::of(std::process::id()).unwrap();
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).canonicalize().unwrap();
        let seen = root.look(&here.join("no-such"), LastLink::Followed);
        assert_eq!(seen.target, None);
        assert_eq!(seen.parent.map(|found| found.path), Some(here));
    }
}
