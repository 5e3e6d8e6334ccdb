//! Finds or makes the cgroup of a container's process, moves the process into it and sets its limits.

use super::recorded::{SubCgroups, no_cgroup, warning};
use crate::error::Error;
use crate::host::namespaces::is_unprivileged;
use crate::store::record::{Record, RecordedCgroup, RecordedUnit};
use husk_bundle::container::{IdMapping, NamespaceKind, Source};
use husk_bundle::{Container, Warning};
use husk_cgroup::devices::built_in;
use husk_cgroup::systemd::{self, Hierarchy};
use husk_cgroup::{Cgroup, CgroupPaths, Layout, Resources};
use husk_plan::CgroupEntry;
use husk_script::sys::mount::MountAttributes;
use rustix::process::geteuid;
use std::borrow::Cow;
use std::fs;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

/// How the container's cgroup is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CgroupManager {
    /// husk makes directories in the cgroup file system.
    #[default]
    Cgroupfs,
    /// systemd makes it, at husk's request.
    Systemd,
    /// It is not made: the container stays in the caller's cgroup.
    Disabled,
    /// Systemd makes it if `cgroupsPath` is `SLICE:PREFIX:NAME` and systemd runs, and husk otherwise. For callers that
    /// are not told which manager the engine uses.
    ByPath,
}

impl CgroupManager {
    /// The managers by name.
    pub const NAMES: [(&str, Self); 3] =
        [("cgroupfs", Self::Cgroupfs), ("systemd", Self::Systemd), ("disabled", Self::Disabled)];
}

/// Returns the cgroup for another process of a container (`exec`), or its sub-cgroup that `below` names.
pub(crate) fn company(record: &Record, below: &SubCgroups) -> Result<Option<ChildCgroup<'static>>, Error> {
    let Some(kept) = &record.cgroup else {
        let asked = !below.is_empty();
        return if asked { Err(no_cgroup(record)) } else { Ok(None) };
    };
    let mut directories = kept.place.directories().clone();
    for (controller, path) in below {
        let its = directories.iter_mut().filter(|(name, _)| controller.is_empty() || *name == controller);
        let mut known = false;
        for (_, directory) in its {
            known = true;
            if !path.is_empty() {
                directory.push(path);
            }
            let act = "adding pid of a new process to cgroups: look at";
            fs::metadata(&*directory).map_err(|reason| Error::file(act, &*directory, reason))?;
        }
        if !known {
            let reason = format!("unknown controller {controller}");
            return Err(Error::Argument { option: "--cgroup", reason });
        }
    }
    match Layout::detect()?.find(&CgroupPaths::new(directories))? {
        Some(cgroup) => Ok(Some(ChildCgroup::Known(cgroup))),
        // The caller's cgroup is not an alternative, because the container's limits do not apply there.
        None => of_process(record)?.map(Some).ok_or(Error::State("the container's cgroup does not exist")),
    }
}

/// Returns the version 2 cgroup that the container's first process is in now, even if the process was moved.
pub(crate) fn of_process(record: &Record) -> Result<Option<ChildCgroup<'static>>, Error> {
    let Some(process) = record.process else { return Ok(None) };
    let path = format!("/proc/{}/cgroup", process.pid);
    let text = fs::read_to_string(&path).map_err(|reason| Error::file("read", path, reason))?;
    let layout = Layout::detect()?;
    let (Layout::V2(tree), Some(own)) = (&layout, text.lines().find_map(|line| line.strip_prefix("0::")))
    else {
        return Ok(None);
    };
    let directory = tree.mount_point().join(own.trim_start_matches('/'));
    Ok(layout.find(&CgroupPaths::new([(String::new(), directory)].into()))?.map(ChildCgroup::Known))
}

/// The cgroup that a child process enters.
#[derive(Debug)]
pub(crate) enum ChildCgroup<'c> {
    /// A cgroup that is made for this child.
    New(Box<NewCgroup<'c>>),
    /// A cgroup that already exists.
    Known(Cgroup),
}

