//! The tree of version 2: creates, finds and removes cgroups, and enables controllers.

use super::Cgroup;
use crate::controller::Controllers;
use crate::error::Error;
use crate::files::{self, remove};
use crate::resources::Resources;
use crate::{paths, settings};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, mkdirat};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `CGROUP2_SUPER_MAGIC` (linux/magic.h).
const MAGIC: u32 = 0x6367_7270;

/// The root of a cgroup2 file system.
#[derive(Debug)]
pub struct Hierarchy {
    directory: OwnedFd,
    mount_point: PathBuf,
}

impl Hierarchy {
    /// Opens the tree that is mounted at `mount_point`; `None` if it is not a cgroup2 file system.
    pub fn open(mount_point: &Path) -> Result<Option<Self>, Error> {
        let failed = |errno| Error::Act { act: "open", path: mount_point.to_owned(), errno };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = match rustix::fs::openat(CWD, mount_point, flags, Mode::empty()) {
            Ok(directory) => directory,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(errno) => return Err(failed(errno)),
        };
        let magic = rustix::fs::fstatfs(&directory).map_err(failed)?.f_type;
        // The field's type depends on the architecture; magic numbers have 32 bits.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "32 bits of a magic number"
        )]
        let is_cgroup2 = magic as u32 == MAGIC;
        Ok(is_cgroup2.then(|| Self { directory, mount_point: mount_point.to_owned() }))
    }

    #[must_use]
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    fn path(&self, cgroup: &str) -> PathBuf {
        if cgroup.is_empty() { self.mount_point.clone() } else { self.mount_point.join(cgroup) }
    }

    fn failed(&self, act: &'static str, cgroup: &str) -> impl Fn(Errno) -> Error {
        let path = self.path(cgroup);
        move |errno| Error::Act { act, path: path.clone(), errno }
    }

    /// Creates the cgroup at `path` and enables the controllers that `resources` needs. `path` is clean and
    /// relative to the root. A cgroup that already exists must be empty and not frozen.
    ///
    /// Controllers that cannot be enabled are skipped. If `resources` needs one, applying the setting fails
    /// later, with an error that can name the field.
    ///
    /// # Errors
    ///
    /// If it cannot be created, or is in use.
    pub fn create(&self, path: &str, resources: &Resources) -> Result<Cgroup, Error> {
        let asked = settings::v2::controllers(resources);
        let mut made = Vec::new();
        let created = self.make(path, asked.union(Controllers::ACCOUNTING), &mut made).and_then(|cgroup| {
            if made.last().is_none_or(|made| made != path) {
                cgroup.check_unused()?;
            }
            cgroup.check_type(asked).map(|()| cgroup)
        });
        if created.is_err() {
            for directory in made.iter().rev() {
                remove::undo(self.directory.as_fd(), Path::new(directory));
            }
        }
        created
    }

    /// Opens or creates the cgroup at `path`, even if it is in use, and enables the controllers for
    /// `resources`.
    pub fn complete(&self, path: &str, resources: &Resources) -> Result<Cgroup, Error> {
        self.make(path, settings::v2::controllers(resources), &mut Vec::new())
    }

    fn make(&self, path: &str, wanted: Controllers, made: &mut Vec<String>) -> Result<Cgroup, Error> {
        if path.is_empty() {
            return Err(Error::Root("/".to_owned()));
        }
        let parent = paths::parent(path);
        let above = self.above(parent, made)?;
        let passed = self.pass_on(parent, &above, wanted)?;
        let name = paths::name(path);
        match mkdirat(&above, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => made.push(path.to_owned()),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(self.failed("make the cgroup", path)(errno)),
        }
        let directory =
            files::open_directory(above.as_fd(), name).map_err(self.failed("open the cgroup", path))?;
        Ok(Cgroup { directory, path: self.path(path), passed })
    }

    /// Opens the parent cgroup. Creates it and its ancestors if they do not exist.
    fn above(&self, parent: &str, made: &mut Vec<String>) -> Result<OwnedFd, Error> {
        let name = if parent.is_empty() { "." } else { parent };
        let failed = self.failed("open the cgroup", parent);
        match files::open_directory(self.directory.as_fd(), name) {
            Err(Errno::NOENT) => {}
            opened => return opened.map_err(failed),
        }
        for (end, _) in parent.match_indices('/').chain([(parent.len(), "")]) {
            let directory = parent.get(..end).unwrap_or(parent);
            match mkdirat(&self.directory, directory, Mode::from_raw_mode(0o755)) {
                Ok(()) => made.push(directory.to_owned()),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(self.failed("make the cgroup", directory)(errno)),
            }
        }
        files::open_directory(self.directory.as_fd(), name).map_err(failed)
    }

    /// Makes `parent` enable the controllers for its children, and returns the ones that are enabled.
    fn pass_on(&self, parent: &str, above: &OwnedFd, wanted: Controllers) -> Result<PassedOn, Error> {
        let mut passed = PassedOn { controllers: enabled(above)?, in_tree: Some(wanted), errno: None };
        if wanted.without(passed.controllers).is_empty() {
            return Ok(passed);
        }
        let text = files::text(self.directory.as_fd(), "cgroup.controllers");
        let text = text.map_err(self.failed("read the controllers of", ""))?;
        let in_tree = Controllers::parse(&text);
        passed.in_tree = Some(in_tree);
        let possible = wanted.intersection(in_tree);
        if possible.without(passed.controllers).is_empty() {
            return Ok(passed);
        }
        // Enables controllers from the root down, because a cgroup can only enable those that its parent enables.
        let ends = parent.match_indices('/').map(|(end, _)| end).chain([parent.len()]);
        let levels =
            [""].into_iter().chain(ends.filter_map(|end| parent.get(..end)).filter(|path| !path.is_empty()));
        for level in levels {
            let name = if level.is_empty() { "." } else { level };
            let directory = files::open_directory(self.directory.as_fd(), name);
            let directory = directory.map_err(self.failed("open the cgroup", level))?;
            let missing = possible.without(enabled(&directory)?);
            if let Err(errno) = enable(&directory, missing) {
                passed.errno = Some(errno);
            }
        }
        passed.controllers = enabled(above)?;
        Ok(passed)
    }

    /// Opens the cgroup at `path`, relative to the root, if it exists.
    pub fn find(&self, path: &str) -> Result<Option<Cgroup>, Error> {
        if path.is_empty() {
            return Err(Error::Root("/".to_owned()));
        }
        match files::open_directory(self.directory.as_fd(), path) {
            Ok(directory) => {
                let path = self.path(path);
                Ok(Some(Cgroup { directory, path, passed: PassedOn::default() }))
            }
            Err(Errno::NOENT | Errno::NODEV) => Ok(None),
            Err(errno) => Err(self.failed("open the cgroup", path)(errno)),
        }
    }

    /// Removes the cgroup at `path` and those below it. Succeeds if it does not exist. Waits for processes that
    /// are exiting.
    ///
    /// # Errors
    ///
    /// [`Error::Deadline`] with the processes that are still in it.
    pub fn remove(&self, path: &str, patience: Duration) -> Result<(), Error> {
        if path.is_empty() {
            return Err(Error::Root("/".to_owned()));
        }
        remove::tree(self.directory.as_fd(), path, &self.path(path), patience)
    }
}

