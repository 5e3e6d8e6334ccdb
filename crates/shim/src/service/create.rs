//! `Create`, and `Exec`, which only adds a process: `Start` creates it.

use crate::bootstrap::options::{options_of, state_directory};
use crate::daemon::Daemon;
use crate::failure::{Code, Failure};
use crate::rpc::Call;
use crate::service::jobs::{Then, run};
use crate::service::task::{Activity, Process, Stage, Task};
use crate::service::{Served, wrong_state};
use crate::streams::console::Console;
use crate::streams::{Opened, Stdio, check_fifos, open_streams};
use crate::verbs::{Create, Verb};
use crate::wire::events::{TaskCreate, TaskExecAdded, TaskIo};
use crate::wire::task::{CreateRequest, ExecRequest};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

impl Daemon {
    pub(super) fn create(&mut self, call: Call, request: CreateRequest) -> Result<Served, Failure> {
        if self.is_stopping() {
            return Err(Failure::new(Code::Unavailable, "the shim is shutting down"));
        }
        if self.tasks.contains_key(&request.id) || self.is_creating(&request.id) {
            return Err(Failure::new(
                Code::AlreadyExists,
                format!("container {} already exists", request.id),
            ));
        }
        let options = options_of(request.options.as_ref())?;
        let task = Task {
            root: state_directory(&options, &self.flags.namespace),
            bundle: PathBuf::from(&request.bundle),
            mounts: request.rootfs,
            first: Process {
                stdio: Stdio {
                    stdin: request.stdin,
                    stdout: request.stdout,
                    stderr: request.stderr,
                    terminal: request.terminal,
                },
                ..Process::default()
            },
            execs: BTreeMap::new(),
            activity: Activity::default(),
            checkpoint: (!request.checkpoint.is_empty()).then(|| PathBuf::from(request.checkpoint)),
            memory: None,
            id: request.id,
            options,
        };
        self.keep_options(&task)?;
        if task.checkpoint.is_some() {
            // `Start` restores it. Before that, containerd adds the files that the container had changed.
            if task.mounts.is_empty() {
                return Ok(Served::Now(self.mounted(task)));
            }
            let verb = Verb::Mount { bundle: task.bundle.clone(), rootfs: task.mounts.clone() };
            let mut opened = Opened::default();
            let running = run(&task, verb, &mut opened)?;
            self.follow(call, running, Then::Mounted(Box::new(task)), opened);
            return Ok(Served::Later);
        }
        let mut opened = self.open(&task, &task.first, &task.id)?;
        let running = run(&task, Verb::Create(create_of(&task, &opened)), &mut opened)?;
        self.follow(call, running, Then::Created(Box::new(task)), opened);
        Ok(Served::Later)
    }

    pub(super) fn tell_created(&mut self, task: &Task) {
        let Stdio { stdin, stdout, stderr, terminal } = task.first.stdio.clone();
        let event = TaskCreate {
            container_id: task.id.clone(),
            bundle: task.bundle.to_string_lossy().into_owned(),
            rootfs: task.mounts.clone(),
            io: Some(TaskIo { stdin, stdout, stderr, terminal }),
            checkpoint: task.checkpoint.as_deref().unwrap_or(Path::new("")).to_string_lossy().into_owned(),
            pid: task.first.pid,
        };
        self.publisher.publish("/tasks/create", "TaskCreate", &event);
    }

    pub(super) fn exec(&mut self, request: ExecRequest) -> Result<Served, Failure> {
        let task = self.task_mut(&request.id)?;
        if request.exec_id.is_empty() {
            return Err(Failure::new(Code::InvalidArgument, "exec id is empty"));
        }
        if task.execs.contains_key(&request.exec_id) {
            return Err(Failure::new(Code::AlreadyExists, format!("id {}", request.exec_id)));
        }
        if matches!(task.first.stage, Stage::Stopped(_) | Stage::Deleting(_)) || task.first.held.is_some() {
            return Err(wrong_state("cannot exec in a stopped state"));
        }
        if task.activity != Activity::Runs {
            return Err(wrong_state("cannot exec in a paused state"));
        }
        let bytes = request.spec.map(|spec| spec.value).unwrap_or_default();
        let process = Process {
            spec: with_terminal(&bytes, request.terminal)?,
            stdio: Stdio {
                stdin: request.stdin,
                stdout: request.stdout,
                stderr: request.stderr,
                terminal: request.terminal,
            },
            ..Process::default()
        };
        task.execs.insert(request.exec_id.clone(), process);
        let event = TaskExecAdded { container_id: request.id, exec_id: request.exec_id };
        self.publisher.publish("/tasks/exec-added", "TaskExecAdded", &event);
        Served::empty()
    }

    /// Opens the streams of a process that is about to be created, or the socket that receives its terminal.
    pub(super) fn open(&self, task: &Task, process: &Process, id: &str) -> Result<Opened, Failure> {
        let stdio = &process.stdio;
        let opened = if stdio.terminal {
            check_fifos(stdio)
                .and_then(|()| Console::new(&task.bundle, self.next_number()))
                .map(|console| Opened { console: Some(console), ..Opened::default() })
        } else {
            open_streams(stdio, task.owner(), id, &self.flags.namespace)
        };
        opened.map_err(|error| Failure::new(Code::Unknown, error.to_string()))
    }
}

pub(super) fn create_of(task: &Task, opened: &Opened) -> Create {
    Create {
        id: task.id.clone(),
        bundle: task.bundle.clone(),
        rootfs: task.mounts.clone(),
        console_socket: opened.console.as_ref().map(Console::path),
        no_pivot_root: task.options.no_pivot_root,
        no_new_keyring: task.options.no_new_keyring,
    }
}

/// Returns the process with its terminal as the call says.
fn with_terminal(process: &[u8], terminal: bool) -> Result<String, Failure> {
    let invalid = |error: serde_json::Error| Failure::new(Code::InvalidArgument, format!("process: {error}"));
    let mut process: BTreeMap<String, Value> = serde_json::from_slice(process).map_err(invalid)?;
    process.insert("terminal".to_owned(), Value::Bool(terminal));
    serde_json::to_string(&process).map_err(invalid)
}
