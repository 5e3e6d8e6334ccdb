//! ttrpc: containerd's protocol between shims and the daemon, over Unix sockets.
//!
//! Each message is a header of ten bytes and a protocol buffer (ttrpc's PROTOCOL.md). Only unary calls are used, so a
//! call is one request and one response with the same stream number.

pub(crate) mod channel;
pub(crate) mod publisher;

/// Identifies the request that an answer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// The client's connection. Numbers are not reused, so an answer cannot reach another client.
    pub(crate) client: u32,
    pub(crate) stream: u32,
}
