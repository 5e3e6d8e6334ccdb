//! Finds, limits, kills and removes the cgroup that a record names.

use crate::error::Error;
use crate::store::Entry;
use crate::store::record::{Membership, Record, RecordedCgroup, RecordedUnit};
use husk_bundle::{Field, Warning};
use husk_cgroup::systemd::{self, Owner, Systemd, Unit};
use husk_cgroup::{Cgroup, CgroupPaths, Layout, Resources};
use rustix::process::geteuid;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::time::Duration;

/// How long removal waits for killed processes to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the error that a container has no cgroup, and the reason.
pub(crate) fn no_cgroup(record: &Record) -> Error {
    Error::State(if record.cgroup.is_some() {
        "the container's cgroup no longer exists"
    } else if geteuid().is_root() {
        "the container has no cgroup: none were mounted when it was created, or --cgroup-manager was disabled"
    } else {
        "the container has no cgroup: this user may not create any ('husk doctor' says what to change)"
    })
}

impl RecordedUnit {
    fn owner(&self) -> Owner {
        if self.user { Owner::User } else { Owner::Host }
    }

    pub(super) fn unit(&self) -> Result<Unit, Error> {
        let unit = Unit::new(self.cgroups_path.as_deref(), &self.id, self.owner());
        Ok(unit.map_err(husk_cgroup::Error::from)?)
    }

    pub(super) fn systemd(&self) -> Result<Systemd, Error> {
        Ok(Systemd::connect(self.owner()).map_err(husk_cgroup::Error::from)?)
    }

    fn stop(&self) -> Result<(), Error> {
        Ok(self.systemd()?.stop(&self.unit()?).map_err(husk_cgroup::Error::from)?)
    }
}

impl Display for RecordedCgroup {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let directories = self.place.directories().iter();
        let directories = directories.map(|(controller, path)| format!("{controller}:{}", path.display()));
        f.write_str(&directories.collect::<Vec<_>>().join(" "))
    }
}

impl RecordedCgroup {
    /// Returns the directory whose freezer stops its processes.
    pub(crate) fn freezer(&self) -> Option<&Path> {
        self.place.path("freezer").or_else(|| self.place.path(""))
    }

    /// Opens the cgroup. `None` if it does not exist.
    pub(crate) fn find(&self) -> Result<Option<Cgroup>, Error> {
        Ok(Layout::detect()?.find(&self.place)?)
    }

    /// Removes the cgroup, after waiting for processes that are ending. If the kernel does not let husk remove an
    /// empty cgroup, that is a warning: otherwise a container could prevent its own deletion.
    pub(crate) fn remove(&self) -> Result<Option<Warning>, Error> {
        let layout = Layout::detect()?;
        if let Some(unit) = &self.unit {
            // A failed unit may have lost its cgroup and still be loaded.
            let is_there = layout.find(&self.place)?.is_some();
            match unit.stop() {
                // Tolerated: systemd is gone too. A user's systemd ends with the user's last session.
                Err(_) if !is_there => {}
                stopped => stopped?,
            }
        }
        match layout.remove(&self.place, PATIENCE) {
            Err(error) if self.stays_empty(&layout, &error)? => Ok(Some(Warning::new(
                Field::new("linux.cgroupsPath"),
                format!("{}; the container is deleted, and its cgroup stays", error),
            ))),
            removed => Ok(removed.map(|()| None)?),
        }
    }

    /// Whether the cgroup cannot be removed for a permanent reason other than a process in it.
    fn stays_empty(&self, layout: &Layout, error: &husk_cgroup::Error) -> Result<bool, Error> {
        if !error.is_permission() {
            return Ok(error.is_about_an_empty_cgroup());
        }
        // The kernel checks the caller's permission before it looks for processes.
        Ok(layout.find(&self.place)?.map_or(Ok(true), |cgroup| cgroup.pids().map(|pids| pids.is_empty()))?)
    }
}

/// Removes a container's cgroup and resctrl groups. An empty cgroup that cannot be removed is a warning.
pub(crate) fn leave(record: &Record) -> Result<Option<Warning>, Error> {
    let stays = record.cgroup.as_ref().map_or(Ok(None), RecordedCgroup::remove)?;
    record.resctrl.as_ref().map_or(Ok(()), Membership::leave)?;
    Ok(stays)
}

/// Removes everything a container has, its entry included. Opens no descriptor if nothing was recorded: a creator
/// that has run out of descriptors still removes its empty entry.
pub(crate) fn remove(entry: &Entry) -> Result<(), Error> {
    if entry.has_record()
        && let Some(record) = entry.known()?
    {
        leave(&record)?;
    }
    entry.discard()
}

