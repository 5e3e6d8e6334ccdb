//! Detects the host's cgroup version, and offers one interface to both.

use crate::error::{Error, LimitWarning};
use crate::files::oom::OomWatch;
use crate::paths::CgroupPaths;
use crate::resources::Resources;
use crate::stats::Stats;
use crate::{devices, files, paths, v1, v2};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// The mount point of the host's cgroup file systems.
const MOUNT_POINT: &str = "/sys/fs/cgroup";

/// The cgroup file systems of a host.
#[derive(Debug)]
pub enum Layout {
    /// A single tree of version 2.
    V2(v2::Hierarchy),
    /// A tree for each controller, perhaps with a tree of version 2 next to them.
    V1(v1::Hierarchies),
}

impl CgroupPaths {
    /// Returns whether the processes of these cgroups are frozen. In version 2, a frozen ancestor counts too.
    /// Status queries call this, so it reads only the freezer's cgroup and no mounts.
    ///
    /// # Errors
    ///
    /// If the state cannot be read. A removed cgroup is not frozen.
    pub fn is_frozen(&self) -> Result<bool, Error> {
        type IsFrozen = fn(&OwnedFd, &Path) -> Result<bool, Error>;
        let (path, is_frozen): (_, IsFrozen) = match (self.path("freezer"), self.path("")) {
            (Some(path), _) => (path, v1::is_frozen),
            (None, Some(path)) => (path, v2::is_frozen),
            (None, None) => return Ok(false),
        };
        open(path)?.map_or(Ok(false), |directory| is_frozen(&directory, path))
    }

    /// Opens the directory of `controller`, to read its [`Files`](crate::stats::Files); the empty name is version 2.
    /// `None` if the cgroup does not exist. Reads no mounts.
    pub fn open(&self, controller: &str) -> Result<Option<OwnedFd>, Error> {
        self.path(controller).map_or(Ok(None), open)
    }

    /// Returns a descriptor that becomes ready when the processes of these cgroups run out of memory. Opens only the
    /// memory controller's cgroup and no mounts.
    ///
    /// # Errors
    ///
    /// If the cgroup or its memory controller is missing.
    pub fn watch_oom(&self) -> Result<OomWatch, Error> {
        type Watch = fn(BorrowedFd<'_>, &Path) -> Result<OomWatch, Error>;
        let (path, watch): (_, Watch) = match (self.path("memory"), self.path("")) {
            (Some(path), _) => (path, OomWatch::version_1),
            (None, Some(path)) => (path, OomWatch::version_2),
            (None, None) => return Err(Error::NotMounted(Path::new(MOUNT_POINT).join("memory"))),
        };
        let missing = || Error::Act { act: "open the cgroup", path: path.to_owned(), errno: Errno::NOENT };
        watch(open(path)?.ok_or_else(missing)?.as_fd(), path)
    }
}

/// Opens a cgroup; `None` if it does not exist.
fn open(path: &Path) -> Result<Option<OwnedFd>, Error> {
    match files::open_directory(CWD, path) {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::NOENT | Errno::NODEV) => Ok(None),
        Err(errno) => Err(Error::Act { act: "open the cgroup", path: path.to_owned(), errno }),
    }
}

impl Layout {
    /// Detects the cgroup file systems that are mounted. With version 2 alone this costs one open and one
    /// `fstatfs`.
    ///
    /// # Errors
    ///
    /// If no cgroups are mounted.
    pub fn detect() -> Result<Self, Error> {
        let mount_point = Path::new(MOUNT_POINT);
        if let Some(tree) = v2::Hierarchy::open(mount_point)? {
            return Ok(Self::V2(tree));
        }
        let unified = v2::Hierarchy::open(&mount_point.join("unified"))?;
        let hierarchies = v1::Hierarchies::detect(unified)?;
        if hierarchies.is_empty() {
            return Err(Error::NotMounted(mount_point.to_owned()));
        }
        Ok(Self::V1(hierarchies))
    }

