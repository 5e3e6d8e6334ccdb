//! The events that the shim publishes, and the request that carries them to containerd.

use crate::wire::{Any, Mount, Timestamp};
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TaskCreate {
    #[prost(string, tag = "1")]
    pub(crate) container_id: String,
    #[prost(string, tag = "2")]
    pub(crate) bundle: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) rootfs: Vec<Mount>,
    #[prost(message, optional, tag = "4")]
    pub(crate) io: Option<TaskIo>,
    #[prost(string, tag = "5")]
    pub(crate) checkpoint: String,
    #[prost(uint32, tag = "6")]
    pub(crate) pid: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TaskStart {
    #[prost(string, tag = "1")]
    pub(crate) container_id: String,
    #[prost(uint32, tag = "2")]
    pub(crate) pid: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TaskDelete {
    #[prost(string, tag = "1")]
    pub(crate) container_id: String,
    #[prost(uint32, tag = "2")]
    pub(crate) pid: u32,
    #[prost(uint32, tag = "3")]
    pub(crate) exit_status: u32,
    #[prost(message, optional, tag = "4")]
    pub(crate) exited_at: Option<Timestamp>,
    #[prost(string, tag = "5")]
    pub(crate) id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TaskIo {
    #[prost(string, tag = "1")]
    pub(crate) stdin: String,
    #[prost(string, tag = "2")]
    pub(crate) stdout: String,
    #[prost(string, tag = "3")]
    pub(crate) stderr: String,
    #[prost(bool, tag = "4")]
    pub(crate) terminal: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TaskExit {
    #[prost(string, tag = "1")]
    pub(crate) container_id: String,
    #[prost(string, tag = "2")]
    pub(crate) id: String,
    #[prost(uint32, tag = "3")]
    pub(crate) pid: u32,
    #[prost(uint32, tag = "4")]
    pub(crate) exit_status: u32,
    #[prost(message, optional, tag = "5")]
    pub(crate) exited_at: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TaskOom {
    #[prost(string, tag = "1")]
    pub(crate) container_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TaskExecAdded {
    #[prost(string, tag = "1")]
    pub(crate) container_id: String,
    #[prost(string, tag = "2")]
    pub(crate) exec_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TaskExecStarted {
    #[prost(string, tag = "1")]
    pub(crate) container_id: String,
    #[prost(string, tag = "2")]
    pub(crate) exec_id: String,
    #[prost(uint32, tag = "3")]
    pub(crate) pid: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TaskPaused {
    #[prost(string, tag = "1")]
    pub(crate) container_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TaskResumed {
    #[prost(string, tag = "1")]
    pub(crate) container_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TaskCheckpointed {
    #[prost(string, tag = "1")]
    pub(crate) container_id: String,
    #[prost(string, tag = "2")]
    pub(crate) checkpoint: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Envelope {
    #[prost(message, optional, tag = "1")]
    pub(crate) timestamp: Option<Timestamp>,
    #[prost(string, tag = "2")]
    pub(crate) namespace: String,
    #[prost(string, tag = "3")]
    pub(crate) topic: String,
    #[prost(message, optional, tag = "4")]
    pub(crate) event: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ForwardRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) envelope: Option<Envelope>,
}
