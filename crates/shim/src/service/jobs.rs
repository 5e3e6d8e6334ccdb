//! Verbs of the runtime that run in processes of their own, and what follows when they end.

use crate::daemon::Daemon;
use crate::failure::{Code, Failure};
use crate::rpc::Call;
use crate::service::task::{Activity, Exit, Key, Stage, Task};
use crate::service::{Served, no_process, no_task};
use crate::streams::{Opened, connect};
use crate::verbs::{Outcome, Running, Verb, VerbRequest, launch};
use crate::wire::Empty;
use crate::wire::events::{
    TaskCheckpointed, TaskDelete, TaskExecStarted, TaskPaused, TaskResumed, TaskStart,
};
use crate::wire::task::{DeleteResponse, PidResponse};
use prost::Message as _;

/// A verb that runs.
#[derive(Debug)]
pub(crate) struct Job {
    call: Call,
    running: Running,
    then: Then,
    opened: Opened,
}

/// The step that follows the verb.
#[derive(Debug)]
pub(crate) enum Then {
    Created(Box<Task>),
    /// The root file system of a container that `Start` restores is mounted.
    Mounted(Box<Task>),
    /// The remains of a `Create` that was killed are removed. The call fails.
    Removed(String, Failure),
    /// The first process's program has begun.
    Started(String),
    /// A process was added to a container, or a container restored.
    Joined(Key),
    Deleted(String),
    Paused(String),
    Resumed(String),
    Updated,
    Checkpointed {
        id: String,
        image: String,
    },
}

/// Starts the process of a verb of the container. Gives it the streams of the process that it makes.
pub(super) fn run(task: &Task, verb: Verb, opened: &mut Opened) -> Result<Running, Failure> {
    let systemd_cgroup = task.options.systemd_cgroup;
    let request = VerbRequest { root: task.root.clone(), systemd_cgroup, verb };
    launch(&request, std::mem::take(&mut opened.ends), &task.bundle, std::env::vars_os())
}

impl Daemon {
    /// Answers the call when the verb has ended.
    pub(super) fn follow(&mut self, call: Call, running: Running, then: Then, opened: Opened) {
        if let Some(logger) = &opened.kept.logger {
            // An orphan may have had its pid.
            self.early.remove(&logger.pid);
        }
        self.jobs.insert(running.pid, Job { call, running, then, opened });
    }

    /// Whether a container of this id is being created.
    pub(super) fn is_creating(&self, id: &str) -> bool {
        self.jobs.values().any(|job| match &job.then {
            Then::Created(task) | Then::Mounted(task) => task.id == id,
            Then::Removed(removed, _) => removed == id,
            _ => false,
        })
    }

    /// Whether a verb that runs may make a process that the shim does not know yet.
    pub(super) fn expects_processes(&self) -> bool {
        self.jobs.values().any(|job| matches!(job.then, Then::Created(_) | Then::Joined(_)))
    }

    /// Answers the call whose verb has ended. `signal` is the one that killed the verb.
    pub(super) fn finish(&mut self, job: Job, signal: Option<i32>) {
        let Job { call, running, then, opened } = job;
        let Outcome { result, warnings } = running.outcome(signal);
        for warning in warnings {
            self.log.write("warning", &warning);
        }
        let answer = match then {
            Then::Created(task) | Then::Mounted(task) if signal.is_some() && result.is_err() => {
                return self.remove_half_made(call, &task, result);
            }
            Then::Removed(_, failure) => Err(failure),
            Then::Created(task) => result.and_then(|pid| self.created(*task, pid, opened)),
            Then::Mounted(task) => result.map(|_| self.mounted(*task)),
            Then::Started(id) => self.started(&id, result.map(drop)),
            Then::Joined(key) => self.joined(&key, result, opened),
            Then::Deleted(id) => self.deleted(&id, result.map(drop)),
            Then::Paused(id) => self.paused(&id, result.map(drop)),
            Then::Resumed(id) => self.resumed(&id, result.map(drop)),
            Then::Updated => result.map(|_| Empty {}.encode_to_vec()),
            Then::Checkpointed { id, image } => result.map(|_| {
                let event = TaskCheckpointed { container_id: id, checkpoint: image };
                self.publisher.publish("/tasks/checkpointed", "TaskCheckpointed", &event);
                Empty {}.encode_to_vec()
            }),
        };
        self.answer(call, answer.map(Served::Now));
    }

    /// Removes a container whose `create` was killed, as the OOM killer may do. Then the call fails.
    fn remove_half_made(&mut self, call: Call, task: &Task, result: Result<Option<u32>, Failure>) {
        let Err(failure) = result else { return };
        let rootfs = (!task.mounts.is_empty()).then(|| task.bundle.join("rootfs"));
        let verb = Verb::Delete { id: task.id.clone(), force: true, rootfs };
        let mut opened = Opened::default();
        match run(task, verb, &mut opened) {
            Ok(running) => self.follow(call, running, Then::Removed(task.id.clone(), failure), opened),
            Err(_) => self.answer(call, Err(failure)),
        }
    }

    fn created(&mut self, mut task: Task, pid: Option<u32>, opened: Opened) -> Result<Vec<u8>, Failure> {
        let pid = pid.unwrap_or_default();
        let key = Key::first(&task.id);
        task.first.pid = pid;
        self.tell_created(&task);
        self.tasks.insert(task.id.clone(), task);
        self.watch_memory(&key.task);
        self.pids.insert(pid, key.clone());
        let attached = self.attach(&key, opened);
        self.tell_early_exit(pid);
        attached?;
        Ok(PidResponse { pid }.encode_to_vec())
    }

