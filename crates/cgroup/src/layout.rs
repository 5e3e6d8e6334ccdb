//! Which version a host has, and one way to use either.

use crate::error::{Error, Warning};
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

/// Where cgroups are mounted, since there are any.
const MOUNT_POINT: &str = "/sys/fs/cgroup";

/// The cgroup file systems of a host.
#[derive(Debug)]
pub enum Layout {
    /// One tree.
    V2(v2::Hierarchy),
    /// A tree for each controller, and perhaps one of version 2 beside them.
    V1(v1::Hierarchies),
}

impl CgroupPaths {
    /// Whether the processes of these cgroups are stopped, in version 2 by whomever. It is asked for whoever looks at
    /// a container, so only the cgroup that stops them is looked at, and not what is mounted.
    ///
    /// # Errors
    ///
    /// If it cannot be read. What is gone is not frozen.
    pub fn is_frozen(&self) -> Result<bool, Error> {
        type IsFrozen = fn(&OwnedFd, &Path) -> Result<bool, Error>;
        let (path, is_frozen): (_, IsFrozen) = match (self.path("freezer"), self.path("")) {
            (Some(path), _) => (path, v1::is_frozen),
            (None, Some(path)) => (path, v2::is_frozen),
            (None, None) => return Ok(false),
        };
        match files::open_directory(CWD, path) {
            Ok(directory) => is_frozen(&directory, path),
            Err(Errno::NOENT | Errno::NODEV) => Ok(false),
            Err(source) => Err(Error::Act { act: "open the cgroup", path: path.to_owned(), source }),
        }
    }
}

impl Layout {
    /// Looks at what is mounted. With version 2 alone that is an open and a look at the file system's
    /// type.
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

    /// Where the cgroup of `linux.cgroupsPath` is, or of the container `id` if that says nothing. An
    /// absolute path counts from the top. Any other counts from the caller's own cgroup in version 1,
    /// and in version 2 from the one above that: a cgroup with processes, as the caller's is, cannot
    /// limit those below it.
    ///
    /// # Errors
    ///
    /// If it is the root of a tree, or `/proc` cannot be read.
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

    /// Makes the cgroups of a place, ready to be given what `resources` says. Ones that are there
    /// already have to be empty and not frozen.
    ///
    /// # Errors
    ///
    /// If one cannot be made or is in use; then those that were made are gone again.
    pub fn create(&self, place: &CgroupPaths, resources: &Resources) -> Result<Cgroup, Error> {
        match self {
            Self::V1(hierarchies) => hierarchies.create(place, resources).map(Cgroup::V1),
            Self::V2(tree) => tree.create(in_tree(tree, place)?, resources).map(Cgroup::V2),
        }
    }

    /// Refuses a place that is somebody else's. One where nothing is yet is nobody's.
    ///
    /// # Errors
    ///
    /// [`Error::NotEmpty`], and [`Error::Frozen`] where nothing would run.
    pub fn check_unused(&self, place: &CgroupPaths) -> Result<(), Error> {
        match self {
            Self::V1(hierarchies) => hierarchies.check_unused(place),
            Self::V2(tree) => {
                tree.find(in_tree(tree, place)?)?.map_or(Ok(()), |cgroup| cgroup.check_unused())
            }
        }
    }

    /// The cgroups of a place that somebody else has made, ready to be given what `resources` says: where
    /// systemd uses not all controllers, those that are missing too.
    ///
    /// # Errors
    ///
    /// If one cannot be opened or made.
    pub fn complete(&self, place: &CgroupPaths, resources: &Resources) -> Result<Cgroup, Error> {
        match self {
            Self::V1(hierarchies) => hierarchies.complete(place, resources).map(Cgroup::V1),
            Self::V2(tree) => tree.complete(in_tree(tree, place)?, resources).map(Cgroup::V2),
        }
    }

    /// The cgroups of a place, if there are any.
    ///
    /// # Errors
    ///
    /// If one cannot be opened.
    pub fn find(&self, place: &CgroupPaths) -> Result<Option<Cgroup>, Error> {
        match self {
            Self::V1(hierarchies) => Ok(hierarchies.find(place)?.map(Cgroup::V1)),
            Self::V2(tree) => Ok(tree.find(in_tree(tree, place)?)?.map(Cgroup::V2)),
        }
    }

