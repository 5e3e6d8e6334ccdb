//! The end of a program in a sandbox.

use super::kept::OwnFiles;
use crate::error::MissingIsolation;
use crate::services::{ServiceReport, service_output};
use husk_script::sys::process::Usage;
use husk_script::sys::signal::Signal;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

/// How a program ended.
#[derive(Clone, Debug)]
pub struct Ended {
    pub status: ExitStatus,
    /// The time from start to end.
    pub wall: Duration,
    /// The resources that it used.
    pub usage: Usage,
    /// Processes that it left running, which have been killed.
    pub remaining: Vec<RemainingProcess>,
    /// The limit that ended it.
    pub reached: Option<Reached>,
    /// The limit of bytes in the private directories, if the program failed and they were full.
    pub full: Option<DiskLimit>,
    /// Whether it was in the foreground of the caller's terminal when it ended. Signals typed there then reached only
    /// the program.
    pub had_terminal: bool,
    /// Whether a signal was passed on to it.
    pub was_signalled: bool,
    /// Isolation that it lacked.
    pub losses: Vec<MissingIsolation>,
    /// The output of the program's services meanwhile, and how they ended.
    pub services: Vec<ServiceReport>,
    /// Why the program was not run at all. Its status then only stands for this.
    pub not_run: Option<NotRun>,
    /// The program's own files, if the profile [keeps](crate::Profile::keeps_files) them.
    pub files: Option<OwnFiles>,
    /// How an earlier run that is remembered relates to this result.
    pub recalled: Option<Recalled>,
}

/// The relation of a result to a run that is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recalled {
    /// The program was not run, because it passed before and took this time.
    Cached(Duration),
    /// The program passed before and has now failed, although nothing that it could see has changed.
    Contradicted,
}

/// Returns how a program ended that has exited with this code.
#[cfg(test)]
pub(crate) fn exited(code: i32) -> Ended {
    Ended::new(ExitStatus::from_raw(code << 8), Duration::from_millis(5))
}

/// Why a program was not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotRun {
    /// Its services did not become ready.
    Services(String),
    /// This signal arrived before they did.
    Signal(Signal),
}

/// A limit that ended a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// The time limit.
    Wall(Duration),
    /// Seconds of processor time.
    Cpu(u64),
    /// Bytes of memory.
    Memory(u64),
    /// Bytes of one file.
    FileSize(u64),
}

/// A limit of bytes in the private directories that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskLimit(pub u64);

impl Display for DiskLimit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "disk limit of {} bytes reached", self.0)
    }
}

impl Ended {
    /// Returns the end of a program that used and left nothing.
    fn new(status: ExitStatus, wall: Duration) -> Self {
        Self {
            status,
            wall,
            usage: Usage::default(),
            remaining: Vec::new(),
            reached: None,
            full: None,
            had_terminal: false,
            was_signalled: false,
            losses: Vec::new(),
            services: Vec::new(),
            not_run: None,
            files: None,
            recalled: None,
        }
    }

    /// Returns the end of a program that was not run, because it passed before and took this time.
    pub(crate) fn recalled(wall: Duration) -> Self {
        let recalled = Some(Recalled::Cached(wall));
        Self { recalled, ..Self::new(ExitStatus::default(), Duration::ZERO) }
    }

    /// Returns whether the program was not run, because it passed before.
    #[must_use]
    pub fn is_cached(&self) -> bool {
        matches!(self.recalled, Some(Recalled::Cached(_)))
    }

    /// Returns the end of a program that was not run. Its status is that of husk in such a case.
    pub(crate) fn not_run(why: NotRun, wall: Duration) -> Self {
        /// The exit code of a husk that could not create a sandbox.
        const NO_SANDBOX: i32 = 125;
        let signal = match &why {
            NotRun::Services(_) => None,
            NotRun::Signal(signal) => Some(signal.number()),
        };
        let status = ExitStatus::from_raw(signal.unwrap_or(NO_SANDBOX << 8));
        Self { was_signalled: signal.is_some(), not_run: Some(why), ..Self::new(status, wall) }
    }

    /// Returns a line for each service that ended before the program, or because of which it was not run.
    #[must_use]
    pub fn service_notes(&self) -> Vec<String> {
        self.services.iter().filter_map(ServiceReport::note).collect()
    }

    /// Returns the text that a failed program's output gets about its services.
    #[must_use]
    pub fn service_output(&self) -> String {
        service_output(&self.services)
    }

    /// Returns the limits that the program reached, as text: the one that ended it, and that of the disk.
    #[must_use]
    pub fn limits(&self) -> Vec<String> {
        let reached = self.reached.iter().map(ToString::to_string);
        reached.chain(self.full.iter().map(ToString::to_string)).collect()
    }
}

impl Display for Recalled {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cached(_) => "cached",
            Self::Contradicted => "cached as passed; the result depends on more than the inputs",
        })
    }
}

impl Display for Reached {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wall(limit) => write!(f, "time limit of {} s reached", limit.as_secs_f64()),
            Self::Cpu(limit) => write!(f, "processor limit of {limit} s reached"),
            Self::Memory(limit) => write!(f, "memory limit of {limit} bytes reached"),
            Self::FileSize(limit) => write!(f, "file size limit of {limit} bytes reached"),
        }
    }
}

/// A process that was running when the program had ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemainingProcess {
    /// Its pid on the host.
    pub pid: u32,
    /// Its command line, or its name if that is empty.
    pub command: String,
}

impl RemainingProcess {
    /// Returns whether it has ended and only its parent has not noticed yet (proc_pid_stat(5)).
    pub(crate) fn has_ended(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid));
        let state = stat.as_deref().ok().and_then(|stat| stat.rsplit_once(") ")?.1.chars().next());
        matches!(state, None | Some('Z' | 'X'))
    }
}
