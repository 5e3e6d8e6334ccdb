//! The program: who it is, what it may do, what it has, and how it begins.

pub(crate) mod exec;
pub(crate) mod identity;
pub(crate) mod keyring;
pub(crate) mod lsm;
pub(crate) mod process;
pub(crate) mod seccomp;
pub(crate) mod terminal;
