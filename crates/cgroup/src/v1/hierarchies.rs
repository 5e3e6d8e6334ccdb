//! Finds the mounted trees, and creates cgroups in all of them.

use super::Cgroup;
use super::freezer::is_frozen;
use super::group::Group;
use crate::error::Error;
use crate::files::{self, procs, remove};
use crate::paths::CgroupPaths;
use crate::resources::Resources;
use crate::{paths, v2};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Mode, mkdirat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The trees of version 1, and version 2's if it is mounted too.
#[derive(Debug)]
pub struct Hierarchies {
    mounts: Vec<HierarchyMount>,
    /// The text of `/proc/self/cgroup`.
    own: String,
    unified: Option<v2::Hierarchy>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HierarchyMount {
    /// The tree's controllers or its name: `["cpu", "cpuacct"]`, `["name=systemd"]`.
    pub(crate) controllers: Vec<String>,
    point: PathBuf,
    /// The directory of the tree that is mounted.
    root: String,
}

impl Hierarchies {
    /// Detects the trees of version 1. `unified` is version 2's tree, if it is mounted too.
    pub fn detect(unified: Option<v2::Hierarchy>) -> Result<Self, Error> {
        let read = |path: &str| {
            std::fs::read_to_string(path).map_err(|error| Error::Act {
                act: "read",
                path: PathBuf::from(path),
                errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
            })
        };
        let own = read("/proc/self/cgroup")?;
        let mounts = mounts(&read("/proc/self/mountinfo")?, &own);
        Ok(Self { mounts, own, unified })
    }

    /// Returns whether no tree of version 1 is mounted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.mounts.is_empty()
    }

    /// Returns the path, in each tree, of the cgroup that `wanted` names.
    ///
    /// # Errors
    ///
    /// If the path is the root of a tree.
    pub fn place(&self, wanted: Option<&str>, id: &str) -> Result<CgroupPaths, Error> {
        let mut places = BTreeMap::new();
        for mount in &self.mounts {
            for controller in &mount.controllers {
                let own = paths::own(&self.own, controller).unwrap_or("/");
                // Inside a container, only a part of the tree may be mounted.
                let own = own.strip_prefix(mount.root.trim_end_matches('/')).unwrap_or("/");
                let path = paths::resolve(wanted, id, own);
                if path.is_empty() {
                    return Err(Error::Root(wanted.unwrap_or_default().to_owned()));
                }
                places.insert(controller.clone(), mount.point.join(path));
            }
        }
        if let Some(unified) = &self.unified {
            places.insert(String::new(), unified.mount_point().join(paths::resolve(wanted, id, "/")));
        }
        Ok(CgroupPaths::new(places))
    }

    /// Creates the cgroups at `place` with the controllers that `resources` needs. Cgroups that already exist
    /// must be empty and not frozen.
    ///
    /// # Errors
    ///
    /// If one cannot be created or is in use.
    pub fn create(&self, place: &CgroupPaths, resources: &Resources) -> Result<Cgroup, Error> {
        let mut made = Vec::new();
        let created = self.make(place, resources, &mut made);
        if created.is_err() {
            for path in made.iter().rev() {
                remove::undo(CWD, path);
            }
        }
        created
    }

    fn make(
        &self,
        place: &CgroupPaths,
        resources: &Resources,
        made: &mut Vec<PathBuf>,
    ) -> Result<Cgroup, Error> {
        let mut cgroup = Cgroup { groups: Vec::with_capacity(self.mounts.len()), unified: None };
        for (mount, path) in self.places(place) {
            let group = mount.make(path, made)?;
            if !made.iter().any(|new| new == path) {
                check_unused(&group)?;
            }
            cgroup.groups.push(group);
        }
        if let Some((tree, path)) = self.unified_place(place) {
            cgroup.unified = Some(tree.create(path, &self.rest(resources))?);
        }
        Ok(cgroup)
    }

    /// Checks that the cgroups are empty and not frozen.
    ///
    /// # Errors
    ///
    /// [`Error::NotEmpty`] and [`Error::Frozen`].
    pub fn check_unused(&self, place: &CgroupPaths) -> Result<(), Error> {
        let Some(cgroup) = self.find(place)? else { return Ok(()) };
        cgroup.groups.iter().try_for_each(check_unused)?;
        cgroup.unified.as_ref().map_or(Ok(()), v2::Cgroup::check_unused)
    }

    /// Opens the cgroups at `place` that systemd created, with the controllers that `resources` needs. Systemd
    /// creates those of the controllers that it was asked to limit or count with. This creates the others,
    /// except in systemd's own tree.
    pub fn complete(&self, place: &CgroupPaths, resources: &Resources) -> Result<Cgroup, Error> {
        let mut cgroup = Cgroup { groups: Vec::with_capacity(self.mounts.len()), unified: None };
        for (mount, path) in self.places(place) {
            if mount.is_for("name=systemd") {
                cgroup.groups.extend(mount.find(path)?);
            } else {
                cgroup.groups.push(mount.make(path, &mut Vec::new())?);
            }
        }
        if let Some((tree, path)) = self.unified_place(place) {
            cgroup.unified = Some(tree.complete(path, &self.rest(resources))?);
        }
        Ok(cgroup)
    }

