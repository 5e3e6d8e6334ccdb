//! Reads config.json of an OCI bundle, checks it and resolves it.
//!
//! The result is a [`Container`]: the configuration with every default filled in and every name looked up. This is
//! the only crate that uses oci-spec and caps. It reads one file and nothing else. Whether the machine supports
//! the container is for the planner to find out.
//!
//! Every error names a field of the file. A [`Warning`], returned beside the container, reports a field that is
//! not carried out as written.

#![forbid(unsafe_code)]

mod config;
pub mod container;
mod crun;
mod error;
mod fields;
mod help;
mod json;

pub use config::{LAYERS, load, load_for_exec, parse, parse_for_exec};
pub use container::Container;
pub use crun::{ANNOTATIONS as CRUN_ANNOTATIONS, PREFIX as CRUN_PREFIX};
pub use error::{Error, ErrorKind, Field, Notice, UnknownName, Warning};
pub use fields::mounts::bind_mount;
pub use fields::{exec, resources};
pub use help::known;
pub use help::near::nearest;
pub use help::problems::{Problems, problems, problems_in};
