//! Plans the program: its identity, privileges, resources and start.

pub(crate) mod exec;
pub(crate) mod identity;
pub(crate) mod keyring;
pub(crate) mod lsm;
pub(crate) mod process;
pub(crate) mod seccomp;
pub(crate) mod terminal;
