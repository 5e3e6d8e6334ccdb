//! The calls about a whole container, and about the shim itself.

use crate::daemon::Daemon;
use crate::failure::{Code, Failure};
use crate::metrics::metrics;
use crate::poll::Source;
use crate::rpc::Call;
use crate::service::jobs::Then;
use crate::service::process::work_directory;
use crate::service::task::{Activity, Stage};
use crate::service::{Served, decoded, wrong_state};
use crate::verbs::{Checkpoint, Verb};
use crate::wire::Any;
use crate::wire::events::TaskOom;
use crate::wire::options::{CheckpointOptions, ProcessDetails};
use crate::wire::task::{
    CheckpointRequest, ConnectResponse, PidsResponse, ProcessInfo, ProcessRequest, StatsResponse,
    UpdateRequest,
};
use husk_runtime::{OomEvent, watch_memory};
use rustix::event::epoll::EventFlags;
use std::path::PathBuf;

impl Daemon {
    pub(super) fn pause(&mut self, call: Call, request: ProcessRequest) -> Result<Served, Failure> {
        let id = request.id;
        let task = self.task(&id)?;
        match (task.first.stage, task.activity) {
            (Stage::Running, Activity::Runs) => {}
            (Stage::Running, _) => return Err(wrong_state("cannot pause a paused container")),
            (Stage::Created | Stage::Starting, _) => {
                return Err(wrong_state("cannot pause task in created state"));
            }
            _ => return Err(wrong_state("cannot pause a stopped container")),
        }
        self.begin_plain(call, &id, Verb::Pause { id: id.clone() }, Then::Paused(id.clone()))?;
        self.task_mut(&id)?.activity = Activity::Pausing;
        Ok(Served::Later)
    }

    pub(super) fn resume(&mut self, call: Call, request: ProcessRequest) -> Result<Served, Failure> {
        let id = request.id;
        if self.task(&id)?.activity != Activity::Paused {
            return Err(wrong_state("cannot resume a running process"));
        }
        self.begin_plain(call, &id, Verb::Resume { id: id.clone() }, Then::Resumed(id.clone()))?;
        Ok(Served::Later)
    }

    pub(super) fn checkpoint(&mut self, call: Call, request: CheckpointRequest) -> Result<Served, Failure> {
        let CheckpointRequest { id, path, options } = request;
        let task = self.task(&id)?;
        match task.first.stage {
            Stage::Running => {}
            Stage::Created | Stage::Starting => {
                return Err(wrong_state("cannot checkpoint a task in created state"));
            }
            _ => return Err(wrong_state("cannot checkpoint a stopped container")),
        }
        let options = checkpoint_options(options)?;
        let path_of = |text: String| (!text.is_empty()).then(|| PathBuf::from(text));
        let work = path_of(options.work_path).unwrap_or_else(|| work_directory("", &task.bundle));
        let verb = Verb::Checkpoint(Checkpoint {
            id: id.clone(),
            image: PathBuf::from(&path),
            work: Some(work),
            parent: path_of(options.parent_path),
            exit: options.exit,
            open_tcp: options.open_tcp,
            external_unix_sockets: options.external_unix_sockets,
            terminal: options.terminal,
            file_locks: options.file_locks,
            empty_namespaces: options.empty_namespaces,
            cgroups_mode: options.cgroups_mode,
        });
        let then = Then::Checkpointed { id: id.clone(), image: path };
        self.begin_plain(call, &id, verb, then)?;
        Ok(Served::Later)
    }

    pub(super) fn update(&mut self, call: Call, request: UpdateRequest) -> Result<Served, Failure> {
        let id = request.id;
        if self.task(&id)?.first.exit().is_some() {
            return Err(wrong_state("cannot update a stopped container"));
        }
        let bytes = request.resources.map(|resources| resources.value).unwrap_or_default();
        let resources = String::from_utf8(bytes)
            .map_err(|error| Failure::new(Code::InvalidArgument, format!("resources: {error}")))?;
        self.begin_plain(call, &id, Verb::Update { id: id.clone(), resources }, Then::Updated)?;
        Ok(Served::Later)
    }

    pub(super) fn stats(&self, request: &ProcessRequest) -> Result<Served, Failure> {
        let stats = metrics(&self.task(&request.id)?.store(), &request.id)?;
        Served::with(&StatsResponse { stats: Some(stats) })
    }

    pub(super) fn pids(&self, request: &ProcessRequest) -> Result<Served, Failure> {
        let task = self.task(&request.id)?;
        let pids = husk_runtime::ps::pids(&task.store(), &request.id)?;
        let details = |pid: u32| {
            let exec = task.execs.iter().find(|(_, process)| process.pid == pid)?;
            let details = ProcessDetails { exec_id: exec.0.clone() };
            Some(Any::new(ProcessDetails::TYPE, &details))
        };
        let pids = pids.into_iter().map(i32::unsigned_abs);
        let processes = pids.map(|pid| ProcessInfo { pid, info: details(pid) }).collect();
        Served::with(&PidsResponse { processes })
    }

    pub(super) fn connect(&self, request: &ProcessRequest) -> Result<Served, Failure> {
        let task_pid = self.tasks.get(&request.id).map_or(0, |task| task.first.pid);
        Served::with(&ConnectResponse { shim_pid: std::process::id(), task_pid, version: String::new() })
    }

    /// Ends the shim, unless it has containers: then it is the shim of a pod, whose other containers stay.
    pub(super) fn shutdown(&mut self) -> Result<Served, Failure> {
        if self.tasks.is_empty() && self.jobs.is_empty() {
            self.stop();
        }
        Served::empty()
    }

    /// Watches the memory of a new container. Without a watch only the events of the OOM killer are missing.
    pub(super) fn watch_memory(&mut self, id: &str) {
        let Some(task) = self.tasks.get(id) else { return };
        let watch = match watch_memory(&task.store(), &task.id) {
            Ok(watch) => watch,
            Err(error) => return self.log.write("warning", &format!("watch the memory: {error}")),
        };
        let number = self.next_number();
        let events = EventFlags::from_bits_retain(u32::from(watch.flags().bits()));
        match self.poller.add(&watch, Source::Memory(number), events) {
            Ok(()) => {
                self.memory.insert(number, (id.to_owned(), watch));
                if let Some(task) = self.tasks.get_mut(id) {
                    task.memory = Some(number);
                }
            }
            Err(error) => self.log.write("warning", &format!("watch the memory: {error}")),
        }
    }

    /// Tells that a container has run out of memory.
    pub(crate) fn memory_ready(&mut self, number: u32) {
        let Some((id, watch)) = self.memory.get_mut(&number) else { return };
        let id = id.clone();
        match watch.check() {
            Ok(OomEvent::OutOfMemory) => {
                let event = TaskOom { container_id: id };
                self.publisher.publish("/tasks/oom", "TaskOOM", &event);
            }
            Ok(OomEvent::Nothing) => {}
            // Closing the descriptor removes it from the poller.
            Ok(OomEvent::Gone) | Err(_) => drop(self.memory.remove(&number)),
        }
    }
}

fn checkpoint_options(options: Option<Any>) -> Result<CheckpointOptions, Failure> {
    match options {
        Some(any) if any.type_url.ends_with(CheckpointOptions::TYPE) => decoded(&any.value),
        Some(any) if !any.type_url.is_empty() => Err(Failure::new(
            Code::InvalidArgument,
            format!("options of type {} are not those of a checkpoint", any.type_url),
        )),
        _ => Ok(CheckpointOptions::default()),
    }
}
