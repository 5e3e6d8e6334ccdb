//! Cgroups for tests.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{process, thread};

/// A new cgroup, removed when dropped.
pub(crate) struct Cgroup(PathBuf);

impl Cgroup {
    /// Creates a cgroup in the cgroup2 tree. `None` if the host has no such tree, or this process may not change
    /// it.
    pub(crate) fn unified() -> Option<Self> {
        ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
            .into_iter()
            .filter(|root| Path::new(root).join("cgroup.controllers").exists())
            .find_map(Self::below)
    }

    /// Creates a cgroup whose processes together may use this much memory.
    pub(crate) fn memory(limit_bytes: usize) -> Option<Self> {
        let kinds = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        kinds.into_iter().find_map(|(root, file)| {
            let cgroup = Self::below(root).filter(|cgroup| cgroup.0.join(file).exists())?;
            fs::write(cgroup.0.join(file), limit_bytes.to_string()).ok()?;
            // Disables swap, if there is any.
            for (file, limit) in [("memory.memsw.limit_in_bytes", limit_bytes), ("memory.swap.max", 0)] {
                fs::write(cgroup.0.join(file), limit.to_string()).ok();
            }
            Some(cgroup)
        })
    }

    fn below(root: &str) -> Option<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("husk-test-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(root).join(name);
        fs::create_dir(&path).ok()?;
        Some(Self(path))
    }

    /// Opens its directory.
    pub(crate) fn open(&self) -> OwnedFd {
        File::open(&self.0).expect("the cgroup's directory").into()
    }

    /// Returns the name of its directory.
    pub(crate) fn name(&self) -> &str {
        self.0.file_name().and_then(|name| name.to_str()).expect("text")
    }

    /// Returns the path of the file that moves the process that writes to it.
    pub(crate) fn procs(&self) -> String {
        self.0.join("cgroup.procs").into_os_string().into_string().expect("text")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A killed process stays in the cgroup until it has exited.
        while fs::remove_dir(&self.0).is_err() && self.0.exists() {
            let procs = fs::read_to_string(self.procs()).unwrap_or_default();
            for pid in procs.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
                if let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) {
                    poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).ok();
                }
            }
            thread::yield_now();
        }
    }
}
