//! Creates, limits, watches and removes cgroups: version 2, version 1, and through systemd.
//!
//! ```no_run
//! use husk_cgroup::{Layout, Resources};
//! use std::time::Duration;
//!
//! let layout = Layout::detect()?;
//! // The paths are plain data: record them before the cgroup exists.
//! let place = layout.place(Some("/engine/container"), "container")?;
//! let resources = Resources { pids_limit: Some(100), ..Resources::default() };
//! let cgroup = layout.create(&place, &resources)?;
//! let warnings = cgroup.apply_early(&resources)?;
//! // Here a process is spawned into `cgroup.directory()`, or joins: cgroup.join(pid)?
//! cgroup.apply_late(&resources)?;
//! cgroup.kill()?;
//! layout.remove(&place, Duration::from_secs(10))?;
//! # drop(warnings);
//! # Ok::<(), husk_cgroup::Error>(())
//! ```
//!
//! [`Resources`] holds the limits under the names of the OCI specification. `settings/v2.rs` and
//! `settings/v1.rs` turn it into a flat list of files and values, which `settings/mod.rs` writes. All files are
//! opened by names relative to a directory's descriptor.
//!
//! This crate knows nothing about containers, prints nothing and starts no process. For each setting that has
//! no effect here, it returns a [`LimitWarning`]. Every function fails if a file that it needs cannot be read or
//! written; `# Errors` names the other reasons.

#![forbid(unsafe_code)]

mod controller;
pub mod devices;
mod error;
mod files;
#[cfg(fuzzing)]
pub mod fuzzing;
mod layout;
mod paths;
pub mod resources;
mod settings;
pub mod stats;
pub mod systemd;
pub mod v1;
pub mod v2;

pub use controller::{Controller, Controllers};
pub use error::{Error, Field, Hint, LimitWarning};
pub use files::oom::{OomEvent, OomWatch};
pub use layout::{Cgroup, Layout};
pub use paths::{CgroupPaths, clean};
pub use resources::Resources;
pub use stats::Stats;
