//! The calls about one process.

use crate::daemon::Daemon;
use crate::failure::{Code, Failure};
use crate::rpc::Call;
use crate::service::create::create_of;
use crate::service::jobs::{Then, run};
use crate::service::task::{Activity, Exit, Key, Process, Stage};
use crate::service::{Served, no_process, wrong_state};
use crate::streams::Opened;
use crate::streams::console::Console;
use crate::verbs::{Exec, Restore, Verb};
use crate::wire::task::{
    DeleteResponse, KillRequest, ProcessRequest, ResizePtyRequest, StateResponse, Status, WaitResponse,
};
use husk_runtime::{KillScope, Signal};
use husk_spawn::Adopted;
use rustix::termios::{Winsize, tcsetwinsize};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long `Delete` waits for the rest of a terminal's or log's output.
const DRAIN: Duration = Duration::from_secs(10);

impl Daemon {
    pub(super) fn start(&mut self, call: Call, request: ProcessRequest) -> Result<Served, Failure> {
        let ProcessRequest { id, exec_id: exec } = request;
        let task = self.task(&id)?;
        let process = task.process(&exec).ok_or_else(|| no_process(&exec))?;
        match process.stage {
            Stage::Created if process.held.is_none() => {}
            Stage::Created | Stage::Stopped(_) | Stage::Deleting(_) => {
                return Err(wrong_state("cannot start a stopped process"));
            }
            Stage::Starting | Stage::Running => return Err(wrong_state("cannot start a running process")),
        }
        if !exec.is_empty() && (task.first.held.is_some() || task.first.exit().is_some()) {
            return Err(wrong_state(format!("container {id} init process is not running")));
        }
        if exec.is_empty() && task.checkpoint.is_none() {
            let verb = Verb::Start { id: id.clone() };
            self.begin_plain(call, &id, verb, Then::Started(id.clone()))?;
        } else {
            self.start_new(call, &id, &exec)?;
        }
        self.process_mut(&id, &exec)?.stage = Stage::Starting;
        Ok(Served::Later)
    }

    /// Starts a process that does not exist yet: an exec, or the first one of a container that is restored.
    fn start_new(&mut self, call: Call, id: &str, exec: &str) -> Result<(), Failure> {
        let task = self.task(id)?;
        let process = task.process(exec).ok_or_else(|| no_process(exec))?;
        let mut opened = self.open(task, process, if exec.is_empty() { id } else { exec })?;
        let verb = match &task.checkpoint {
            Some(image) if exec.is_empty() => Verb::Restore(Restore {
                create: create_of(task, &opened),
                image: image.clone(),
                work: Some(work_directory(&task.options.criu_work_path, &task.bundle)),
            }),
            _ => Verb::Exec(Exec {
                id: id.to_owned(),
                process: process.spec.clone(),
                console_socket: opened.console.as_ref().map(Console::path),
            }),
        };
        let running = run(task, verb, &mut opened)?;
        let key = Key { task: id.to_owned(), exec: exec.to_owned() };
        self.follow(call, running, Then::Joined(key), opened);
        Ok(())
    }

    /// Begins a verb that needs no streams.
    pub(super) fn begin_plain(
        &mut self,
        call: Call,
        id: &str,
        verb: Verb,
        then: Then,
    ) -> Result<(), Failure> {
        let mut opened = Opened::default();
        let running = run(self.task(id)?, verb, &mut opened)?;
        self.follow(call, running, then, opened);
        Ok(())
    }

    pub(super) fn delete(&mut self, call: Call, request: ProcessRequest) -> Result<Served, Failure> {
        let ProcessRequest { id, exec_id: exec } = request;
        let process = self.process(&id, &exec)?;
        match process.stage {
            Stage::Starting | Stage::Running => return Err(wrong_state("cannot delete a running process")),
            Stage::Deleting(_) => return Err(wrong_state("the process is being deleted")),
            Stage::Created | Stage::Stopped(_) => {}
        }
        if self.is_pumping(&process.kept) && process.exit().is_some() {
            let process = self.process_mut(&id, &exec)?;
            if process.draining.is_some() {
                return Err(wrong_state("the process is being deleted"));
            }
            process.draining = Some((call, Instant::now() + DRAIN));
            return Ok(Served::Later);
        }
        self.delete_drained(call, &id, &exec)
    }

    /// Deletes a process whose output is complete.
    pub(super) fn delete_drained(&mut self, call: Call, id: &str, exec: &str) -> Result<Served, Failure> {
        let exit = self.process(id, exec)?.exit().unwrap_or_default();
        if exec.is_empty() {
            let task = self.task(id)?;
            let rootfs = (!task.mounts.is_empty()).then(|| task.bundle.join("rootfs"));
            let verb = Verb::Delete { id: id.to_owned(), force: false, rootfs };
            self.begin_plain(call, id, verb, Then::Deleted(id.to_owned()))?;
            self.task_mut(id)?.first.stage = Stage::Deleting(exit);
            return Ok(Served::Later);
        }
        let Some(process) = self.task_mut(id)?.execs.remove(exec) else { return Err(no_process(exec)) };
        self.tell_waiters(process.waiters, exit);
        self.drop_streams(process.kept);
        Served::with(&DeleteResponse { pid: process.pid, exit_status: exit.status, exited_at: exit.at })
    }

