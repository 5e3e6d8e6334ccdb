//! The commands that containerd executes: `start`, `delete` and `-info`.

pub(crate) mod delete;
pub(crate) mod info;
pub(crate) mod options;
mod socket;
pub(crate) mod start;