impl ChildCgroup<'_> {
    fn cgroup(&self) -> Option<&Cgroup> {
        match self {
            Self::New(new) => new.cgroup.as_ref(),
            Self::Known(cgroup) => Some(cgroup),
        }
    }

    /// Returns how the child enters it. A child that is cloned into a user namespace may not move itself.
    pub(crate) fn entry(&self, in_user_namespace: bool) -> CgroupEntry {
        match (self, self.cgroup()) {
            (_, Some(Cgroup::V2(_))) => CgroupEntry::Born,
            (_, Some(Cgroup::V1(_))) if in_user_namespace => CgroupEntry::Moved,
            (Self::New(new), Some(Cgroup::V1(_))) => CgroupEntry::Enters(new.directories()),
            (Self::Known(_), Some(Cgroup::V1(cgroup))) => {
                CgroupEntry::Enters(cgroup.paths().map(Path::to_owned).collect())
            }
            (_, None) => CgroupEntry::Moved,
        }
    }

    /// Takes the warnings about settings that were not applied as written.
    pub(crate) fn take_warnings(&mut self) -> Vec<Warning> {
        match self {
            Self::New(new) => std::mem::take(&mut new.warnings),
            Self::Known(_) => Vec::new(),
        }
    }

    /// Returns the directory that the child can be cloned into (`CLONE_INTO_CGROUP`).
    pub(crate) fn directory(&self) -> Option<BorrowedFd<'_>> {
        self.cgroup().and_then(Cgroup::directory)
    }

    /// Returns its directory in a version 1 hierarchy, which is given by its controllers or its name.
    pub(crate) fn directory_in(&self, hierarchy: &str) -> Option<&Path> {
        let Self::New(new) = self else { return None };
        let of = |controller| new.kept.place.path(controller);
        of(hierarchy).or_else(|| hierarchy.split(',').find_map(of))
    }

    /// Moves the child into it, when the child asks for that. Records a cgroup that systemd has made.
    pub(crate) fn join(&mut self, pid: u32, record: &mut Record) -> Result<(), Error> {
        match self {
            Self::New(new) => new.join(pid, record),
            Self::Known(cgroup) => join(cgroup, pid),
        }
    }

    /// Returns an error text if the kernel killed the child because the memory limit is too low for it.
    pub(crate) fn memory_ran_out(&self) -> Option<String> {
        let Self::New(new) = self else { return None };
        let cgroup = new.cgroup.as_ref()?;
        // Tolerated: if the cgroup's counter cannot be read, no OOM kill is known.
        cgroup.oom_kills().ok().filter(|kills| *kills > 0)?;
        let needed = cgroup.stats().map_or(0, |stats| stats.memory.usage.max);
        let text = "container init was OOM-killed (memory limit too low?)";
        Some(match new.container.resources.memory.limit {
            Some(limit) => format!("{text}: of {limit} bytes, {needed} were in use before its program began"),
            None => text.to_owned(),
        })
    }

    /// Sets the limits that could slow down, stop or kill a child during its setup.
    pub(crate) fn limit(&self) -> Result<(), Error> {
        match self {
            Self::New(new) => new.limit(),
            Self::Known(_) => Ok(()),
        }
    }
}

/// A cgroup that is made for a new container.
#[derive(Debug)]
pub(crate) struct NewCgroup<'c> {
    container: &'c Container,
    /// The container's resources, with the rules for default devices.
    resources: Resources,
    layout: Layout,
    kept: RecordedCgroup,
    cgroup: Option<Cgroup>,
    warnings: Vec<Warning>,
}

