//! The life of a container.
//!
//! One file for each verb, and the things they share: the [`Store`] in which a container's directory
//! is, the [`Record`] in it, and the probe of the machine. Nothing here prints; what the
//! user should hear beside a result is a [`Warning`] returned with it, and what is done is told to whoever
//! listens to `log`. Where runc says the same its phrases are used, which its callers know.

#![forbid(unsafe_code)]

mod cgroups;
pub mod checkpoint;
mod create;
mod criu;
mod delete;
mod descriptors;
mod dismiss;
pub mod doctor;
mod elsewhere;
mod error;
mod events;
pub mod exec;
mod features;
mod hooks;
mod interrupt;
mod kill;
mod launch;
mod limits;
mod listener;
mod namespaces;
mod net_devices;
mod netlink;
mod nodes;
mod notify;
mod null;
mod pause;
mod pidfd;
mod plan;
mod probe;
mod process;
mod procfs;
pub mod ps;
mod record;
pub mod register;
mod regular;
mod resctrl;
pub mod restore;
mod run;
mod seal;
mod serve;
mod settle;
mod start;
mod status;
mod store;
mod streams;
mod supervise;
mod terminal;
mod time;
mod timings;
mod trees;
mod trust;
mod update;
mod users;
mod validate;
mod wait;
mod whole;

pub use cgroups::CgroupManager;
pub use checkpoint::checkpoint;
pub use create::{Request, create};
pub use criu::{CgroupMode, Settings, Switch};
pub use delete::{delete, force_delete};
pub use error::{Distrust, Error, NoRecord};
pub use events::{Event, events, stats};
pub use exec::exec;
pub use features::features;
pub use husk_bundle::{Notice, Warning};
pub use husk_cgroup::Resources;
pub use husk_plan::hooks::OCI_VERSION;
pub use husk_plan::{Keyring, NewRoot};
pub use husk_spawn::Signal;
pub use kill::{Whom, check, kill, signal};
pub use pause::{pause, resume};
pub use plan::{Planned, PlannedStep, plan};
pub use record::{Hook, Record};
pub use restore::restore;
pub use run::{Afterwards, Foreground, Run, run};
pub use seal::{Environment, Sealed, is_exposed, seal};
pub use settle::settle;
pub use start::start;
pub use status::{Listed, State, Status, list, state};
pub use store::Store;
pub use supervise::Orphans;
pub use time::now;
pub use timings::{Lane, Span, Timings};
pub use update::{Update, resources, update};
pub use validate::{Finding, Severity, validate};
pub use wait::wait;
pub use whole::{write_whole, write_whole_in};
