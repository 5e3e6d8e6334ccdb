//! The cgroup that a child comes into: found or made, entered and limited.

use super::recorded::{Below, warning};
use crate::error::Error;
use crate::host::namespaces::is_unprivileged;
use crate::store::record::{Record, RecordedCgroup, RecordedUnit};
use husk_bundle::container::{IdMapping, NamespaceKind, Source};
use husk_bundle::{Container, Warning};
use husk_cgroup::devices::built_in;
use husk_cgroup::systemd::{self, Hierarchy};
use husk_cgroup::{Cgroup, CgroupPaths, Layout, Resources};
use husk_plan::CgroupEntry;
use rustix::process::geteuid;
use std::borrow::Cow;
use std::fs;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// `MOUNT_ATTR_RDONLY` of linux/mount.h.
const RDONLY: u64 = 0x01;

/// Who makes the cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CgroupManager {
    /// We, in the file system.
    #[default]
    Cgroupfs,
    /// Systemd, whom we ask for it.
    Systemd,
    /// Nobody: the container stays in the caller's.
    Disabled,
}

/// The cgroup that one more process of a container comes into.
pub(crate) fn company(record: &Record, below: &Below) -> Result<Option<ChildCgroup<'static>>, Error> {
    let Some(kept) = &record.cgroup else {
        let asked = !below.is_empty();
        return if asked { Err(Error::State("the container has no cgroup")) } else { Ok(None) };
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
        // Not the caller's, where none of the container's limits hold.
        None => of_process(record)?.map(Some).ok_or(Error::State("the container's cgroup does not exist")),
    }
}

/// The cgroup of version 2 that the container's first process is in by now, wherever it has moved.
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

/// The cgroup that a child comes into.
#[derive(Debug)]
pub(crate) enum ChildCgroup<'c> {
    /// It is being made for it.
    New(Box<NewCgroup<'c>>),
    /// It has been there.
    Known(Cgroup),
}

impl ChildCgroup<'_> {
    fn cgroup(&self) -> Option<&Cgroup> {
        match self {
            Self::New(new) => new.cgroup.as_ref(),
            Self::Known(cgroup) => Some(cgroup),
        }
    }

    /// How the child comes into it.
    pub(crate) fn entry(&self) -> CgroupEntry {
        match self.cgroup() {
            Some(Cgroup::V2(_)) => CgroupEntry::Born,
            _ => CgroupEntry::Moved,
        }
    }

    /// What was carried out otherwise than written.
    pub(crate) fn take_warnings(&mut self) -> Vec<Warning> {
        match self {
            Self::New(new) => std::mem::take(&mut new.warnings),
            Self::Known(_) => Vec::new(),
        }
    }

    /// Where the child can be born.
    pub(crate) fn directory(&self) -> Option<BorrowedFd<'_>> {
        self.cgroup().and_then(Cgroup::directory)
    }

    /// Its directory in a hierarchy of version 1, by the controllers of that or its name.
    pub(crate) fn directory_in(&self, hierarchy: &str) -> Option<&Path> {
        let Self::New(new) = self else { return None };
        let of = |controller| new.kept.place.path(controller);
        of(hierarchy).or_else(|| hierarchy.split(',').find_map(of))
    }

    /// Moves the child into it, which asks for that, and notes in the record what has become the container's.
    pub(crate) fn join(&mut self, pid: u32, record: &mut Record) -> Result<(), Error> {
        match self {
            Self::New(new) => new.join(pid, record),
            Self::Known(cgroup) => join(cgroup, pid),
        }
    }

    /// What to say of a child that was killed because its memory limit left no room for it, if it was.
    pub(crate) fn memory_ran_out(&self) -> Option<String> {
        let Self::New(new) = self else { return None };
        let cgroup = new.cgroup.as_ref()?;
        // Tolerated: a cgroup that tells nothing has killed nobody as far as can be known.
        cgroup.oom_kills().ok().filter(|kills| *kills > 0)?;
        let needed = cgroup.stats().map_or(0, |stats| stats.memory.usage.max);
        let text = "container init was OOM-killed (memory limit too low?)";
        Some(match new.container.resources.memory.limit {
            Some(limit) => format!("{text}: of {limit} bytes, {needed} were in use before its program began"),
            None => text.to_owned(),
        })
    }

    /// Sets what could slow down, stop or kill a child on its way.
    pub(crate) fn limit(&self) -> Result<(), Error> {
        match self {
            Self::New(new) => new.limit(),
            Self::Known(_) => Ok(()),
        }
    }
}