/// Changes a container's limits.
pub(crate) fn update(record: &Record, resources: &Resources) -> Result<Vec<Warning>, Error> {
    if *resources == Resources::default() {
        return Ok(Vec::new());
    }
    let mut cgroup = of(record)?;
    if let (Some(kept), Cgroup::V2(_)) = (&record.cgroup, &cgroup) {
        // A limit may need a controller that was not enabled before.
        cgroup = Layout::detect()?.complete(&kept.place, resources)?;
    }
    let mut resources = resources.clone();
    if let Some(unit) = record.cgroup.as_ref().and_then(|kept| kept.unit.as_ref()) {
        let failed = husk_cgroup::Error::from;
        let mut systemd = unit.systemd()?;
        let version = systemd.version().map_err(failed)?;
        let properties = match &cgroup {
            Cgroup::V1(_) => systemd::resources_v1(&resources, version),
            Cgroup::V2(cgroup) => {
                resources = cgroup.completed(&resources)?;
                systemd::resources_v2(&resources, version)
            }
        };
        systemd.set(&unit.unit()?, &properties.map_err(failed)?).map_err(failed)?;
        resources = systemd::aligned(&resources);
    }
    Ok(cgroup.update(&resources)?.into_iter().map(warning).collect())
}

/// Opens a container's cgroup. `None` if it has none or it does not exist.
pub(crate) fn find(record: &Record) -> Result<Option<Cgroup>, Error> {
    record.cgroup.as_ref().map_or(Ok(None), RecordedCgroup::find)
}

/// Like [`find`], but a container without a cgroup is an error.
pub(crate) fn of(record: &Record) -> Result<Cgroup, Error> {
    find(record)?.ok_or_else(|| no_cgroup(record))
}

/// Returns the paths of a container's cgroup.
pub(crate) fn paths(record: &Record) -> Result<&CgroupPaths, Error> {
    record.cgroup.as_ref().map(|kept| &kept.place).ok_or_else(|| no_cgroup(record))
}

/// Paths below a container's cgroup, by controller. The empty name stands for all controllers, or version 2.
pub(crate) type SubCgroups = BTreeMap<String, String>;

/// Reads `PATH` or `CONTROLLER[,CONTROLLER]:PATH`.
///
/// # Errors
///
/// If it is neither, or a path leads out of the container's cgroup.
pub(crate) fn below(wanted: &[String]) -> Result<SubCgroups, Error> {
    let invalid = |reason| Error::Argument { option: "invalid --cgroup argument", reason };
    let mut below = SubCgroups::new();
    for text in wanted {
        let (controllers, path) = match text.split_once(':') {
            Some(parts) => parts,
            None if wanted.len() == 1 => ("", text.as_str()),
            None => return Err(invalid(format!("{text} (missing <controller>: prefix)"))),
        };
        let mut depth = 0_usize;
        for part in path.split('/').filter(|part| !matches!(*part, "" | ".")) {
            let deeper = if part == ".." { depth.checked_sub(1) } else { depth.checked_add(1) };
            depth = deeper.ok_or_else(|| invalid(format!("bad sub cgroup path: {path}")))?;
        }
        for controller in controllers.split(',') {
            if controller.is_empty() && text.contains(':') {
                return Err(invalid(format!("{text} (empty <controller> prefix)")));
            }
            // A cgroup file system has no symlinks, so a path can be normalised as text.
            if below.insert(controller.to_owned(), husk_cgroup::clean(path)).is_some() {
                return Err(invalid(format!("controller {controller} specified multiple times")));
            }
        }
    }
    Ok(below)
}

/// Whether the container's cgroup is frozen. `false` if that cannot be read.
pub(crate) fn is_frozen(record: &Record) -> bool {
    record.cgroup.as_ref().is_some_and(|kept| kept.place.is_frozen().unwrap_or(false))
}

/// Kills the processes that may outlive the container's first process, if it has no new pid namespace.
pub(crate) fn kill_rest(record: &Record) -> Result<(), Error> {
    match &record.cgroup {
        Some(kept) if record.shares_pids => kept.find()?.map_or(Ok(()), |cgroup| Ok(cgroup.kill()?)),
        _ => Ok(()),
    }
}

/// Kills every process in the container's cgroup, including those of an `exec` and those that others moved there.
pub(crate) fn kill_all(record: &Record) -> Result<(), Error> {
    match find(record)? {
        Some(cgroup) if !cgroup.pids()?.is_empty() => Ok(cgroup.kill()?),
        _ => Ok(()),
    }
}

/// Thaws a frozen version 1 cgroup, so that killed processes can end; in version 2 they end frozen.
pub(crate) fn let_die(record: &Record) -> Result<(), Error> {
    match &record.cgroup {
        Some(kept) if kept.place.is_frozen()? => match kept.find()? {
            Some(cgroup @ Cgroup::V1(_)) => Ok(cgroup.thaw()?),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

pub(super) fn warning(warning: husk_cgroup::LimitWarning) -> Warning {
    Warning::new(Field::new(&warning.field), warning.text.into_owned())
}
