//! The messages of ttrpc itself (ttrpc's request.proto), and `google.rpc.Status`.

use prost::Message;

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Request {
    /// The full name of the service, such as `containerd.task.v2.Task`.
    #[prost(string, tag = "1")]
    pub(crate) service: String,
    #[prost(string, tag = "2")]
    pub(crate) method: String,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) payload: Vec<u8>,
    #[prost(int64, tag = "4")]
    pub(crate) timeout_nano: i64,
    #[prost(message, repeated, tag = "5")]
    pub(crate) metadata: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Response {
    /// `None` for success.
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<Status>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) payload: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Status {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
}
