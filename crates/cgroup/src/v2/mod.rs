//! Version 2: one tree, in which each process is in exactly one cgroup.
//!
//! All files are opened by names relative to a descriptor of the tree's root or of the cgroup. Processes are
//! spawned into their cgroup where possible (`CLONE_INTO_CGROUP`): moving a process briefly stops the whole
//! host.

mod freeze;
mod hierarchy;
mod kill;

pub(crate) use freeze::is_frozen;
pub use hierarchy::Hierarchy;
pub(crate) use kill::signal_each;

use crate::controller::{Controller, Controllers};
use crate::error::{Error, Hint, LimitWarning};
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

#[derive(Debug)]
pub struct Cgroup {
    directory: OwnedFd,
    path: PathBuf,
    passed: PassedOn,
}

impl Cgroup {
    /// Returns the directory, which processes can be spawned into.
    #[must_use]
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn failed(&self, act: &'static str) -> impl Fn(Errno) -> Error + '_ {
        move |errno| Error::Act { act, path: self.path.clone(), errno }
    }

    /// Moves a process into the cgroup; 0 is the caller. Moving briefly stops the whole host, so prefer to
    /// spawn the process into the cgroup.
    ///
    /// # Errors
    ///
    /// If the process cannot be moved.
    pub fn join(&self, pid: i32) -> Result<(), Error> {
        let moved = files::put(self.directory(), "cgroup.procs", &pid.to_string());
        moved.map_err(self.failed("move a process to"))
    }

    /// Applies the settings that must, or may, be in force before a process exists.
    pub fn apply_early(&self, resources: &Resources) -> Result<Vec<LimitWarning>, Error> {
        let (settings, mut warnings) = settings::v2::settings(resources)?;
        self.write(&settings, Some(Phase::Early), &mut warnings)?;
        Ok(warnings)
    }

    /// Applies the settings that could slow down, stop or kill a process during its setup.
    pub fn apply_late(&self, resources: &Resources) -> Result<(), Error> {
        let (settings, _) = settings::v2::settings(resources)?;
        self.write(&settings, Some(Phase::Late), &mut Vec::new())
    }

    /// Applies all settings except device rules to a cgroup that is in use. If only one of CPU quota and period
    /// is given, the other keeps its value.
    ///
    /// # Errors
    ///
    /// As [`apply_early`](Self::apply_early), and [`Error::InUse`].
    pub fn update(&self, resources: &Resources) -> Result<Vec<LimitWarning>, Error> {
        let resources = self.completed(resources)?;
        let (settings, mut warnings) = settings::v2::settings(&resources)?;
        self.write(&settings, None, &mut warnings)?;
        Ok(warnings)
    }

    fn write(
        &self,
        settings: &[Setting],
        phase: Option<Phase>,
        warnings: &mut Vec<LimitWarning>,
    ) -> Result<(), Error> {
        let settings = settings.iter().filter(|setting| phase.is_none_or(|phase| setting.phase == phase));
        write_all(self.directory.as_fd(), settings, &|file| self.hint(file), warnings)
    }

    /// Returns the controller and why it is missing, if that is why `file` does not exist.
    fn hint(&self, file: &str) -> Option<(String, Hint)> {
        let (name, _) = file.split_once('.')?;
        let hint = if name == "cgroup" { None } else { self.lacks(name) };
        hint.map(|hint| (name.to_owned(), hint))
    }

    /// Returns why the cgroup does not have the controller, or `None` if it does.
    pub(crate) fn lacks(&self, name: &str) -> Option<Hint> {
        // Reads the current list: the cgroup may have been opened and not created by us.
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

    /// Returns `resources` with the missing halves of pairs filled in from the cgroup's current values. Systemd
    /// needs both halves, before the files are written.
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
        // The kernel limits swap alone, so the sum of memory and swap needs the memory limit.
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
        // Tolerated: without the memory controller the usage is unknown.
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

    /// Puts the device rules in force in a cgroup that does not have any.
    ///
    /// # Errors
    ///
    /// [`Error::Devices`] if the caller has no privileges over the host's devices. Such a caller may ignore it.
    pub fn set_devices(&self, rules: &[devices::Rule]) -> Result<(), Error> {
        devices::attach(&self.directory, &devices::compile(rules)?)
    }

    /// Replaces the device rules of a cgroup that already has some.
    pub fn replace_devices(&self, rules: &[devices::Rule]) -> Result<(), Error> {
        devices::replace(&self.directory, &devices::compile(rules)?)
    }

    /// Checks that the cgroup is empty and not frozen.
    pub(crate) fn check_unused(&self) -> Result<(), Error> {
        let mut room = [0; 128];
        let events = files::short(self.directory.as_fd(), "cgroup.events", &mut room);
        let events = events.map_err(self.failed("read cgroup.events of"))?;
        if files::keyed(events, "populated") != Some(0) {
            let count = self.pids()?.len();
            return Err(Error::NotEmpty { path: self.path.clone(), count });
        }
        // `cgroup.freeze` decides, not the state: an empty cgroup below a frozen one is frozen too.
        if files::keyed(events, "frozen") != Some(0) || freeze::is_asked(self)? {
            return Err(Error::Frozen(self.path.clone()));
        }
        Ok(())
    }

    /// Rejects a cgroup below a threaded one if `asked` contains domain controllers. Otherwise makes it
    /// threaded too if necessary.
    fn check_type(&self, asked: Controllers) -> Result<(), Error> {
        // Saves a read: a cgroup with a domain controller is not threaded.
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
            // Without limits that need a domain, the cgroup can become threaded.
            "domain invalid" => {
                files::put(self.directory.as_fd(), "cgroup.type", "threaded").map_err(|_| threaded())
            }
            _ => Ok(()),
        }
    }

    /// Returns the processes in the cgroup and below it.
    ///
    /// # Errors
    ///
    /// If the processes cannot be read. A removed cgroup has none.
    pub fn pids(&self) -> Result<Vec<i32>, Error> {
        procs::all(&self.directory).map_err(self.failed("list the processes of"))
    }

    /// Freezes every process in the cgroup and below it, and returns when they have stopped.
    ///
    /// # Errors
    ///
    /// [`Error::Deadline`] if a process does not stop in time. Then all of them are thawed.
    pub fn freeze(&self, patience: Duration) -> Result<(), Error> {
        freeze::freeze(self, patience)
    }

    /// Thaws the processes.
    pub fn thaw(&self) -> Result<(), Error> {
        freeze::thaw(self)
    }

    /// Kills every process in the cgroup and below it, frozen ones too. They may still be exiting when this
    /// returns.
    pub fn kill(&self) -> Result<(), Error> {
        kill::kill(self)
    }

    /// Sends a signal to every process in the cgroup and below it.
    ///
    /// # Errors
    ///
    /// If a process cannot be signalled, unless it has exited.
    pub fn signal(&self, signal: rustix::process::Signal) -> Result<(), Error> {
        signal_each(&self.pids()?, signal).map_err(self.failed("signal the processes of"))
    }

    /// Returns when the cgroup and those below it are empty.
    ///
    /// # Errors
    ///
    /// [`Error::Deadline`] with the processes that are still there.
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

    /// Changes the owner of the directory and its delegatable files to `user`, the container's root user. It
    /// can then create cgroups of its own (cgroups(7), "delegation").
    pub fn delegate(&self, user: rustix::fs::Uid) -> Result<(), Error> {
        let list = std::fs::read_to_string("/sys/kernel/cgroup/delegate");
        let list =
            list.unwrap_or_else(|_| "cgroup.procs\ncgroup.subtree_control\ncgroup.threads\n".to_owned());
        let failed = self.failed("change the owner of");
        rustix::fs::fchown(&self.directory, Some(user), None).map_err(&failed)?;
        for name in list.lines().filter(|name| !name.contains('/')) {
            let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
            match rustix::fs::chownat(&self.directory, name, Some(user), None, flags) {
                // The file's controller is not enabled.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Ok(())
    }

    /// Returns the resource usage of the processes.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or does not have the usual form. Files of missing controllers are skipped.
    pub fn stats(&self) -> Result<Stats, Error> {
        crate::stats::version_2(&self.directory, &self.path)
    }

    /// Adds the statistics of this cgroup's controllers to those of version 1.
    pub(crate) fn add_stats(&self, stats: &mut Stats) -> Result<(), Error> {
        crate::stats::add_version_2(stats, &self.directory, &self.path)
    }

    /// Returns how many of the processes the OOM killer has killed.
    pub fn oom_kills(&self) -> Result<u64, Error> {
        match files::text(self.directory.as_fd(), "memory.events") {
            Ok(text) => Ok(files::keyed(&text, "oom_kill").unwrap_or(0)),
            Err(Errno::NOENT | Errno::NODEV) => Ok(0),
            Err(errno) => Err(self.failed("read memory.events of")(errno)),
        }
    }
}
