//! Version 1: each controller, or group of them, has its own tree; a process is in one cgroup of each.
//!
//! A process cannot be spawned into these cgroups: it is moved by one write for each tree. Each write blocks
//! every fork on the host, so a process is moved only once, before the rest of its setup.

mod freezer;
mod group;
pub(crate) mod hierarchies;

pub(crate) use freezer::is_frozen;
use group::Group;
pub use hierarchies::Hierarchies;

use crate::error::{Error, Hint, LimitWarning};
use crate::files::{self, procs};
use crate::resources::Resources;
use crate::settings::{Phase, Setting, write_all};
use crate::stats::Stats;
use crate::{devices, settings, v2};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::process::Signal;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long processes may take to freeze before they are killed anyway.
const STOP: Duration = Duration::from_millis(500);

/// How many times the processes are killed if they cannot be frozen first.
const ROUNDS: u32 = 16;

/// The cgroups of one container, one in each tree.
#[derive(Debug)]
pub struct Cgroup {
    groups: Vec<Group>,
    /// The cgroup in version 2's tree, if one is mounted too. Processes are spawned into it and killed through
    /// it. Controllers that version 1 lacks are limited in it.
    unified: Option<v2::Cgroup>,
}

impl Cgroup {
    fn group(&self, controller: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.controllers.iter().any(|name| name == controller))
    }

    /// Returns the cgroup in version 2's tree, which processes can be spawned into.
    #[must_use]
    pub fn unified(&self) -> Option<&v2::Cgroup> {
        self.unified.as_ref()
    }

    /// Returns the cgroup that processes are listed from.
    fn counting(&self) -> Option<&Group> {
        self.group("devices").or_else(|| self.group("pids")).or_else(|| self.groups.first())
    }

    /// Returns the cgroup's path, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.counting().map_or(Path::new(""), |group| &group.path)
    }

    pub(crate) fn failed(&self, act: &'static str) -> impl Fn(Errno) -> Error + '_ {
        move |errno| Error::Act { act, path: self.path().to_owned(), errno }
    }

    /// Returns the paths of the directories of version 1.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.groups.iter().map(|group| &*group.path)
    }

    /// Moves a process into all of the cgroups, the one of version 2 too; 0 is the caller.
    pub fn join(&self, pid: i32) -> Result<(), Error> {
        self.join_version_1(pid)?;
        self.unified.as_ref().map_or(Ok(()), |unified| unified.join(pid))
    }

    /// Moves a process that was spawned into the cgroup of version 2 into those of version 1.
    pub fn join_version_1(&self, pid: i32) -> Result<(), Error> {
        let pid = pid.to_string();
        for group in &self.groups {
            let written = files::put(group.directory.as_fd(), "cgroup.procs", &pid);
            let path = || group.path.clone();
            written.map_err(|errno| Error::Act { act: "move a process to", path: path(), errno })?;
        }
        Ok(())
    }

    /// Applies the settings that must, or may, be in force before a process exists.
    pub fn apply_early(&self, resources: &Resources) -> Result<Vec<LimitWarning>, Error> {
        self.apply(resources, Some(Phase::Early))
    }

    /// Applies the settings that could slow down, stop or kill a process during its setup.
    pub fn apply_late(&self, resources: &Resources) -> Result<(), Error> {
        self.apply(resources, Some(Phase::Late)).map(drop)
    }

    /// Applies all settings except device rules to cgroups that are in use.
    pub fn update(&self, resources: &Resources) -> Result<Vec<LimitWarning>, Error> {
        self.apply(resources, None)
    }

    fn apply(&self, resources: &Resources, phase: Option<Phase>) -> Result<Vec<LimitWarning>, Error> {
        let (settings, mut warnings) = settings::v1::settings(resources)?;
        let of_phase = |setting: &Setting| phase.is_none_or(|phase| setting.phase == phase);
        for (controller, setting) in &settings {
            if let Some(hint) = self.lacks(controller) {
                let (field, controller) = (setting.field.clone(), (*controller).to_owned());
                return Err(Error::NoController { field, controller, hint });
            }
        }
        // Each tree by itself: the order matters only among the settings of one controller.
        for group in &self.groups {
            let its = settings
                .iter()
                .filter(|(controller, _)| group.controllers.iter().any(|name| name == controller));
            let its = its.map(|(_, setting)| setting).filter(|setting| of_phase(setting));
            write_all(group.directory.as_fd(), its, &|_| None, &mut warnings)?;
        }
        if let Some(unified) = &self.unified {
            let rest = resources.only(|controller| self.group(controller).is_none());
            match phase {
                Some(Phase::Early) => warnings.extend(unified.apply_early(&rest)?),
                Some(Phase::Late) => unified.apply_late(&rest)?,
                None => warnings.extend(unified.update(&rest)?),
            }
        }
        Ok(warnings)
    }

    /// Returns why the controller is missing, or `None` if version 1 or version 2's tree has it.
    fn lacks(&self, controller: &str) -> Option<Hint> {
        if self.group(controller).is_some() {
            return None;
        }
        let Some(unified) = &self.unified else { return Some(Hint::NotMounted) };
        match unified.lacks(if controller == "blkio" { "io" } else { controller })? {
            Hint::NotInHierarchy { .. } => Some(Hint::NotMounted),
            hint => Some(hint),
        }
    }

    /// Puts the device rules in force.
    ///
    /// # Errors
    ///
    /// If version 1 cannot express a rule, or the kernel rejects it. In a user namespace the kernel rejects
    /// all, and a caller there may ignore it.
    pub fn set_devices(&self, rules: &[devices::Rule]) -> Result<(), Error> {
        let lines = devices::lines(rules)?;
        let Some(group) = self.group("devices") else {
            let field = "linux.resources.devices".into();
            return Err(Error::NoController {
                field,
                controller: "devices".to_owned(),
                hint: Hint::NotMounted,
            });
        };
        for (name, line) in lines {
            let written = files::put(group.directory.as_fd(), name, &line);
            let field = "linux.resources.devices".into();
            written.map_err(|errno| Error::Set { field, file: name.to_owned(), value: line, errno })?;
        }
        Ok(())
    }

    /// Returns the processes in the cgroups and below them.
    pub fn pids(&self) -> Result<Vec<i32>, Error> {
        let Some(group) = self.counting() else { return Ok(Vec::new()) };
        procs::all(&group.directory).map_err(self.failed("list the processes of"))
    }

    /// Freezes every process in the cgroups and below them, and returns when they have stopped.
    ///
    /// # Errors
    ///
    /// [`Error::Deadline`] if a process does not stop in time. Then all of them are thawed.
    pub fn freeze(&self, patience: Duration) -> Result<(), Error> {
        match (self.group("freezer"), &self.unified) {
            (Some(group), _) => freezer::freeze(group, patience),
            (None, Some(unified)) => unified.freeze(patience),
            (None, None) => Err(Error::NoFreezer(self.path().to_owned())),
        }
    }

    /// Thaws the processes, those below too.
    pub fn thaw(&self) -> Result<(), Error> {
        match (self.group("freezer"), &self.unified) {
            (Some(group), _) => freezer::thaw(group),
            (None, Some(unified)) => unified.thaw(),
            (None, None) => Err(Error::NoFreezer(self.path().to_owned())),
        }
    }

    /// Kills every process in the cgroups and below them, frozen ones too. They may still be exiting when this
    /// returns.
    pub fn kill(&self) -> Result<(), Error> {
        if let Some(unified) = &self.unified {
            unified.kill()?;
        }
        // Frozen processes cannot fork. A process that does not freeze in time is killed anyway.
        let freezer = self.group("freezer");
        let stopped = freezer.is_some_and(|group| freezer::freeze(group, STOP).is_ok());
        for _ in 0..if stopped { 1 } else { ROUNDS } {
            let pids = self.pids()?;
            if pids.is_empty() {
                break;
            }
            v2::signal_each(&pids, Signal::KILL).map_err(self.failed("kill the processes of"))?;
        }
        // In version 1 a frozen process does not even exit after SIGKILL, so thaw.
        freezer.map_or(Ok(()), freezer::thaw)
    }

    /// Sends a signal to every process in the cgroups and below them.
    ///
    /// # Errors
    ///
    /// If a process cannot be signalled, unless it has exited.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        v2::signal_each(&self.pids()?, signal).map_err(self.failed("signal the processes of"))
    }

    /// Returns when the cgroups and those below them are empty.
    ///
    /// # Errors
    ///
    /// [`Error::Deadline`] with the processes that are still there.
    pub fn wait_empty(&self, patience: Duration) -> Result<(), Error> {
        if let Some(unified) = &self.unified {
            unified.wait_empty(patience)?;
        }
        // Version 1 sends no events, so this polls at growing intervals.
        let end = Instant::now() + patience;
        let mut pause = Duration::from_millis(1);
        loop {
            let pids = self.pids()?;
            if pids.is_empty() {
                return Ok(());
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let (act, path) = ("wait for the processes of", self.path().to_owned());
                return Err(Error::Deadline { act, path, seconds: patience.as_secs(), pids });
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    /// Returns the resource usage of the processes.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or does not have the usual form.
    pub fn stats(&self) -> Result<Stats, Error> {
        let mut stats = crate::stats::version_1(self.groups.iter().map(Group::files))?;
        if let Some(unified) = &self.unified {
            unified.add_stats(&mut stats)?;
        }
        Ok(stats)
    }

    /// Returns how many of the processes the OOM killer has killed (since Linux 4.13; otherwise 0).
    pub fn oom_kills(&self) -> Result<u64, Error> {
        let Some(group) = self.group("memory") else { return Ok(0) };
        match files::text(group.directory.as_fd(), "memory.oom_control") {
            Ok(text) => Ok(files::keyed(&text, "oom_kill").unwrap_or(0)),
            Err(Errno::NOENT | Errno::NODEV) => Ok(0),
            Err(errno) => Err(self.failed("read memory.oom_control of")(errno)),
        }
    }
}
