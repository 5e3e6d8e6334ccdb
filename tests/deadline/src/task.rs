//! Reads threads and processes from procfs.

use rustix::process::{Pid, Signal, getpid, kill_process};
use rustix::thread::gettid;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A thread, identified by its directory in procfs. A process is represented by its first thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    process: i32,
    thread: i32,
}

impl Task {
    /// Returns the first thread of this process.
    pub(crate) fn main() -> Self {
        let pid = getpid().as_raw_pid();
        Self { process: pid, thread: pid }
    }

    pub(crate) fn of_this_process(thread: i32) -> Self {
        Self { thread, ..Self::main() }
    }

    pub(crate) fn id(&self) -> i32 {
        self.thread
    }

    pub(crate) fn is_caller(&self) -> bool {
        self.thread == gettid().as_raw_pid()
    }

    pub(crate) fn exists(&self) -> bool {
        self.directory().exists()
    }

    fn directory(&self) -> PathBuf {
        Path::new("/proc").join(self.process.to_string()).join("task").join(self.thread.to_string())
    }

    /// Reads a file in its procfs directory. Returns an empty string if it has ended or the file is unreadable.
    pub(crate) fn file(&self, name: &str) -> String {
        let bytes = fs::read(self.directory().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns its name, of which the kernel keeps fifteen bytes.
    pub(crate) fn name(&self) -> String {
        self.file("comm").trim_end().to_owned()
    }

    /// Returns how long it has existed.
    pub(crate) fn age(&self) -> Option<Duration> {
        /// `sysconf(_SC_CLK_TCK)`, which is 100 on every architecture (USER_HZ).
        const TICKS: f64 = 100.0;
        let stat = self.file("stat");
        // The name in the second field may contain anything, but no later field contains a parenthesis.
        let (_, rest) = stat.rsplit_once(')')?;
        let began: f64 = rest.split_whitespace().nth(19)?.parse().ok()?;
        let uptime = fs::read_to_string("/proc/uptime").ok()?;
        let uptime: f64 = uptime.split_whitespace().next()?.parse().ok()?;
        Some(Duration::from_secs_f64((uptime - began / TICKS).max(0.0)))
    }

    /// Returns all threads of its process.
    pub(crate) fn threads(&self) -> Vec<Self> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.process)).into_iter().flatten().flatten();
        let ids = threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        ids.map(|thread| Self { thread, process: self.process }).collect()
    }

    /// Returns the processes that this thread started, the ones that those started, and so on. Orphans are not
    /// included: they have another parent.
    pub(crate) fn started(&self) -> Vec<Self> {
        let mut found = self.children();
        let mut next = 0;
        while let Some(process) = found.get(next) {
            let more: Vec<_> = process.threads().iter().flat_map(Self::children).collect();
            found.extend(more);
            next += 1;
        }
        found
    }

    fn children(&self) -> Vec<Self> {
        let ids = self.file("children");
        let ids = ids.split_whitespace().filter_map(|id| id.parse().ok());
        ids.map(|id| Self { process: id, thread: id }).collect()
    }

    pub(crate) fn kill(&self) {
        let Some(pid) = Pid::from_raw(self.process) else { return };
        // Tolerated: it may have ended already.
        kill_process(pid, Signal::KILL).unwrap_or(());
    }

    /// Kills everything that any thread of its process started, then the process itself.
    pub(crate) fn kill_all(&self) {
        let started: Vec<_> = self.threads().iter().flat_map(Self::started).collect();
        started.iter().for_each(Self::kill);
        self.kill();
    }
}
