//! The messages of containerd's protocols, as protocol buffers.
//!
//! Field numbers are containerd's: api/runtime/task/v3/shim.proto (v2 has the same messages), api/events/task.proto,
//! api/types and api/services/ttrpc/events. Fields that the shim does not use are left out; decoding skips them.

pub(crate) mod events;
pub(crate) mod options;
pub(crate) mod task;
pub(crate) mod ttrpc;

use prost::Message;
use std::time::{SystemTime, UNIX_EPOCH};

/// `google.protobuf.Any`: a message and the name of its type.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Any {
    #[prost(string, tag = "1")]
    pub(crate) type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

impl Any {
    pub(crate) fn new(type_url: &str, message: &impl Message) -> Self {
        Self { type_url: type_url.to_owned(), value: message.encode_to_vec() }
    }
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Timestamp {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

impl Timestamp {
    pub(crate) fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (seconds, nanos) = (i64::try_from(since.as_secs()), i32::try_from(since.subsec_nanos()));
        Self { seconds: seconds.unwrap_or_default(), nanos: nanos.unwrap_or_default() }
    }
}

/// `containerd.types.Mount`.
#[derive(Clone, PartialEq, Eq, Message, serde::Serialize, serde::Deserialize)]
pub(crate) struct Mount {
    #[prost(string, tag = "1")]
    pub(crate) r#type: String,
    #[prost(string, tag = "2")]
    pub(crate) source: String,
    /// The mount point below the root file system; empty for the root file system itself.
    #[prost(string, tag = "3")]
    pub(crate) target: String,
    #[prost(string, repeated, tag = "4")]
    pub(crate) options: Vec<String>,
}

/// `google.protobuf.Empty`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Empty {}