    /// The names of all cgroups that are beside those of a place, in whichever tree.
    ///
    /// # Errors
    ///
    /// If a directory cannot be read.
    pub fn beside(&self, place: &CgroupPaths) -> Result<BTreeSet<String>, Error> {
        let mut names = BTreeSet::new();
        for path in place.distinct().filter_map(Path::parent) {
            let failed = |source| Error::Act { act: "read", path: path.to_owned(), source };
            let directory = files::open_directory(CWD, path).map_err(failed)?;
            names.extend(files::directories(directory.as_fd()).map_err(failed)?);
        }
        Ok(names)
    }

    /// Removes the cgroups of a place and those below them, waiting for processes that are ending. It is
    /// no error if there are none.
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

/// The path of a place below the tree's root.
fn in_tree<'p>(tree: &v2::Hierarchy, place: &'p CgroupPaths) -> Result<&'p str, Error> {
    let path = place.path("").ok_or_else(|| Error::NotMounted(tree.mount_point().to_owned()))?;
    paths::below(tree.mount_point(), path).ok_or_else(|| Error::NotMounted(path.to_owned()))
}

/// The caller's own cgroup of version 2.
fn own_unified() -> Result<String, Error> {
    let path = "/proc/self/cgroup";
    let text = files::text(CWD, path);
    let text = text.map_err(|source| Error::Act { act: "read", path: path.into(), source })?;
    let own = paths::own(&text, "").map(ToOwned::to_owned);
    own.ok_or_else(|| Error::Unexpected { path: path.into(), text })
}

/// A container's cgroups.
#[derive(Debug)]
pub enum Cgroup {
    /// One.
    V2(v2::Cgroup),
    /// One for each tree.
    V1(v1::Cgroup),
}

/// The same method of either.
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
    /// The directory of version 2 that a process can be born in, and needs no moving to.
    #[must_use]
    pub fn directory(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::V2(cgroup) => Some(cgroup.directory()),
            Self::V1(cgroup) => cgroup.unified().map(v2::Cgroup::directory),
        }
    }

    either! {
        /// Moves a process into all of them: 0 is the caller. What was born in
        /// [`directory`](Self::directory) is where it belongs in version 2.
        ///
        /// # Errors
        ///
        /// If it cannot be moved.
        join(pid: i32) -> Result<(), Error>;
        /// Sets what has to be, or may be, before there is a process.
        ///
        /// # Errors
        ///
        /// The first field that cannot be set.
        apply_early(resources: &Resources) -> Result<Vec<Warning>, Error>;
        /// Sets what could slow down, stop or kill a process that is being set up.
        ///
        /// # Errors
        ///
        /// The first field that cannot be set.
        apply_late(resources: &Resources) -> Result<(), Error>;
        /// Sets all of it on cgroups that are in use. Device rules are left alone.
        ///
        /// # Errors
        ///
        /// The first field that cannot be set; what stands before it is set.
        update(resources: &Resources) -> Result<Vec<Warning>, Error>;
        /// Puts device rules in force in new cgroups.
        ///
        /// # Errors
        ///
        /// Without privileges over the host's devices nobody can, and a caller in a user namespace may
        /// pass over it.
        set_devices(rules: &[devices::Rule]) -> Result<(), Error>;
        /// The processes in them and below.
        ///
        /// # Errors
        ///
        /// If they cannot be read.
        pids() -> Result<Vec<i32>, Error>;
        /// Stops their processes, and returns when they have stopped.
        ///
        /// # Errors
        ///
        /// [`Error::Deadline`] if one does not in time; then all go on.
        freeze(patience: Duration) -> Result<(), Error>;
        /// Lets their processes go on.
        ///
        /// # Errors
        ///
        /// If the freezer cannot be written to.
        thaw() -> Result<(), Error>;
        /// Kills their processes, frozen ones too. They may not have ended yet.
        ///
        /// # Errors
        ///
        /// If one cannot be killed.
        kill() -> Result<(), Error>;
        /// Sends a signal to each of their processes.
        ///
        /// # Errors
        ///
        /// If one cannot be sent to, other than because it has ended.
        signal(signal: Signal) -> Result<(), Error>;
        /// Returns when there is no process in them or below.
        ///
        /// # Errors
        ///
        /// [`Error::Deadline`] with those that still are.
        wait_empty(patience: Duration) -> Result<(), Error>;
        /// What their processes use.
        ///
        /// # Errors
        ///
        /// If a file cannot be read or does not read as it always does.
        stats() -> Result<Stats, Error>;
        /// Something that becomes ready when memory runs out.
        ///
        /// # Errors
        ///
        /// If there is no memory controller here.
        watch_oom() -> Result<OomWatch, Error>;
        /// How often the kernel has killed one of their processes for want of memory.
        ///
        /// # Errors
        ///
        /// If it cannot be read.
        oom_kills() -> Result<u64, Error>;
    }
}
