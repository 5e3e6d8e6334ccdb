//! Version 2: one tree, in which a process is in one cgroup.
//!
//! Everything is found below a descriptor of the tree's root, or of the cgroup itself, by relative
//! names. A process is never moved into a cgroup that it can be born in (`CLONE_INTO_CGROUP`): moving
//! one stops the whole host for a moment.

mod freeze;
mod hierarchy;
mod kill;

pub(crate) use freeze::is_frozen;
pub use hierarchy::Hierarchy;
pub(crate) use kill::signal_each;

use crate::controller::{Controller, Controllers};
use crate::error::{Error, Hint, Warning};
use crate::files::oom::OomWatch;
use crate::files::{self, events, procs};
use crate::resources::Resources;
use crate::settings::{Phase, Setting, write_all};
use crate::stats::Stats;
use crate::{devices, settings};
use hierarchy::PassedOn;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A cgroup.
#[derive(Debug)]
pub struct Cgroup {
    directory: OwnedFd,
    path: PathBuf,
    passed: PassedOn,
}

impl Cgroup {
    /// The directory, for a process to be born in.
    #[must_use]
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn failed(&self, act: &'static str) -> impl Fn(Errno) -> Error + '_ {
        move |source| Error::Act { act, path: self.path.clone(), source }
    }

    /// Moves a process into it: 0 is the caller. One that is born in it needs no moving, which stops
    /// the whole host for a moment.
    ///
    /// # Errors
    ///
    /// If it cannot be moved.
    pub fn join(&self, pid: i32) -> Result<(), Error> {
        let moved = files::put(self.directory(), "cgroup.procs", &pid.to_string());
        moved.map_err(self.failed("move a process to"))
    }

    /// Sets what has to be, or may be, before there is a process.
    ///
    /// # Errors
    ///
    /// The first field that cannot be set.
    pub fn apply_early(&self, resources: &Resources) -> Result<Vec<Warning>, Error> {
        let (settings, mut warnings) = settings::v2::settings(resources)?;
        self.write(&settings, Some(Phase::Early), &mut warnings)?;
        Ok(warnings)
    }

    /// Sets what could slow down, stop or kill a process that is being set up.
    ///
    /// # Errors
    ///
    /// As [`apply_early`](Self::apply_early).
    pub fn apply_late(&self, resources: &Resources) -> Result<(), Error> {
        let (settings, _) = settings::v2::settings(resources)?;
        self.write(&settings, Some(Phase::Late), &mut Vec::new())
    }

    /// Sets all of it on a cgroup that is in use, device rules excepted. Half of a pair that is not
    /// said, CPU quota and period, stays as it is.
    ///
    /// # Errors
    ///
    /// As [`apply_early`](Self::apply_early), and [`Error::InUse`].
    pub fn update(&self, resources: &Resources) -> Result<Vec<Warning>, Error> {
        let resources = self.completed(resources)?;
        let (settings, mut warnings) = settings::v2::settings(&resources)?;
        self.write(&settings, None, &mut warnings)?;
        Ok(warnings)
    }

    fn write(
        &self,
        settings: &[Setting],
        phase: Option<Phase>,
        warnings: &mut Vec<Warning>,
    ) -> Result<(), Error> {
        let settings = settings.iter().filter(|setting| phase.is_none_or(|phase| setting.phase == phase));
        write_all(self.directory.as_fd(), settings, &|file| self.hint(file), warnings)
    }

    /// Why `file` is not there, if it is for want of its controller.
    fn hint(&self, file: &str) -> Option<(String, Hint)> {
        let (name, _) = file.split_once('.')?;
        let hint = if name == "cgroup" { None } else { self.lacks(name) };
        hint.map(|hint| (name.to_owned(), hint))
    }

    /// Why it has no such controller, if it has none.
    pub(crate) fn lacks(&self, name: &str) -> Option<Hint> {
        // What is here now: the cgroup may have been opened and not made by us.
        let text = files::text(self.directory.as_fd(), "cgroup.controllers").unwrap_or_default();
        if text.split_whitespace().any(|here| here == name) {
            return None;
        }
        let has = |all: &Controllers| Controller::named(name).is_some_and(|this| all.contains(this));
        Some(match self.passed.in_tree {
            Some(available) if !has(&available) => Hint::NotInHierarchy { available },
            _ => Hint::NotEnabled { available: Controllers::parse(&text), errno: self.passed.errno },
        })
    }

    /// What is asked of a cgroup that is in use, with the halves of pairs that it leaves as they are: for
    /// whoever is told of it before the files are.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`].
    pub fn completed(&self, resources: &Resources) -> Result<Resources, Error> {
        self.check_usage(resources)?;
        let mut resources = resources.clone();
        let cpu = &mut resources.cpu;
        let quota_missing = cpu.quota.is_none_or(|quota| quota == 0);
        let period_missing = cpu.period.is_none_or(|period| period == 0);
        if quota_missing != period_missing {
            let mut room = [0; 64];
            if let Ok(text) = files::short(self.directory.as_fd(), "cpu.max", &mut room) {
                let (quota, period) = text.split_once(' ').unwrap_or((text, ""));
                if quota_missing {
                    cpu.quota = Some(quota.parse().unwrap_or(-1));
                } else {
                    cpu.period = period.parse().ok();
                }
            }
        }
        let memory = &mut resources.memory;
        // Swap alone is what is written, and of memory and swap together it takes memory to know it.
        if memory.limit.is_none_or(|limit| limit == 0) && memory.swap.is_some_and(|swap| swap > 0) {
            let limit = files::number(self.directory.as_fd(), "memory.max").ok();
            memory.limit = limit.map(|limit| i64::try_from(limit).unwrap_or(-1));
        }
        Ok(resources)
    }

    fn check_usage(&self, resources: &Resources) -> Result<(), Error> {
        let memory = &resources.memory;
        if !memory.check_before_update {
            return Ok(());
        }
        // Tolerated: without accounting there is no usage to compare with.
        let Ok(usage) = files::number(self.directory.as_fd(), "memory.current") else { return Ok(()) };
        let limits = [
            ("linux.resources.memory.swap", "memory+swap", memory.swap),
            ("linux.resources.memory.limit", "memory", memory.limit),
        ];
        for (field, what, limit) in limits {
            let limit = limit.and_then(|limit| u64::try_from(limit).ok()).filter(|limit| *limit != 0);
            if let Some(limit) = limit.filter(|limit| *limit <= usage) {
                return Err(Error::InUse { field: field.into(), what, limit, usage });
            }
        }
        Ok(())
    }

    /// Puts the device rules in force in a cgroup that has none.
    ///
    /// # Errors
    ///
    /// [`Error::Devices`]: without privileges over the host's devices nobody can, and a caller without
    /// them may pass over it.
    pub fn set_devices(&self, rules: &[devices::Rule]) -> Result<(), Error> {
        devices::attach(&self.directory, &devices::compile(rules)?)
    }

    /// The same for a cgroup that has some, which these replace.
    ///
    /// # Errors
    ///
    /// As [`set_devices`](Self::set_devices).
    pub fn replace_devices(&self, rules: &[devices::Rule]) -> Result<(), Error> {
        devices::replace(&self.directory, &devices::compile(rules)?)
    }

    /// Refuses a cgroup that somebody uses, or that nothing would run in.
    pub(crate) fn check_unused(&self) -> Result<(), Error> {
        let mut room = [0; 128];
        let events = files::short(self.directory.as_fd(), "cgroup.events", &mut room);
        let events = events.map_err(self.failed("read cgroup.events of"))?;
        if files::keyed(events, "populated") != Some(0) {
            let count = self.pids()?.len();
            return Err(Error::NotEmpty { path: self.path.clone(), count });
        }
        // The wish and not the state: an empty cgroup below a frozen one is frozen too.
        if files::keyed(events, "frozen") != Some(0) || freeze::is_asked(self)? {
            return Err(Error::Frozen(self.path.clone()));
        }
        Ok(())
    }

    /// Refuses a cgroup in which processes, or what is asked for, cannot be: one below threads.
    fn check_type(&self, asked: Controllers) -> Result<(), Error> {
        // A cgroup that has a domain controller is no threaded one, which saves a look.
        if !self.passed.controllers.intersection(Controllers::DOMAIN).is_empty() {
            return Ok(());
        }
        let mut room = [0; 64];
        let kind = files::short(self.directory.as_fd(), "cgroup.type", &mut room);
        let kind = kind.map_err(self.failed("read cgroup.type of"))?;
        let threaded = || Error::Threaded { path: self.path.clone(), kind: kind.to_owned() };
        match kind {
            "domain" => Ok(()),
            _ if !asked.intersection(Controllers::DOMAIN).is_empty() => Err(threaded()),
            // Without limits that need a domain there is a way: to be of the threads.
            "domain invalid" => {
                files::put(self.directory.as_fd(), "cgroup.type", "threaded").map_err(|_| threaded())
            }
            _ => Ok(()),
        }
    }

    /// The processes in it and below.
    ///
    /// # Errors
    ///
    /// If they cannot be read. A cgroup that is gone has none.
    pub fn pids(&self) -> Result<Vec<i32>, Error> {
        procs::all(&self.directory).map_err(self.failed("list the processes of"))
    }

    /// Stops every process in it and below, and returns when they have.
    ///
    /// # Errors
    ///
    /// [`Error::Deadline`] if one does not stop in time; then all go on.
    pub fn freeze(&self, patience: Duration) -> Result<(), Error> {
        freeze::freeze(self, patience)
    }

    /// Lets them go on.
    ///
    /// # Errors
    ///
    /// If that cannot be written.
    pub fn thaw(&self) -> Result<(), Error> {
        freeze::thaw(self)
    }

    /// Kills every process in it and below, frozen ones too. They may not have ended yet.
    ///
    /// # Errors
    ///
    /// If one cannot be killed.
    pub fn kill(&self) -> Result<(), Error> {
        kill::kill(self)
    }

    /// Sends a signal to every process in it and below.
    ///
    /// # Errors
    ///
    /// If one cannot be sent to, other than because it has ended.
    pub fn signal(&self, signal: rustix::process::Signal) -> Result<(), Error> {
        signal_each(&self.pids()?, signal).map_err(self.failed("signal the processes of"))
    }

    /// Returns when no process is in it or below.
    ///
    /// # Errors
    ///
    /// [`Error::Deadline`] with those that still are.
    pub fn wait_empty(&self, patience: Duration) -> Result<(), Error> {
        let waited = events::wait(self.directory(), "populated", 0, patience);
        match waited.map_err(self.failed("wait for the processes of"))? {
            true => Ok(()),
            false => Err(Error::Deadline {
                act: "wait for the processes of",
                path: self.path.clone(),
                seconds: patience.as_secs(),
                pids: self.pids()?,
            }),
        }
    }

    /// Gives the directory and what may be written in it to the user who is root in the container, so
    /// that it can make cgroups of its own (cgroups(7), "delegation").
    ///
    /// # Errors
    ///
    /// If a file cannot be given away.
    pub fn delegate(&self, user: rustix::fs::Uid) -> Result<(), Error> {
        let list = std::fs::read_to_string("/sys/kernel/cgroup/delegate");
        let list =
            list.unwrap_or_else(|_| "cgroup.procs\ncgroup.subtree_control\ncgroup.threads\n".to_owned());
        let failed = self.failed("give away");
        rustix::fs::fchown(&self.directory, Some(user), None).map_err(&failed)?;
        for name in list.lines().filter(|name| !name.contains('/')) {
            let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
            match rustix::fs::chownat(&self.directory, name, Some(user), None, flags) {
                // Files of controllers that are not here.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Ok(())
    }

    /// What its processes use.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or does not read as it always does. One that is not there, for want of
    /// its controller, is left out.
    pub fn stats(&self) -> Result<Stats, Error> {
        crate::stats::version_2(&self.directory, &self.path)
    }

    /// Adds what the controllers that are here count, where others are in version 1.
    pub(crate) fn add_stats(&self, stats: &mut Stats) -> Result<(), Error> {
        crate::stats::add_version_2(stats, &self.directory, &self.path)
    }

    /// Something that becomes ready when memory runs out.
    ///
    /// # Errors
    ///
    /// If there is no memory controller here.
    pub fn watch_oom(&self) -> Result<OomWatch, Error> {
        OomWatch::version_2(self.directory(), &self.path)
    }

    /// How often the kernel has killed a process here for want of memory.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn oom_kills(&self) -> Result<u64, Error> {
        match files::text(self.directory.as_fd(), "memory.events") {
            Ok(text) => Ok(files::keyed(&text, "oom_kill").unwrap_or(0)),
            Err(Errno::NOENT | Errno::NODEV) => Ok(0),
            Err(errno) => Err(self.failed("read memory.events of")(errno)),
        }
    }
}