    /// Returns the paths for `linux.cgroupsPath`, or for the container `id` if that is not set.
    ///
    /// An absolute path starts at the root of the tree. In version 1, a relative path starts at the caller's
    /// own cgroup. In version 2 it starts at the parent of the caller's cgroup: a cgroup with processes, like
    /// the caller's, cannot limit its children.
    ///
    /// # Errors
    ///
    /// If the path is the root of a tree, or `/proc` cannot be read.
    pub fn place(&self, cgroups_path: Option<&str>, id: &str) -> Result<CgroupPaths, Error> {
        match self {
            Self::V1(hierarchies) => hierarchies.place(cgroups_path, id),
            Self::V2(tree) => {
                let is_absolute = cgroups_path.is_some_and(|path| path.starts_with('/'));
                let own = if is_absolute { String::new() } else { own_unified()? };
                let path = paths::resolve(cgroups_path, id, paths::parent(own.trim_start_matches('/')));
                if path.is_empty() {
                    return Err(Error::Root(cgroups_path.unwrap_or_default().to_owned()));
                }
                Ok(CgroupPaths::new([(String::new(), tree.mount_point().join(path))].into()))
            }
        }
    }

    /// Creates the cgroups at `place` with the controllers that `resources` needs. Cgroups that already exist
    /// must be empty and not frozen.
    ///
    /// # Errors
    ///
    /// If one cannot be created or is in use. Those that were created are removed again.
    pub fn create(&self, place: &CgroupPaths, resources: &Resources) -> Result<Cgroup, Error> {
        match self {
            Self::V1(hierarchies) => hierarchies.create(place, resources).map(Cgroup::V1),
            Self::V2(tree) => tree.create(in_tree(tree, place)?, resources).map(Cgroup::V2),
        }
    }

    /// Checks that the cgroups at `place` are empty or do not exist.
    ///
    /// # Errors
    ///
    /// [`Error::NotEmpty`], or [`Error::Frozen`] if no process would run in one.
    pub fn check_unused(&self, place: &CgroupPaths) -> Result<(), Error> {
        match self {
            Self::V1(hierarchies) => hierarchies.check_unused(place),
            Self::V2(tree) => {
                tree.find(in_tree(tree, place)?)?.map_or(Ok(()), |cgroup| cgroup.check_unused())
            }
        }
    }

    /// Opens the cgroups at `place` that another program created, with the controllers that `resources` needs.
    /// Creates the ones of controllers that systemd does not use.
    pub fn complete(&self, place: &CgroupPaths, resources: &Resources) -> Result<Cgroup, Error> {
        match self {
            Self::V1(hierarchies) => hierarchies.complete(place, resources).map(Cgroup::V1),
            Self::V2(tree) => tree.complete(in_tree(tree, place)?, resources).map(Cgroup::V2),
        }
    }

    /// Opens the cgroups at `place`, if any exist.
    pub fn find(&self, place: &CgroupPaths) -> Result<Option<Cgroup>, Error> {
        match self {
            Self::V1(hierarchies) => Ok(hierarchies.find(place)?.map(Cgroup::V1)),
            Self::V2(tree) => Ok(tree.find(in_tree(tree, place)?)?.map(Cgroup::V2)),
        }
    }

    /// Returns the names of the siblings of the cgroups at `place`, in all trees.
    pub fn beside(&self, place: &CgroupPaths) -> Result<BTreeSet<String>, Error> {
        let mut names = BTreeSet::new();
        for path in place.distinct().filter_map(Path::parent) {
            let failed = |errno| Error::Act { act: "read", path: path.to_owned(), errno };
            let directory = files::open_directory(CWD, path).map_err(failed)?;
            names.extend(files::directories(directory.as_fd()).map_err(failed)?);
        }
        Ok(names)
    }

    /// Removes the cgroups at `place` and those below them. Waits for processes that are exiting. Succeeds if
    /// there are none.
    ///
    /// # Errors
    ///
    /// [`Error::Deadline`] with the processes that are still in one.
    pub fn remove(&self, place: &CgroupPaths, patience: Duration) -> Result<(), Error> {
        match self {
            Self::V1(hierarchies) => hierarchies.remove(place, patience),
            Self::V2(tree) => tree.remove(in_tree(tree, place)?, patience),
        }
    }
}