    pub(super) fn mounted(&mut self, task: Task) -> Vec<u8> {
        self.tell_created(&task);
        self.tasks.insert(task.id.clone(), task);
        PidResponse { pid: 0 }.encode_to_vec()
    }

    fn started(&mut self, id: &str, result: Result<(), Failure>) -> Result<Vec<u8>, Failure> {
        let process = &mut self.task_mut(id)?.first;
        let (pid, held) = (process.pid, process.held.take());
        process.stage = if result.is_ok() { Stage::Running } else { Stage::Created };
        if result.is_ok() {
            let event = TaskStart { container_id: id.to_owned(), pid };
            self.publisher.publish("/tasks/start", "TaskStart", &event);
        }
        if let Some(exit) = held {
            self.ended(&Key::first(id), exit);
        }
        result.map(|()| PidResponse { pid }.encode_to_vec())
    }

    fn joined(
        &mut self,
        key: &Key,
        result: Result<Option<u32>, Failure>,
        opened: Opened,
    ) -> Result<Vec<u8>, Failure> {
        let process = self.process_mut(&key.task, &key.exec)?;
        let pid = match result {
            Ok(pid) => pid.unwrap_or_default(),
            Err(failure) => {
                // Nothing was started, so nothing ends; `Wait` returns and `Delete` succeeds.
                process.stage = Stage::Stopped(Exit::default());
                let waiters = std::mem::take(&mut process.waiters);
                self.tell_waiters(waiters, Exit::default());
                self.release_container(&key.task);
                return Err(failure);
            }
        };
        (process.pid, process.stage) = (pid, Stage::Running);
        self.pids.insert(pid, key.clone());
        if key.exec.is_empty() {
            self.watch_memory(&key.task);
            let event = TaskStart { container_id: key.task.clone(), pid };
            self.publisher.publish("/tasks/start", "TaskStart", &event);
        } else {
            let Key { task, exec } = key.clone();
            let event = TaskExecStarted { container_id: task, exec_id: exec, pid };
            self.publisher.publish("/tasks/exec-started", "TaskExecStarted", &event);
        }
        let attached = self.attach(key, opened);
        self.tell_early_exit(pid);
        attached.map(|()| PidResponse { pid }.encode_to_vec())
    }

    fn deleted(&mut self, id: &str, result: Result<(), Failure>) -> Result<Vec<u8>, Failure> {
        // The process of a container that was never started has just ended.
        self.reap();
        let Some(task) = self.tasks.get_mut(id) else { return Err(no_task()) };
        let exit = task.first.exit().unwrap_or_default();
        if let Err(failure) = result {
            // A process that has not ended can still be killed.
            let runs = self.pids.contains_key(&task.first.pid);
            task.first.stage = if runs { Stage::Created } else { Stage::Stopped(exit) };
            return Err(failure);
        }
        let Some(task) = self.tasks.remove(id) else { return Err(no_task()) };
        let pid = task.first.pid;
        self.pids.remove(&pid);
        if let Some(number) = task.memory {
            // Closing the descriptor removes it from the poller.
            self.memory.remove(&number);
        }
        for process in task.execs.into_values().chain([task.first]) {
            if let Some((call, _)) = process.draining {
                let Exit { status: exit_status, at: exited_at } = process.exit().unwrap_or_default();
                let response = DeleteResponse { pid: process.pid, exit_status, exited_at };
                self.answer(call, Served::with(&response));
            }
            self.tell_waiters(process.waiters, exit);
            self.drop_streams(process.kept);
        }
        let event = TaskDelete {
            container_id: id.to_owned(),
            pid,
            exit_status: exit.status,
            exited_at: exit.at,
            id: String::new(),
        };
        self.publisher.publish("/tasks/delete", "TaskDelete", &event);
        Ok(DeleteResponse { pid, exit_status: exit.status, exited_at: exit.at }.encode_to_vec())
    }

    fn paused(&mut self, id: &str, result: Result<(), Failure>) -> Result<Vec<u8>, Failure> {
        self.task_mut(id)?.activity = if result.is_ok() { Activity::Paused } else { Activity::Runs };
        result?;
        let event = TaskPaused { container_id: id.to_owned() };
        self.publisher.publish("/tasks/paused", "TaskPaused", &event);
        Ok(Empty {}.encode_to_vec())
    }

    fn resumed(&mut self, id: &str, result: Result<(), Failure>) -> Result<Vec<u8>, Failure> {
        result?;
        self.task_mut(id)?.activity = Activity::Runs;
        let event = TaskResumed { container_id: id.to_owned() };
        self.publisher.publish("/tasks/resumed", "TaskResumed", &event);
        Ok(Empty {}.encode_to_vec())
    }

    /// Hands the streams that were opened for a process over to it.
    fn attach(&mut self, key: &Key, opened: Opened) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::new(Code::Unknown, error.to_string());
        let Opened { ends: _, mut kept, mut pumps, console } = opened;
        let logger = kept.logger.as_ref().map(|logger| logger.pid);
        if let Some(console) = console {
            let terminal = console.receive().map_err(failed)?;
            let stdio = &self.process(&key.task, &key.exec)?.stdio;
            let id = if key.exec.is_empty() { &key.task } else { &key.exec };
            let connected = connect(stdio, terminal, &mut kept, id, &self.flags.namespace);
            pumps.extend(connected.map_err(failed)?);
        }
        for pump in pumps {
            kept.pumps.push(self.pump(pump).map_err(failed)?);
        }
        let process = self.tasks.get_mut(&key.task).and_then(|task| task.process_mut(&key.exec));
        process.ok_or_else(|| no_process(&key.exec))?.kept = kept;
        // It may have died while the verb ran.
        if let Some(pid) = logger.filter(|pid| self.early.remove(pid).is_some()) {
            self.replace_logger(pid);
        }
        Ok(())
    }
}
