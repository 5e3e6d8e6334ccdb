//! The messages of the task service, versions 2 and 3.

use crate::wire::{Any, Mount, Timestamp};
use prost::{Enumeration, Message};

/// `containerd.v1.types.Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(crate) enum Status {
    Unknown = 0,
    Created = 1,
    Running = 2,
    Stopped = 3,
    Paused = 4,
    Pausing = 5,
}

/// Names a process: the request of every method that needs no more. Methods for a whole container leave `exec_id` empty.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProcessRequest {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    /// Empty for the container's first process.
    #[prost(string, tag = "2")]
    pub(crate) exec_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CreateRequest {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) bundle: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) rootfs: Vec<Mount>,
    #[prost(bool, tag = "4")]
    pub(crate) terminal: bool,
    #[prost(string, tag = "5")]
    pub(crate) stdin: String,
    #[prost(string, tag = "6")]
    pub(crate) stdout: String,
    #[prost(string, tag = "7")]
    pub(crate) stderr: String,
    #[prost(string, tag = "8")]
    pub(crate) checkpoint: String,
    #[prost(string, tag = "9")]
    pub(crate) parent_checkpoint: String,
    #[prost(message, optional, tag = "10")]
    pub(crate) options: Option<Any>,
}

/// The answer to `Create` and `Start`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PidResponse {
    #[prost(uint32, tag = "1")]
    pub(crate) pid: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeleteResponse {
    #[prost(uint32, tag = "1")]
    pub(crate) pid: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) exit_status: u32,
    #[prost(message, optional, tag = "3")]
    pub(crate) exited_at: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExecRequest {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) exec_id: String,
    #[prost(bool, tag = "3")]
    pub(crate) terminal: bool,
    #[prost(string, tag = "4")]
    pub(crate) stdin: String,
    #[prost(string, tag = "5")]
    pub(crate) stdout: String,
    #[prost(string, tag = "6")]
    pub(crate) stderr: String,
    #[prost(message, optional, tag = "7")]
    pub(crate) spec: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResizePtyRequest {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) exec_id: String,
    #[prost(uint32, tag = "3")]
    pub(crate) width: u32,
    #[prost(uint32, tag = "4")]
    pub(crate) height: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StateResponse {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) bundle: String,
    #[prost(uint32, tag = "3")]
    pub(crate) pid: u32,
    #[prost(enumeration = "Status", tag = "4")]
    pub(crate) status: i32,
    #[prost(string, tag = "5")]
    pub(crate) stdin: String,
    #[prost(string, tag = "6")]
    pub(crate) stdout: String,
    #[prost(string, tag = "7")]
    pub(crate) stderr: String,
    #[prost(bool, tag = "8")]
    pub(crate) terminal: bool,
    #[prost(uint32, tag = "9")]
    pub(crate) exit_status: u32,
    #[prost(message, optional, tag = "10")]
    pub(crate) exited_at: Option<Timestamp>,
    #[prost(string, tag = "11")]
    pub(crate) exec_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KillRequest {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) exec_id: String,
    #[prost(uint32, tag = "3")]
    pub(crate) signal: u32,
    #[prost(bool, tag = "4")]
    pub(crate) all: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PidsResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) processes: Vec<ProcessInfo>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CheckpointRequest {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) path: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) options: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct UpdateRequest {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) resources: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WaitResponse {
    #[prost(uint32, tag = "1")]
    pub(crate) exit_status: u32,
    #[prost(message, optional, tag = "2")]
    pub(crate) exited_at: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatsResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) stats: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ConnectResponse {
    #[prost(uint32, tag = "1")]
    pub(crate) shim_pid: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) task_pid: u32,
    #[prost(string, tag = "3")]
    pub(crate) version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProcessInfo {
    #[prost(uint32, tag = "1")]
    pub(crate) pid: u32,
    #[prost(message, optional, tag = "2")]
    pub(crate) info: Option<Any>,
}