impl<'c> NewCgroup<'c> {
    /// Determines its path. Returns `None` if no cgroup is to be made.
    pub(crate) fn find(
        container: &'c Container,
        id: &str,
        manager: CgroupManager,
    ) -> Result<Option<Self>, Error> {
        if manager == CgroupManager::Disabled {
            return Ok(None);
        }
        let layout = match Layout::detect() {
            Err(husk_cgroup::Error::NotMounted(_)) if asks_nothing(container) => return Ok(None),
            layout => layout?,
        };
        let path = container.cgroups_path.as_deref();
        let is_unit = || path.is_some_and(names_a_unit) && Path::new("/run/systemd/system").is_dir();
        let kept = match manager {
            CgroupManager::ByPath if !is_unit() => {
                RecordedCgroup { place: layout.place(path, id)?, unit: None }
            }
            CgroupManager::Systemd | CgroupManager::ByPath => {
                let user = is_unprivileged();
                let unit = RecordedUnit { cgroups_path: path.map(str::to_owned), id: id.to_owned(), user };
                let manager = if user {
                    unit.systemd()?.control_group().map_err(husk_cgroup::Error::from)?
                } else {
                    String::new()
                };
                let path = unit.unit()?.cgroup(&manager).map_err(husk_cgroup::Error::from)?;
                RecordedCgroup { place: layout.place(Some(&path), id)?, unit: Some(unit) }
            }
            _ => RecordedCgroup { place: layout.place(path, id)?, unit: None },
        };
        let mut resources = container.resources.clone();
        // After the rules of the configuration, the first of which denies everything (config-linux.md, "Default
        // Devices").
        resources.devices.extend(built_in());
        Ok(Some(Self { container, resources, layout, kept, cgroup: None, warnings: Vec::new() }))
    }

    /// Returns its paths and its systemd unit, as the record keeps them.
    pub(crate) fn kept(&self) -> &RecordedCgroup {
        &self.kept
    }

    /// Returns its directories in the hierarchies of version 1.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        let unified = self.kept.place.path("");
        let all = self.kept.place.distinct().filter(|path| Some(*path) != unified);
        all.map(Path::to_owned).collect()
    }

    /// Returns what to record before the cgroup is made. A systemd unit is not recorded yet, because it ends with its
    /// processes. Until husk starts it, a unit of that name may belong to another container.
    pub(crate) fn announced(&self) -> Option<RecordedCgroup> {
        self.kept.unit.is_none().then(|| self.kept.clone())
    }

    /// Makes the cgroup and applies every setting that must precede the first process. systemd makes no unit without
    /// a process. So for systemd this only checks that the cgroup is unused, and `join` asks for the unit later. A
    /// caller without permission gets no cgroup and no error if the container does not need one.
    pub(crate) fn make(&mut self, warn: &mut impl FnMut(&[Warning])) -> Result<(), Error> {
        if self.kept.unit.is_some() {
            // This also refuses a frozen cgroup: a child that systemd moved there would never send its next request.
            return Ok(self.layout.check_unused(&self.kept.place)?);
        }
        let made = self.layout.create(&self.kept.place, &self.resources);
        let cgroup = match made {
            Err(error) if error.is_permission() && asks_nothing(self.container) && is_unprivileged() => {
                return Ok(());
            }
            made => made?,
        };
        let prepared = self.prepare(&cgroup);
        self.cgroup = Some(cgroup);
        warn(&prepared?);
        Ok(())
    }

    /// Whether the cgroup exists, or will as soon as there is a process.
    pub(crate) fn is_made(&self) -> bool {
        self.cgroup.is_some() || self.kept.unit.is_some()
    }

    /// Applies the settings that must be in force before the container's process does anything.
    fn prepare(&self, cgroup: &Cgroup) -> Result<Vec<Warning>, Error> {
        match cgroup.set_devices(&self.resources.devices) {
            // A caller without privileges over the host's devices cannot open any of them.
            Err(error) if error.is_permission() && is_unprivileged() => {}
            set => set?,
        }
        let warnings = cgroup.apply_early(&self.in_files())?;
        if let (Cgroup::V2(cgroup), Some(user)) = (cgroup, delegate(self.container)) {
            cgroup.delegate(user)?;
        }
        Ok(warnings.into_iter().map(warning).collect())
    }

    /// Returns the resources as they are written to the cgroup's files.
    fn in_files(&self) -> Cow<'_, Resources> {
        match self.kept.unit {
            Some(_) => Cow::Owned(systemd::aligned(&self.resources)),
            None => Cow::Borrowed(&self.resources),
        }
    }

    fn join(&mut self, pid: u32, record: &mut Record) -> Result<(), Error> {
        let Some(unit) = &self.kept.unit else {
            return self.cgroup.as_ref().map_or(Ok(()), |cgroup| join(cgroup, pid));
        };
        let failed = husk_cgroup::Error::from;
        let mut systemd = unit.systemd()?;
        let version = systemd.version().map_err(failed)?;
        let hierarchy = match self.layout {
            Layout::V1(_) => Hierarchy::V1,
            Layout::V2(_) => Hierarchy::V2,
        };
        let annotations = systemd::from_annotations(&self.container.annotations).map_err(failed)?;
        let (unit, resources) = (unit.unit()?, &self.resources);
        let pid_of = (!unit.is_slice()).then_some(pid);
        let properties =
            systemd::start_properties(&unit, pid_of, hierarchy, version, resources, &annotations);
        systemd.start(&unit, &properties.map_err(failed)?).map_err(failed)?;
        record.cgroup = Some(self.kept.clone());
        let place = &self.kept.place;
        let cgroup = match self.layout.complete(place, resources) {
            // A user's systemd has only the controllers that were delegated to it.
            Err(error) if error.is_permission() && is_unprivileged() => self.layout.find(place)?,
            completed => Some(completed?),
        };
        let cgroup = cgroup.ok_or(Error::State("the cgroup of the container's unit does not exist"))?;
        if hierarchy == Hierarchy::V1 || unit.is_slice() {
            let pid = i32::try_from(pid).unwrap_or(i32::MAX);
            cgroup.join(pid)?;
        }
        // Settings without a systemd property are written to the files. So are device rules: systemd does not touch
        // those.
        self.warnings = self.prepare(&cgroup)?;
        self.cgroup = Some(cgroup);
        Ok(())
    }

    fn limit(&self) -> Result<(), Error> {
        self.cgroup.as_ref().map_or(Ok(()), |cgroup| Ok(cgroup.apply_late(&self.in_files())?))
    }
}

