//! Profiles: the request for a sandbox.

use crate::host::HostFile;
use crate::services::Service;
use crate::tools::Link;
use husk_bundle::Container;
use husk_bundle::container::Process;
use husk_script::sys::limits::Resource;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// A program, and what it may see and use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The program and its arguments.
    pub args: Vec<OsString>,
    /// Variables in addition to those that are always passed on.
    pub env: Vec<Variable>,
    /// Paths that are shown differently from the rest.
    pub shown: Vec<Show>,
    /// Paths that are shown for tools.
    pub tools: Vec<ToolPath>,
    /// Symlinks in hidden directories that lead to tools.
    pub links: Vec<Link>,
    /// Files in a directory of the program's own, `/run/husk`.
    pub files: Vec<OwnFile>,
    /// The working directory, if it is not the caller's.
    pub directory: Option<PathBuf>,
    pub net: Net,
    pub limits: Limits,
    /// How long the machine appears to have been up when the program starts.
    pub uptime: Option<Duration>,
    /// Whether the program may mount file systems in its own namespaces. It then runs without Landlock, which forbids
    /// all mounts. Root also keeps the capability to be root there.
    pub nested: bool,
    /// Whether the caller wants the [files](crate::Ended::files) that the program has written to its own directories.
    pub keeps_files: bool,
    /// Whether a listener is notified of the program's calls, so that its failure can be explained.
    pub observed: bool,
    /// The uid and gid that the program sees as its own, if they are not the caller's or the image's.
    pub user: Option<(u32, u32)>,
    /// The programs that run beside this one, in the same network.
    pub services: Vec<Service>,
    /// The root file system, if it is not the host's. All paths then refer to it.
    pub image: Option<Image>,
    /// Globs of the files that the program sees besides the system's. Without any, it sees those of the host.
    pub inputs: Vec<PathBuf>,
    /// Paths that are never inputs.
    pub excluded: Vec<PathBuf>,
}

/// A root file system that replaces the host's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub root: Root,
    /// Whether the program may write to it.
    pub access: PathAccess,
    /// Paths of the host that are shown in the image at the same place, read-only or with an overlay.
    pub shown: Vec<Show>,
    /// The image's bundle, which adds settings for the program. Only those that [`bundle`](crate::bundle) accepts take
    /// effect.
    pub bundle: Option<Box<Container>>,
}

/// The files of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Root {
    /// A directory of the host.
    Directory(PathBuf),
    /// An overlay of these directories, from the highest to the lowest. They may be shared and do not change.
    Layers(Vec<PathBuf>),
}

impl Image {
    /// Returns a read-only image of a directory that has no bundle.
    #[must_use]
    pub fn of(directory: PathBuf) -> Self {
        let root = Root::Directory(directory);
        Self { root, access: PathAccess::Read, shown: Vec::new(), bundle: None }
    }

    /// Whether the image consists of layers.
    pub(crate) fn has_layers(&self) -> bool {
        matches!(self.root, Root::Layers(_))
    }

    /// Returns the bundle's `process`.
    pub(crate) fn process(&self) -> Option<&Process> {
        self.bundle.as_ref()?.process.as_ref()
    }
}

/// An environment variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variable {
    /// The caller's variable of this name, if it is set.
    Pass(OsString),
    /// A variable with this name and value.
    Set(OsString, OsString),
}

/// A path and how it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Show {
    /// The path, which is the same on the host and in the sandbox.
    pub path: PathBuf,
    pub access: PathAccess,
}

/// A path without symlinks that is shown for a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolPath {
    pub file: HostFile,
    pub access: PathAccess,
}

/// A file that only the sandbox has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnFile {
    /// Its name, without a directory.
    pub name: String,
    pub text: String,
}

/// How a path is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathAccess {
    /// Readable, even if it would otherwise be hidden.
    Read,
    /// Readable and writable.
    Write,
    /// Readable and writable; writes are thrown away.
    Overlay,
    /// Hidden: it appears empty.
    Hide,
}

/// The program's network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Net {
    /// A network namespace in which nothing works.
    None,
    /// A network namespace with the loopback device up.
    #[default]
    Loopback,
    Host,
}

/// Limits on what the program may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Time from start to end.
    pub wall: Option<Duration>,
    /// Seconds of processor time, for each process.
    pub cpu_seconds: Option<u64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Number of processes and threads.
    pub processes: Option<u64>,
    /// Number of open files, for each process.
    pub files: Option<u64>,
    /// Bytes of one file.
    pub file_size: Option<u64>,
    /// Bytes of all files in the program's own directories.
    pub disk: Option<u64>,
}

/// The default process limit: more than a test needs, but few enough that a fork bomb does not harm the machine.
const MOST_PROCESSES: u64 = 4096;

impl Limits {
    /// Returns the limit for processes and threads, or the default.
    pub(crate) fn most_processes(&self) -> u64 {
        self.processes.unwrap_or(MOST_PROCESSES)
    }

    /// Returns the limits that the kernel enforces for each process or user.
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
