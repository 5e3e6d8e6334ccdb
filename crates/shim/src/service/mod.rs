//! The task service: containerd's calls, one file for each group of them.
//!
//! A call that needs a verb of the runtime is answered when the verb's process has ended, in [`jobs`].

mod create;
mod exits;
pub(crate) mod jobs;
mod process;
mod resources;
pub(crate) mod task;

use crate::daemon::Daemon;
use crate::failure::{Code, Failure};
use crate::rpc::Call;
use crate::service::task::{Process, Task};
use crate::wire::Empty;
use crate::wire::ttrpc::Request;
use prost::Message;

/// The outcome of a call.
pub(crate) enum Served {
    /// The encoded answer.
    Now(Vec<u8>),
    /// It is answered later.
    Later,
}

impl Served {
    fn with(message: &impl Message) -> Result<Self, Failure> {
        Ok(Self::Now(message.encode_to_vec()))
    }

    fn empty() -> Result<Self, Failure> {
        Self::with(&Empty {})
    }
}

impl Daemon {
    /// Serves a call of one of the two versions of the task service, which have the same messages.
    pub(crate) fn serve_call(&mut self, call: Call, request: &Request) -> Result<Served, Failure> {
        const SERVICES: [&str; 2] = ["containerd.task.v2.Task", "containerd.task.v3.Task"];
        let payload = &*request.payload;
        let unimplemented =
            || Failure::new(Code::Unimplemented, format!("{}/{}", request.service, request.method));
        if !SERVICES.contains(&&*request.service) {
            return Err(unimplemented());
        }
        match &*request.method {
            "Create" => self.create(call, decoded(payload)?),
            "Start" => self.start(call, decoded(payload)?),
            "Delete" => self.delete(call, decoded(payload)?),
            "Exec" => self.exec(decoded(payload)?),
            "State" => self.state(&decoded(payload)?),
            "Wait" => self.wait(call, decoded(payload)?),
            "Kill" => self.kill(&decoded(payload)?),
            "Pids" => self.pids(&decoded(payload)?),
            "ResizePty" => self.resize(&decoded(payload)?),
            "CloseIO" => self.close_input(decoded(payload)?),
            "Pause" => self.pause(call, decoded(payload)?),
            "Resume" => self.resume(call, decoded(payload)?),
            "Checkpoint" => self.checkpoint(call, decoded(payload)?),
            "Update" => self.update(call, decoded(payload)?),
            "Stats" => self.stats(&decoded(payload)?),
            "Connect" => self.connect(&decoded(payload)?),
            "Shutdown" => self.shutdown(),
            _ => Err(unimplemented()),
        }
    }

    pub(super) fn task(&self, id: &str) -> Result<&Task, Failure> {
        self.tasks.get(id).ok_or_else(no_task)
    }

    pub(super) fn task_mut(&mut self, id: &str) -> Result<&mut Task, Failure> {
        self.tasks.get_mut(id).ok_or_else(no_task)
    }

    pub(super) fn process(&self, id: &str, exec: &str) -> Result<&Process, Failure> {
        self.task(id)?.process(exec).ok_or_else(|| no_process(exec))
    }

    pub(super) fn process_mut(&mut self, id: &str, exec: &str) -> Result<&mut Process, Failure> {
        self.task_mut(id)?.process_mut(exec).ok_or_else(|| no_process(exec))
    }
}

fn decoded<M: Message + Default>(payload: &[u8]) -> Result<M, Failure> {
    M::decode(payload).map_err(|error| Failure::new(Code::InvalidArgument, error.to_string()))
}

fn no_task() -> Failure {
    Failure::new(Code::NotFound, "container not created")
}

fn no_process(exec: &str) -> Failure {
    Failure::new(Code::NotFound, format!("process does not exist {exec}"))
}

fn wrong_state(message: impl Into<String>) -> Failure {
    Failure::new(Code::FailedPrecondition, message)
}
