//! Version 1: a tree for each controller, or for a few together, and a process is in a cgroup of each.
//!
//! A process cannot be born in these; it is moved, by one write for each tree, and each makes every
//! fork on the host wait. So it is moved once, before anything else of it exists.

mod freezer;
mod group;
pub(crate) mod hierarchies;

pub(crate) use freezer::is_frozen;
use group::Group;
pub use hierarchies::Hierarchies;

use crate::error::{Error, Hint, Warning};
use crate::files::oom::OomWatch;
use crate::files::{self, procs};
use crate::resources::Resources;
use crate::settings::{Phase, Setting, write_all};
use crate::stats::Stats;
use crate::{devices, settings, v2};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::process::Signal;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long processes are waited for to stop before they are killed.
const STOP: Duration = Duration::from_millis(500);

/// How often processes are killed where they cannot be stopped first.
const ROUNDS: u32 = 16;

/// The cgroups of one container, one for each tree.
#[derive(Debug)]
pub struct Cgroup {
    groups: Vec<Group>,
    /// That of version 2's tree, where there is one beside: to be born in, to be killed by, and for limits of
    /// controllers that version 1 has not.
    unified: Option<v2::Cgroup>,
}

impl Cgroup {
    fn group(&self, controller: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.controllers.iter().any(|name| name == controller))
    }

    /// The cgroup of version 2's tree, for a process to be born in.
    #[must_use]
    pub fn unified(&self) -> Option<&v2::Cgroup> {
        self.unified.as_ref()
    }

    /// The one that tells which processes there are.
    fn counting(&self) -> Option<&Group> {
        self.group("devices").or_else(|| self.group("pids")).or_else(|| self.groups.first())
    }

    /// Where it is, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.counting().map_or(Path::new(""), |group| &group.path)
    }

    pub(crate) fn failed(&self, act: &'static str) -> impl Fn(Errno) -> Error + '_ {
        move |source| Error::Act { act, path: self.path().to_owned(), source }
    }

    /// The directories of version 1, for a process that moves itself: by writing 0 to `cgroup.procs`
    /// in each.
    pub fn directories(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.groups.iter().map(|group| group.directory.as_fd())
    }

    /// Moves a process into all of them, of version 2 too: 0 is the caller.
    ///
    /// # Errors
    ///
    /// If it cannot be moved into one.
    pub fn join(&self, pid: i32) -> Result<(), Error> {
        self.join_version_1(pid)?;
        self.unified.as_ref().map_or(Ok(()), |unified| unified.join(pid))
    }

    /// Moves a process into those of version 1, that was born in the one of version 2.
    ///
    /// # Errors
    ///
    /// If it cannot be moved into one.
    pub fn join_version_1(&self, pid: i32) -> Result<(), Error> {
        let pid = pid.to_string();
        for group in &self.groups {
            let written = files::put(group.directory.as_fd(), "cgroup.procs", &pid);
            let path = || group.path.clone();
            written.map_err(|source| Error::Act { act: "move a process to", path: path(), source })?;
        }
        Ok(())
    }

    /// Sets what has to be, or may be, before there is a process.
    ///
    /// # Errors
    ///
    /// The first field that cannot be set.
    pub fn apply_early(&self, resources: &Resources) -> Result<Vec<Warning>, Error> {
        self.apply(resources, Some(Phase::Early))
    }

    /// Sets what could slow down, stop or kill a process that is being set up.
    ///
    /// # Errors
    ///
    /// As [`apply_early`](Self::apply_early).
    pub fn apply_late(&self, resources: &Resources) -> Result<(), Error> {
        self.apply(resources, Some(Phase::Late)).map(drop)
    }

    /// Sets all of it on cgroups that are in use, device rules excepted.
    ///
    /// # Errors
    ///
    /// As [`apply_early`](Self::apply_early).
    pub fn update(&self, resources: &Resources) -> Result<Vec<Warning>, Error> {
        self.apply(resources, None)
    }

    fn apply(&self, resources: &Resources, phase: Option<Phase>) -> Result<Vec<Warning>, Error> {
        let (settings, mut warnings) = settings::v1::settings(resources)?;
        let of_phase = |setting: &Setting| phase.is_none_or(|phase| setting.phase == phase);
        for (controller, setting) in &settings {
            if let Some(hint) = self.lacks(controller) {
                let (field, controller) = (setting.field.clone(), (*controller).to_owned());
                return Err(Error::NoController { field, controller, hint });
            }
        }
        // Each tree by itself: what depends on the order is of one controller.
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

    /// Why there is no such controller, neither here nor in version 2's tree, if there is none.
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
    /// A rule that version 1 cannot express, or the kernel does not take. In a user namespace it takes
    /// none, and a caller there may pass over it.
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
            written.map_err(|source| Error::Set { field, file: name.to_owned(), value: line, source })?;
        }
        Ok(())
    }

    /// The processes in them and below.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    pub fn pids(&self) -> Result<Vec<i32>, Error> {
        let Some(group) = self.counting() else { return Ok(Vec::new()) };
        procs::all(&group.directory).map_err(self.failed("list the processes of"))
    }

    /// Stops every process in them and below, and returns when they have.
    ///
    /// # Errors
    ///
    /// [`Error::Deadline`] if one does not stop in time; then all go on.
    pub fn freeze(&self, patience: Duration) -> Result<(), Error> {
        match (self.group("freezer"), &self.unified) {
            (Some(group), _) => freezer::freeze(group, patience),
            (None, Some(unified)) => unified.freeze(patience),
            (None, None) => Err(Error::NoFreezer(self.path().to_owned())),
        }
    }

    /// Lets them go on, those below too.
    ///
    /// # Errors
    ///
    /// If that cannot be written.
    pub fn thaw(&self) -> Result<(), Error> {
        match (self.group("freezer"), &self.unified) {
            (Some(group), _) => freezer::thaw(group),
            (None, Some(unified)) => unified.thaw(),
            (None, None) => Err(Error::NoFreezer(self.path().to_owned())),
        }
    }

    /// Kills every process in them and below, frozen ones too. They may not have ended yet.
    ///
    /// # Errors
    ///
    /// If one cannot be killed.
    pub fn kill(&self) -> Result<(), Error> {
        if let Some(unified) = &self.unified {
            unified.kill()?;
        }
        // Stopped, they cannot make others. One that does not stop in time is killed all the same.
        let freezer = self.group("freezer");
        let stopped = freezer.is_some_and(|group| freezer::freeze(group, STOP).is_ok());
        for _ in 0..if stopped { 1 } else { ROUNDS } {
            let pids = self.pids()?;
            if pids.is_empty() {
                break;
            }
            v2::signal_each(&pids, Signal::KILL).map_err(self.failed("kill the processes of"))?;
        }
        // What is stopped here does not even die (freezing has the upper hand in version 1).
        freezer.map_or(Ok(()), freezer::thaw)
    }

    /// Sends a signal to every process in them and below.
    ///
    /// # Errors
    ///
    /// If one cannot be sent to, other than because it has ended.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        v2::signal_each(&self.pids()?, signal).map_err(self.failed("signal the processes of"))
    }

    /// Returns when no process is in them or below.
    ///
    /// # Errors
    ///
    /// [`Error::Deadline`] with those that still are.
    pub fn wait_empty(&self, patience: Duration) -> Result<(), Error> {
        if let Some(unified) = &self.unified {
            unified.wait_empty(patience)?;
        }
        // Nobody is told in version 1: it is looked again, at growing intervals.
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

    /// What their processes use.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or does not read as it always does.
    pub fn stats(&self) -> Result<Stats, Error> {
        let mut stats = crate::stats::version_1(self.groups.iter().map(Group::files))?;
        if let Some(unified) = &self.unified {
            unified.add_stats(&mut stats)?;
        }
        Ok(stats)
    }

    /// Something that becomes ready when memory runs out.
    ///
    /// # Errors
    ///
    /// If there is no memory controller here.
    pub fn watch_oom(&self) -> Result<OomWatch, Error> {
        let group = self.group("memory");
        let group = group.ok_or_else(|| self.failed("watch the memory of")(Errno::NOENT))?;
        OomWatch::version_1(group.directory.as_fd(), &group.path)
    }

    /// How often the kernel has killed a process here for want of memory (since Linux 4.13).
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn oom_kills(&self) -> Result<u64, Error> {
        let Some(group) = self.group("memory") else { return Ok(0) };
        match files::text(group.directory.as_fd(), "memory.oom_control") {
            Ok(text) => Ok(files::keyed(&text, "oom_kill").unwrap_or(0)),
            Err(Errno::NOENT | Errno::NODEV) => Ok(0),
            Err(errno) => Err(self.failed("read memory.oom_control of")(errno)),
        }
    }
}
