//! The machine: what it is, what it has, and what of it a container must not reach.

pub(crate) mod files;
pub(crate) mod namespaces;
pub(crate) mod nodes;
pub(crate) mod null;
pub(crate) mod probe;
pub(crate) mod seal;
pub(crate) mod users;
