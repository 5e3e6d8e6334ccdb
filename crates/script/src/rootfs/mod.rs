//! Finds, creates, covers and copies paths below a container's root file system. An image or a volume may change in
//! the meantime, so no code here trusts a path twice.

pub(crate) mod copy;
pub(crate) mod cover;
mod missing;
pub(crate) mod target;
pub(crate) mod tree;