/// Returns the path of `place` relative to the tree's root.
fn in_tree<'p>(tree: &v2::Hierarchy, place: &'p CgroupPaths) -> Result<&'p str, Error> {
    let path = place.path("").ok_or_else(|| Error::NotMounted(tree.mount_point().to_owned()))?;
    paths::below(tree.mount_point(), path).ok_or_else(|| Error::NotMounted(path.to_owned()))
}

/// Returns the caller's own cgroup of version 2.
fn own_unified() -> Result<String, Error> {
    let path = "/proc/self/cgroup";
    let text = files::text(CWD, path);
    let text = text.map_err(|errno| Error::Act { act: "read", path: path.into(), errno })?;
    let own = paths::own(&text, "").map(ToOwned::to_owned);
    own.ok_or_else(|| Error::Unexpected { path: path.into(), text })
}

/// A container's cgroups.
#[derive(Debug)]
pub enum Cgroup {
    /// The one cgroup of version 2.
    V2(v2::Cgroup),
    /// One cgroup in each tree.
    V1(v1::Cgroup),
}

/// Defines methods that call the method of the same name on either variant.
macro_rules! either {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) -> $returned:ty;)*) => {$(
        $(#[$doc])*
        pub fn $name(&self, $($argument: $type),*) -> $returned {
            match self {
                Self::V2(cgroup) => cgroup.$name($($argument),*),
                Self::V1(cgroup) => cgroup.$name($($argument),*),
            }
        }
    )*};
}

impl Cgroup {
    /// Returns the version 2 directory that a process can be spawned into, so that it need not be moved.
    #[must_use]
    pub fn directory(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::V2(cgroup) => Some(cgroup.directory()),
            Self::V1(cgroup) => cgroup.unified().map(v2::Cgroup::directory),
        }
    }

    either! {
        /// Moves a process into all of the cgroups; 0 is the caller. A process that was spawned into
        /// [`directory`](Self::directory) is already in the cgroup of version 2.
        ///
        /// # Errors
        ///
        /// If the process cannot be moved.
        join(pid: i32) -> Result<(), Error>;
        /// Applies the settings that must, or may, be in force before a process exists.
        apply_early(resources: &Resources) -> Result<Vec<LimitWarning>, Error>;
        /// Applies the settings that could slow down, stop or kill a process during its setup.
        apply_late(resources: &Resources) -> Result<(), Error>;
        /// Applies all settings except device rules to cgroups that are in use.
        ///
        /// # Errors
        ///
        /// The first field that cannot be set. Those before it stay set.
        update(resources: &Resources) -> Result<Vec<LimitWarning>, Error>;
        /// Puts device rules in force in new cgroups.
        ///
        /// # Errors
        ///
        /// If the caller has no privileges over the host's devices. A caller in a user namespace may ignore it.
        set_devices(rules: &[devices::Rule]) -> Result<(), Error>;
        /// Returns the processes in the cgroups and below them.
        pids() -> Result<Vec<i32>, Error>;
        /// Freezes all processes, and returns when they have stopped.
        ///
        /// # Errors
        ///
        /// [`Error::Deadline`] if a process does not stop in time. Then all of them are thawed.
        freeze(patience: Duration) -> Result<(), Error>;
        /// Thaws all processes.
        thaw() -> Result<(), Error>;
        /// Kills all processes, frozen ones too. They may still be exiting when this returns.
        kill() -> Result<(), Error>;
        /// Sends a signal to each process.
        ///
        /// # Errors
        ///
        /// If a process cannot be signalled, unless it has exited.
        signal(signal: Signal) -> Result<(), Error>;
        /// Returns when the cgroups and those below them are empty.
        ///
        /// # Errors
        ///
        /// [`Error::Deadline`] with the processes that are still there.
        wait_empty(patience: Duration) -> Result<(), Error>;
        /// Returns the resource usage of the processes.
        ///
        /// # Errors
        ///
        /// If a file cannot be read or does not have the usual form.
        stats() -> Result<Stats, Error>;
        /// Returns how many of the processes the OOM killer has killed.
        oom_kills() -> Result<u64, Error>;
    }
}