/// The controllers that the parent enables for its children.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PassedOn {
    pub(super) controllers: Controllers,
    /// Controllers that the tree has, at least among those that were wanted; `None` if not checked.
    pub(super) in_tree: Option<Controllers>,
    /// The kernel's error if enabling one of them failed.
    pub(super) errno: Option<Errno>,
}

fn enabled(directory: &OwnedFd) -> Result<Controllers, Error> {
    let mut room = [0; 256];
    let text = files::short(directory.as_fd(), "cgroup.subtree_control", &mut room);
    let path = || PathBuf::from("cgroup.subtree_control");
    text.map(Controllers::parse).map_err(|errno| Error::Act { act: "read", path: path(), errno })
}

/// Enables controllers for the children: all at once, and if the kernel rejects that, one by one.
fn enable(directory: &OwnedFd, controllers: Controllers) -> Result<(), Errno> {
    let mut line = String::with_capacity(64);
    for controller in controllers.iter() {
        line.push_str(if line.is_empty() { "+" } else { " +" });
        line.push_str(controller.name());
    }
    if line.is_empty() {
        return Ok(());
    }
    let put = |line: &str| files::put(directory.as_fd(), "cgroup.subtree_control", line);
    let Err(errno) = put(&line) else { return Ok(()) };
    // Tolerated: controllers that cannot be enabled are found missing later, and the first error says why.
    let refused = line.split(' ').filter(|word| put(word).is_err()).count();
    if refused == 0 { Ok(()) } else { Err(errno) }
}