/// A cgroup that is being made.
#[derive(Debug)]
pub(crate) struct NewCgroup<'c> {
    container: &'c Container,
    /// Its resources, with the devices that every container has.
    resources: Resources,
    layout: Layout,
    kept: RecordedCgroup,
    cgroup: Option<Cgroup>,
    warnings: Vec<Warning>,
}

impl<'c> NewCgroup<'c> {
    /// Where it will be; none, if nobody makes one.
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
        let kept = match manager {
            CgroupManager::Systemd => {
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
        // Behind those of the configuration, whose first is a denial of all (config-linux.md, "Default
        // Devices").
        resources.devices.extend(built_in());
        Ok(Some(Self { container, resources, layout, kept, cgroup: None, warnings: Vec::new() }))
    }

    /// Where it will be.
    pub(crate) fn kept(&self) -> &RecordedCgroup {
        &self.kept
    }

    /// What is to be written down of it before it is made: nothing of a unit, which ends with its
    /// processes, and which until then may be somebody else's.
    pub(crate) fn announced(&self) -> Option<RecordedCgroup> {
        self.kept.unit.is_none().then(|| self.kept.clone())
    }

    /// Makes it, with all that has to be before there is a process. Systemd makes none without a process,
    /// so it is asked later, if nobody is there. If there is none to be had and none is needed, that is no error.
    pub(crate) fn make(&mut self, warn: &mut impl FnMut(&[Warning])) -> Result<(), Error> {
        if self.kept.unit.is_some() {
            // A process that systemd moves to where all stop would never come to ask for more.
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

    /// Whether it is there, or will be as soon as there is a process.
    pub(crate) fn is_made(&self) -> bool {
        self.cgroup.is_some() || self.kept.unit.is_some()
    }

    /// What has to be before the container's process does anything in it.
    fn prepare(&self, cgroup: &Cgroup) -> Result<Vec<Warning>, Error> {
        match cgroup.set_devices(&self.resources.devices) {
            // Who has no privileges over the host's devices can open none.
            Err(error) if error.is_permission() && is_unprivileged() => {}
            set => set?,
        }
        let warnings = cgroup.apply_early(&self.in_files())?;
        if let (Cgroup::V2(cgroup), Some(user)) = (cgroup, delegate(self.container)) {
            cgroup.delegate(user)?;
        }
        Ok(warnings.into_iter().map(warning).collect())
    }

    /// What is written to the cgroup's files.
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
            // What a user's systemd was given is all there is.
            Err(error) if error.is_permission() && is_unprivileged() => self.layout.find(place)?,
            completed => Some(completed?),
        };
        let cgroup = cgroup.ok_or(Error::State("the cgroup of the container's unit does not exist"))?;
        if hierarchy == Hierarchy::V1 || unit.is_slice() {
            let pid = i32::try_from(pid).unwrap_or(i32::MAX);
            cgroup.join(pid)?;
        }
        // What systemd has no words for is set in the files, and so are device rules: it leaves ours alone.
        self.warnings = self.prepare(&cgroup)?;
        self.cgroup = Some(cgroup);
        Ok(())
    }

    fn limit(&self) -> Result<(), Error> {
        self.cgroup.as_ref().map_or(Ok(()), |cgroup| Ok(cgroup.apply_late(&self.in_files())?))
    }
}

/// Moves a process into each that it cannot have been born in.
pub(crate) fn join(cgroup: &Cgroup, pid: u32) -> Result<(), Error> {
    let pid = i32::try_from(pid).unwrap_or(i32::MAX);
    match cgroup {
        Cgroup::V1(cgroup) if cgroup.unified().is_some() => Ok(cgroup.join_version_1(pid)?),
        cgroup => Ok(cgroup.join(pid)?),
    }
}

/// Whether the container can do without a cgroup.
fn asks_nothing(container: &Container) -> bool {
    container.cgroups_path.is_none() && !container.resources.has_limits()
}

/// Who is to own the cgroup: the program's user, where a container of a cgroup namespace of its own can
/// write to what it sees.
fn delegate(container: &Container) -> Option<rustix::fs::Uid> {
    let own = |kind| {
        container.namespaces.iter().any(|namespace| namespace.kind == kind && namespace.path.is_none())
    };
    let writable = || {
        container.mounts.iter().any(|mount| {
            matches!(mount.source, Source::Cgroup { .. })
                && mount.destination.as_os_str() == "/sys/fs/cgroup"
                && mount.attributes.set & RDONLY == 0
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
