//! Examines the host, and protects what a container must not reach: husk's binary and the null device.

pub(crate) mod files;
pub(crate) mod namespaces;
pub(crate) mod nodes;
pub(crate) mod null;
pub(crate) mod probe;
pub(crate) mod seal;
pub(crate) mod subids;
pub(crate) mod users;
