//! config.json of an OCI bundle: read, checked, resolved.
//!
//! Bytes become a [`Container`]: what was asked, with every default filled in and every name looked
//! up. This is the only crate that sees oci-spec and caps. It reads one file and looks at nothing
//! else: whether the machine can do what was asked is for the planner to find.
//!
//! Every error names a field of the file. What is carried out otherwise than written is a
//! [`Warning`], returned beside the container.

#![forbid(unsafe_code)]

mod config;
pub mod container;
mod crun;
mod error;
mod fields;
mod help;
mod json;

pub use config::{load, parse};
pub use container::Container;
pub use crun::{ANNOTATIONS as CRUN_ANNOTATIONS, PREFIX as CRUN_PREFIX};
pub use error::{Error, Field, Kind, Notice, Warning};
pub use fields::mounts::bind_mount;
pub use fields::{exec, resources};
pub use help::known;
pub use help::problems::{Problems, problems, problems_in};
