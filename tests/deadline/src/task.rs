//! Threads and processes, as procfs shows them.

use rustix::process::{Pid, Signal, getpid, kill_process};
use rustix::thread::gettid;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A thread, by its directory in procfs. A process is its first thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    process: i32,
    thread: i32,
}

impl Task {
    /// The first thread of this process.
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

    /// A file about it. Nothing if it has ended or the file is not ours to read.
    pub(crate) fn file(&self, name: &str) -> String {
        let bytes = fs::read(self.directory().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Its name, of which the kernel keeps fifteen bytes.
    pub(crate) fn name(&self) -> String {
        self.file("comm").trim_end().to_owned()
    }

    /// For how long it has been there.
    pub(crate) fn age(&self) -> Option<Duration> {
        /// `sysconf(_SC_CLK_TCK)`, which is 100 on every architecture (USER_HZ).
        const TICKS: f64 = 100.0;
        let stat = self.file("stat");
        // The name in the second field may hold anything but this is its last parenthesis.
        let (_, rest) = stat.rsplit_once(')')?;
        let began: f64 = rest.split_whitespace().nth(19)?.parse().ok()?;
        let uptime = fs::read_to_string("/proc/uptime").ok()?;
        let uptime: f64 = uptime.split_whitespace().next()?.parse().ok()?;
        Some(Duration::from_secs_f64((uptime - began / TICKS).max(0.0)))
    }

    /// All threads of its process.
    pub(crate) fn threads(&self) -> Vec<Self> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.process)).into_iter().flatten().flatten();
        let ids = threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        ids.map(|thread| Self { thread, process: self.process }).collect()
    }

    /// The processes that this thread started, those that they started, and so on. Not those whose parent has ended:
    /// they are others' children.
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
        // Tolerated: it may have ended meanwhile.
        kill_process(pid, Signal::KILL).unwrap_or(());
    }

    /// Kills its process and everything that any of its threads started, what was started first at last.
    pub(crate) fn kill_all(&self) {
        let started: Vec<_> = self.threads().iter().flat_map(Self::started).collect();
        started.iter().for_each(Self::kill);
        self.kill();
    }
}
