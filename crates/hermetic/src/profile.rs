//! What is asked for.

use husk_bundle::Container;
use husk_bundle::container::Process;
use husk_script::sys::limits::Resource;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// A program, and what it is to see and may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The program with its arguments.
    pub args: Vec<OsString>,
    /// Variables beside those that are let through.
    pub env: Vec<Variable>,
    /// Paths that are to be seen otherwise than the rest.
    pub shown: Vec<Show>,
    /// Its network.
    pub net: Net,
    /// What it may use.
    pub limits: Limits,
    /// For how long the machine seems to have been up when it begins.
    pub uptime: Option<Duration>,
    /// Whether the program may mount file systems in namespaces of its own. It then runs without Landlock, which
    /// forbids all mounts.
    pub nested: bool,
    /// The file system that it is in, if that is not the host's. Then every path is one in there.
    pub image: Option<Image>,
}

/// A file system in place of the host's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The directory that is its root.
    pub directory: PathBuf,
    /// Whether the program may write to it.
    pub access: Access,
    /// The bundle that it is of, which says more about the program. Of that only what
    /// [`bundle`](crate::bundle) lets pass.
    pub bundle: Option<Box<Container>>,
}

impl Image {
    /// A directory, of which nothing more is known.
    #[must_use]
    pub fn of(directory: PathBuf) -> Self {
        Self { directory, access: Access::Read, bundle: None }
    }

    /// What the bundle says of the process.
    pub(crate) fn process(&self) -> Option<&Process> {
        self.bundle.as_ref()?.process.as_ref()
    }
}

/// A variable of the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variable {
    /// The caller's, if it is set.
    Pass(OsString),
    /// One with this value.
    Set(OsString, OsString),
}

/// A path and how it is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Show {
    /// The path on the host, and the same in the sandbox.
    pub path: PathBuf,
    /// How.
    pub access: Access,
}

/// How a path is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// As it is, even where it would be hidden.
    Read,
    /// As it is, and it may be written to.
    Write,
    /// As it is, and what is written to it is thrown away.
    Overlay,
    /// Not at all: it is empty.
    Hide,
}

/// A network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Net {
    /// Its own, in which nothing works.
    None,
    /// Its own, with the loopback device.
    #[default]
    Loopback,
    /// The host's.
    Host,
}

/// What the program may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// How long it may take.
    pub wall: Option<Duration>,
    /// Seconds of a processor, for each process.
    pub cpu_seconds: Option<u64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
    /// Open files, for each process.
    pub files: Option<u64>,
    /// Bytes of a file.
    pub file_size: Option<u64>,
    /// Bytes of everything that it writes to its own directories.
    pub disk: Option<u64>,
}

/// As many as no test needs, so that one that runs away fails and not the machine.
const MOST_PROCESSES: u64 = 4096;

impl Limits {
    /// How many processes and threads there may be, if nothing was asked for too.
    pub(crate) fn most_processes(&self) -> u64 {
        self.processes.unwrap_or(MOST_PROCESSES)
    }

    /// Those that the kernel keeps for each process or user.
    #[must_use]
    pub fn resources(&self) -> [(Resource, Option<u64>); 5] {
        [
            (Resource::Cpu, self.cpu_seconds),
            (Resource::As, self.memory),
            (Resource::Nproc, Some(self.most_processes())),
            (Resource::Nofile, self.files),
            (Resource::Fsize, self.file_size),
        ]
    }
}
