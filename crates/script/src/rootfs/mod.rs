//! Paths below a container's root file system: finding them, making what is missing, and covering or copying what is
//! there. An image or a volume may change while this happens, so nothing here trusts a path twice.

pub(crate) mod copy;
pub(crate) mod cover;
mod missing;
pub(crate) mod target;
pub(crate) mod tree;
