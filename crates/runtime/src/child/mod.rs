//! A child: from a plan to the process that performs it, what it asks for on its way, and who waits for it.

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
