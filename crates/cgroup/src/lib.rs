//! Cgroups: made, limited, watched and removed, in version 2, version 1 and through systemd.
//!
//! ```no_run
//! use husk_cgroup::{Layout, Resources};
//! use std::time::Duration;
//!
//! let layout = Layout::detect()?;
//! // Plain data, for the record that is written before the cgroup exists.
//! let place = layout.place(Some("/engine/container"), "container")?;
//! let resources = Resources { pids_limit: Some(100), ..Resources::default() };
//! let cgroup = layout.create(&place, &resources)?;
//! let warnings = cgroup.apply_early(&resources)?;
//! // Here a process is born in `cgroup.directory()`, or joins: cgroup.join(pid)?
//! cgroup.apply_late(&resources)?;
//! cgroup.kill()?;
//! layout.remove(&place, Duration::from_secs(10))?;
//! # drop(warnings);
//! # Ok::<(), husk_cgroup::Error>(())
//! ```
//!
//! [`Resources`] is what is asked for, in the words of the OCI specification. `settings/v2.rs` and
//! `settings/v1.rs` make of it a flat list of what to write where; `settings/mod.rs` writes it. Below a
//! directory's descriptor everything is found by relative names.
//!
//! What is absent: nothing here knows what a container is, nothing prints, and no process is started.
//! What is left out because it has no meaning here is a [`Warning`], returned.

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
pub use error::{Error, Field, Hint, Warning};
pub use files::oom::OomWatch;
pub use layout::{Cgroup, Layout};
pub use paths::{CgroupPaths, clean};
pub use resources::Resources;
pub use stats::Stats;
