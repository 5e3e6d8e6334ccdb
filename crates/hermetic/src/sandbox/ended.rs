//! How a program in a sandbox ended.

use crate::error::Loss;
use husk_script::sys::process::Usage;
use std::fmt::{self, Display, Formatter};
use std::process::ExitStatus;
use std::time::Duration;

/// How a program ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its status.
    pub status: ExitStatus,
    /// How long it took.
    pub wall: Duration,
    /// What it used.
    pub usage: Usage,
    /// What it left behind, which has been ended.
    pub remaining: Vec<RemainingProcess>,
    /// The limit that ended it.
    pub reached: Option<Reached>,
    /// Whether it had the caller's terminal, so that what was typed there it got alone.
    pub had_terminal: bool,
    /// Where it was less isolated than is promised.
    pub losses: Vec<Loss>,
}

/// A limit that ended a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// Of time.
    Wall(Duration),
    /// Seconds of a processor.
    Cpu(u64),
    /// Bytes of memory.
    Memory(u64),
    /// Bytes of a file.
    FileSize(u64),
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

/// A process that ran when the program had ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemainingProcess {
    /// Its pid on the host.
    pub pid: u32,
    /// Its program with its arguments.
    pub command: String,
}
