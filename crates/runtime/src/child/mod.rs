//! The container's process: launching it from a plan, serving its requests, and supervising it.

pub(crate) mod hooks;
pub(crate) mod inherited;
pub(crate) mod launch;
mod net_devices;
mod netlink;
pub(crate) mod serve;
pub(crate) mod supervise;
pub(crate) mod terminal;
pub(crate) mod timings;
pub(crate) mod trees;