    /// Returns the path of `place` in each tree of version 1.
    fn places<'p>(&'p self, place: &'p CgroupPaths) -> impl Iterator<Item = (&'p HierarchyMount, &'p Path)> {
        let of =
            |mount: &HierarchyMount| mount.controllers.first().and_then(|controller| place.path(controller));
        self.mounts.iter().filter_map(move |mount| Some((mount, of(mount)?)))
    }

    /// Returns the path of `place` in version 2's tree.
    fn unified_place<'p>(&'p self, place: &'p CgroupPaths) -> Option<(&'p v2::Hierarchy, &'p str)> {
        let (tree, path) = (self.unified.as_ref()?, place.path("")?);
        Some((tree, paths::below(tree.mount_point(), path).unwrap_or_default()))
    }

    /// Returns the limits that version 1 has no controller for.
    fn rest(&self, resources: &Resources) -> Resources {
        resources.only(|controller| !self.mounts.iter().any(|mount| mount.is_for(controller)))
    }

    /// Opens the cgroups at `place`, if any exist.
    pub fn find(&self, place: &CgroupPaths) -> Result<Option<Cgroup>, Error> {
        let mut cgroup = Cgroup { groups: Vec::new(), unified: None };
        for (mount, path) in self.places(place) {
            cgroup.groups.extend(mount.find(path)?);
        }
        if let Some((tree, path)) = self.unified_place(place) {
            cgroup.unified = tree.find(path)?;
        }
        let found = !cgroup.groups.is_empty() || cgroup.unified.is_some();
        Ok(found.then_some(cgroup))
    }

    /// Removes the cgroups at `place` and those below them. Removes as many as possible and returns the first
    /// error.
    ///
    /// # Errors
    ///
    /// [`Error::Deadline`] with the processes that are still in one.
    pub fn remove(&self, place: &CgroupPaths, patience: Duration) -> Result<(), Error> {
        let mut result = Ok(());
        // A process that stays in one cgroup stays in all, so all share one deadline.
        let end = Instant::now() + patience;
        for path in place.distinct() {
            let name = path.to_string_lossy();
            let left = end.saturating_duration_since(Instant::now());
            let removed = remove::tree(CWD, &name, path, left);
            result = result.and(removed);
        }
        result
    }
}

impl HierarchyMount {
    fn group(&self, directory: OwnedFd, path: &Path) -> Group {
        Group { controllers: self.controllers.clone(), directory, path: path.to_owned() }
    }

    fn is_for(&self, controller: &str) -> bool {
        self.controllers.iter().any(|name| name == controller)
    }

    fn find(&self, path: &Path) -> Result<Option<Group>, Error> {
        match files::open_directory(CWD, path) {
            Ok(directory) => Ok(Some(self.group(directory, path))),
            Err(Errno::NOENT | Errno::NODEV) => Ok(None),
            Err(errno) => Err(Error::Act { act: "open the cgroup", path: path.to_owned(), errno }),
        }
    }

    /// Creates the cgroup at `path` and its parents. Adds the paths that did not exist to `made`.
    fn make(&self, path: &Path, made: &mut Vec<PathBuf>) -> Result<Group, Error> {
        let failed = |act, path: &Path| {
            let path = path.to_owned();
            move |errno| Error::Act { act, path: path.clone(), errno }
        };
        let below = paths::below(&self.point, path);
        let below = below.ok_or_else(|| Error::NotMounted(path.to_owned()))?;
        let mut directory = files::open_directory(CWD, &self.point).map_err(failed("open", &self.point))?;
        let mut current = self.point.clone();
        for name in below.split('/') {
            current.push(name);
            match mkdirat(&directory, name, Mode::from_raw_mode(0o755)) {
                Ok(()) => made.push(current.clone()),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(failed("make the cgroup", &current)(errno)),
            }
            let inner = files::open_directory(directory.as_fd(), name);
            let inner = inner.map_err(failed("open the cgroup", &current))?;
            if self.is_for("cpuset") {
                inherit(&directory, &inner).map_err(failed("set the cpuset of", &current))?;
            }
            directory = inner;
        }
        Ok(self.group(directory, path))
    }
}

/// Checks that a cgroup is empty and not frozen.
fn check_unused(group: &Group) -> Result<(), Error> {
    let pids = procs::all(&group.directory);
    let failed = |errno| Error::Act { act: "list the processes of", path: group.path.clone(), errno };
    let count = pids.map_err(failed)?.len();
    if count != 0 {
        return Err(Error::NotEmpty { path: group.path.clone(), count });
    }
    if group.controllers.iter().any(|name| name == "freezer") && is_frozen(&group.directory, &group.path)? {
        return Err(Error::Frozen(group.path.clone()));
    }
    Ok(())
}

