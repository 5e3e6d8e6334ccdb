//! The containers of the shim and their processes.

use crate::rpc::Call;
use crate::streams::{Kept, Owner, Stdio};
use crate::wire::options::Options;
use crate::wire::{Mount, Timestamp};
use husk_runtime::Store;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

/// A container.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) id: String,
    pub(crate) bundle: PathBuf,
    /// husk's state directory.
    pub(crate) root: PathBuf,
    pub(crate) options: Options,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) first: Process,
    pub(crate) execs: BTreeMap<String, Process>,
    pub(crate) activity: Activity,
    /// The directory of the image that `Start` restores the container from.
    pub(crate) checkpoint: Option<PathBuf>,
    /// The source of its memory events.
    pub(crate) memory: Option<u32>,
}

/// The state of the whole container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Activity {
    #[default]
    Runs,
    Pausing,
    Paused,
}

/// A process of a container: its first one, or one that `Exec` has added.
#[derive(Debug, Default)]
pub(crate) struct Process {
    pub(crate) stdio: Stdio,
    pub(crate) stage: Stage,
    /// 0 until it exists.
    pub(crate) pid: u32,
    pub(crate) kept: Kept,
    /// An end that is not told yet, because its start is not told yet, or because other processes have not ended.
    pub(crate) held: Option<Exit>,
    /// The calls of `Wait` that are not answered yet.
    pub(crate) waiters: Vec<Call>,
    /// The call of `Delete` that waits for the rest of the output, and until when.
    pub(crate) draining: Option<(Call, Instant)>,
    /// The process of an exec, as JSON.
    pub(crate) spec: String,
}

/// The part of its life that a process is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It waits for `Start`. An exec does not exist yet.
    #[default]
    Created,
    Starting,
    Running,
    Stopped(Exit),
    Deleting(Exit),
}

/// The end of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exit {
    /// The exit code, or 128 plus the number of a signal.
    pub(crate) status: u32,
    pub(crate) at: Option<Timestamp>,
}

/// Names a process. `exec` is empty for the first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) task: String,
    pub(crate) exec: String,
}

impl Key {
    pub(crate) fn first(task: &str) -> Self {
        Self { task: task.to_owned(), exec: String::new() }
    }
}

impl Task {
    pub(crate) fn store(&self) -> Store {
        Store::new(self.root.clone())
    }

    /// Returns the owner of its streams.
    pub(crate) fn owner(&self) -> Owner {
        Owner { uid: self.options.io_uid, gid: self.options.io_gid }
    }

    pub(crate) fn process(&self, exec: &str) -> Option<&Process> {
        if exec.is_empty() { Some(&self.first) } else { self.execs.get(exec) }
    }

    pub(crate) fn process_mut(&mut self, exec: &str) -> Option<&mut Process> {
        if exec.is_empty() { Some(&mut self.first) } else { self.execs.get_mut(exec) }
    }

    /// Whether a process that `Exec` has added still runs, so that the container's end must wait.
    pub(crate) fn has_running_exec(&self) -> bool {
        self.execs.values().any(|process| matches!(process.stage, Stage::Starting | Stage::Running))
    }
}

impl Process {
    /// Returns how it ended, if that has been told.
    pub(crate) fn exit(&self) -> Option<Exit> {
        match self.stage {
            Stage::Stopped(exit) | Stage::Deleting(exit) => Some(exit),
            Stage::Created | Stage::Starting | Stage::Running => None,
        }
    }
}