/// Moves a process into the cgroup. A unified hierarchy beside version 1 is left out: the process was cloned into
/// that.
pub(crate) fn join(cgroup: &Cgroup, pid: u32) -> Result<(), Error> {
    let pid = i32::try_from(pid).unwrap_or(i32::MAX);
    match cgroup {
        Cgroup::V1(cgroup) if cgroup.unified().is_some() => Ok(cgroup.join_version_1(pid)?),
        cgroup => Ok(cgroup.join(pid)?),
    }
}

/// Whether the container needs no cgroup.
fn asks_nothing(container: &Container) -> bool {
    container.cgroups_path.is_none() && !container.resources.has_limits()
}

/// Returns the user who is to own the cgroup: the program's, if the container has its own cgroup namespace and a
/// writable cgroup mount. `None` if that is the caller.
fn delegate(container: &Container) -> Option<rustix::fs::Uid> {
    let own = |kind| {
        container.namespaces.iter().any(|namespace| namespace.kind == kind && namespace.path.is_none())
    };
    let writable = || {
        container.mounts.iter().any(|mount| {
            matches!(mount.source, Source::Cgroup { .. })
                && mount.destination.as_os_str() == "/sys/fs/cgroup"
                && !mount.attributes.set.contains(MountAttributes::RDONLY)
        })
    };
    if !own(NamespaceKind::Cgroup) || !writable() {
        return None;
    }
    let inside = container.process.as_ref()?.uid;
    let outside = if container.uid_mappings.is_empty() {
        inside
    } else {
        IdMapping::host_id_in(&container.uid_mappings, inside)?
    };
    (outside != geteuid().as_raw()).then(|| rustix::fs::Uid::from_raw(outside))
}

/// Whether a `cgroupsPath` is one that engines give for systemd. A path in the cgroup file system may contain colons, but
/// not a slice before the first one.
fn names_a_unit(path: &str) -> bool {
    let mut parts = path.split(':');
    let slice = parts.next().is_some_and(|slice| slice.is_empty() || slice.ends_with(".slice"));
    slice
        && parts.next().is_some()
        && parts.next().is_some_and(|name| !name.is_empty())
        && parts.next().is_none()
        && !path.contains('/')
}

#[cfg(test)]
mod tests {
    #[test]
    fn path_for_systemd_is_recognized() {
        for path in ["system.slice:docker:c", "kubepods-pod1.slice:cri-containerd:c", ":husk:c"] {
            assert!(super::names_a_unit(path), "{path}");
        }
        for path in ["/kubepods/pod1/c", "a:b:c", "system.slice:docker", "x.slice:p:", "/x.slice:p:c", "c"] {
            assert!(!super::names_a_unit(path), "{path}");
        }
    }
}