/// Copies the CPUs and memory nodes of the parent to a cgroup whose lists are empty. A new cgroup starts with
/// empty lists, and then accepts no process.
fn inherit(above: &OwnedFd, directory: &OwnedFd) -> Result<(), Errno> {
    for (name, plain) in [("cpuset.cpus", "cpus"), ("cpuset.mems", "mems")] {
        let name = match files::text(directory.as_fd(), name) {
            Ok(text) if !text.trim().is_empty() => continue,
            Ok(_) => name,
            // A hierarchy mounted with `noprefix`.
            Err(Errno::NOENT) if files::text(directory.as_fd(), plain)?.trim().is_empty() => plain,
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(errno),
        };
        let inherited = files::text(above.as_fd(), name)?;
        files::put(directory.as_fd(), name, inherited.trim())?;
    }
    Ok(())
}

/// Returns the trees in the text of mountinfo, each once. Only mount options that are controllers of the
/// process whose cgroups `own` lists count as controllers.
pub(crate) fn mounts(mountinfo: &str, own: &str) -> Vec<HierarchyMount> {
    let controllers: Vec<&str> = own
        .lines()
        .filter_map(|line| line.split(':').nth(1))
        .flat_map(|names| names.split(','))
        .filter(|name| !name.is_empty())
        .collect();
    let mut mounts: Vec<HierarchyMount> = Vec::new();
    for line in mountinfo.lines() {
        let Some(mount) = mount(line, &controllers) else { continue };
        let known = mounts.iter().any(|other| mount.controllers.iter().any(|name| other.is_for(name)));
        if !known && !mount.controllers.is_empty() {
            mounts.push(mount);
        }
    }
    mounts
}

/// Parses one line of mountinfo (proc_pid_mountinfo(5)), if it is a tree of version 1.
fn mount(line: &str, controllers: &[&str]) -> Option<HierarchyMount> {
    let (place, what) = line.split_once(" - ")?;
    let mut what = what.split(' ');
    if what.next() != Some("cgroup") {
        return None;
    }
    let options = what.nth(1)?;
    let mut place = place.split(' ').skip(3);
    let (root, point) = (place.next()?, place.next()?);
    let is_ours = |option: &&str| controllers.contains(option);
    Some(HierarchyMount {
        controllers: options.split(',').filter(is_ours).map(ToOwned::to_owned).collect(),
        point: PathBuf::from(unescape(point)),
        root: unescape(root),
    })
}

/// Decodes the octal escapes of blanks and backslashes in mountinfo.
fn unescape(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")].into_iter().fold(
        text.to_owned(),
        |text, (from, to)| if text.contains('\\') { text.replace(from, to) } else { text },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &str = "\
30 25 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw
32 30 0:28 / /sys/fs/cgroup/systemd rw,nosuid shared:10 - cgroup cgroup rw,xattr,name=systemd
33 30 0:29 /outer /sys/fs/cgroup/cpu,cpuacct rw shared:11 - cgroup cgroup rw,cpu,cpuacct
34 30 0:30 / /sys/fs/cgroup/my\\040pids rw - cgroup cgroup rw,pids
35 30 0:30 / /elsewhere rw - cgroup cgroup rw,pids
";
    const OWN: &str = "4:pids:/\n3:cpu,cpuacct:/outer/inner\n1:name=systemd:/user.slice\n0::/user.slice\n";

    #[test]
    fn each_hierarchy_is_found_once() {
        let found = mounts(MOUNTINFO, OWN);
        let found: Vec<_> =
            found.iter().map(|mount| (mount.controllers.join(","), mount.point.to_str().unwrap())).collect();
        let expected = [
            ("name=systemd", "/sys/fs/cgroup/systemd"),
            ("cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct"),
            ("pids", "/sys/fs/cgroup/my pids"),
        ];
        assert_eq!(found, expected.map(|(controllers, point)| (controllers.to_owned(), point)));
    }

    #[test]
    fn paths_start_at_the_root_or_at_the_own_cgroup() {
        let hierarchies = Hierarchies { mounts: mounts(MOUNTINFO, OWN), own: OWN.to_owned(), unified: None };
        let absolute = hierarchies.place(Some("/a/../b"), "id").unwrap();
        assert_eq!(absolute.path("cpu"), Some(Path::new("/sys/fs/cgroup/cpu,cpuacct/b")));
        let relative = hierarchies.place(None, "id").unwrap();
        assert_eq!(relative.path("cpu"), Some(Path::new("/sys/fs/cgroup/cpu,cpuacct/inner/id")));
        assert_eq!(relative.path("name=systemd"), Some(Path::new("/sys/fs/cgroup/systemd/user.slice/id")));
        assert_eq!(relative.distinct().count(), 3);
        assert!(hierarchies.place(Some("/.."), "id").is_err());
    }
}