    pub(super) fn state(&self, request: &ProcessRequest) -> Result<Served, Failure> {
        let task = self.task(&request.id)?;
        let process = self.process(&request.id, &request.exec_id)?;
        let status = match (process.stage, task.activity) {
            (Stage::Stopped(_) | Stage::Deleting(_), _) => Status::Stopped,
            (_, Activity::Pausing) => Status::Pausing,
            (_, Activity::Paused) => Status::Paused,
            (Stage::Created | Stage::Starting, _) => Status::Created,
            (Stage::Running, _) => Status::Running,
        };
        let exit = process.exit().unwrap_or_default();
        Served::with(&StateResponse {
            id: if request.exec_id.is_empty() { &request.id } else { &request.exec_id }.clone(),
            bundle: task.bundle.to_string_lossy().into_owned(),
            pid: process.pid,
            status: status.into(),
            stdin: process.stdio.stdin.clone(),
            stdout: process.stdio.stdout.clone(),
            stderr: process.stdio.stderr.clone(),
            terminal: process.stdio.terminal,
            exit_status: exit.status,
            exited_at: exit.at,
            exec_id: request.exec_id.clone(),
        })
    }

    pub(super) fn wait(&mut self, call: Call, request: ProcessRequest) -> Result<Served, Failure> {
        let process = self.process_mut(&request.id, &request.exec_id)?;
        match process.exit() {
            Some(exit) => Served::with(&WaitResponse { exit_status: exit.status, exited_at: exit.at }),
            None => {
                process.waiters.push(call);
                Ok(Served::Later)
            }
        }
    }

    pub(super) fn kill(&mut self, request: &KillRequest) -> Result<Served, Failure> {
        let finished = || Failure::new(Code::NotFound, "process already finished");
        let process = self.process(&request.id, &request.exec_id)?;
        if process.exit().is_some() || process.held.is_some() {
            return Err(finished());
        }
        let number = i32::try_from(request.signal).unwrap_or(-1);
        let signal = Signal::new(number);
        if signal.is_none() && number != 0 {
            return Err(Failure::new(Code::InvalidArgument, format!("unknown signal {}", request.signal)));
        }
        if !request.exec_id.is_empty() {
            signal_exec(process, signal)?;
            return Served::empty();
        }
        let store = self.task(&request.id)?.store();
        let whom = if request.all { KillScope::All } else { KillScope::First };
        let sent = match signal {
            Some(signal) => husk_runtime::kill(&store, &request.id, signal, whom),
            None => husk_runtime::check(&store, &request.id),
        };
        sent.map_err(|error| Failure::of_kill(&error))?;
        Served::empty()
    }

    pub(super) fn resize(&self, request: &ResizePtyRequest) -> Result<Served, Failure> {
        let side = |cells: u32| u16::try_from(cells).unwrap_or(u16::MAX);
        let size =
            Winsize { ws_col: side(request.width), ws_row: side(request.height), ws_xpixel: 0, ws_ypixel: 0 };
        if let Some(terminal) = &self.process(&request.id, &request.exec_id)?.kept.terminal {
            tcsetwinsize(terminal, size)
                .map_err(|errno| Failure::new(Code::Unknown, format!("resize the terminal: {errno}")))?;
        }
        Served::empty()
    }

    pub(super) fn close_input(&mut self, request: ProcessRequest) -> Result<Served, Failure> {
        self.process_mut(&request.id, &request.exec_id)?.kept.stdin = None;
        Served::empty()
    }

    pub(super) fn tell_waiters(&mut self, waiters: Vec<Call>, exit: Exit) {
        for call in waiters {
            self.answer(call, Served::with(&WaitResponse { exit_status: exit.status, exited_at: exit.at }));
        }
    }
}

/// Signals an exec. Its pid cannot be another process's, because only the shim reaps it.
fn signal_exec(process: &Process, signal: Option<Signal>) -> Result<(), Failure> {
    if process.pid == 0 {
        return Err(wrong_state("process not created"));
    }
    let failed = |error: husk_spawn::Error| Failure::new(Code::Unknown, format!("exec kill error: {error}"));
    let process = Adopted::new(process.pid.cast_signed()).map_err(failed)?;
    signal.map_or(Ok(()), |signal| process.signal(signal)).map_err(failed)
}

pub(super) fn work_directory(option: &str, bundle: &std::path::Path) -> PathBuf {
    if option.is_empty() { bundle.join("work") } else { PathBuf::from(option) }
}
