//! Resolves the fields of config.json, with one file for each part of it.

pub mod exec;
pub(crate) mod hooks;
pub(crate) mod linux;
pub(crate) mod memory;
pub(crate) mod mounts;
pub(crate) mod options;
pub(crate) mod process;
pub mod resources;
pub(crate) mod seccomp;
pub(crate) mod unread;
pub(crate) mod values;
pub(crate) mod version;
