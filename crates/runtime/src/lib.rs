//! The life of a container.
//!
//! One file for each verb, and the things they share: the [`Store`] in which a container's directory
//! is, the [`Record`] in it, and the probe of the machine. Nothing here prints; what the
//! user should hear beside a result is a [`Warning`] returned with it, and what is done is told to whoever
//! listens to `log`. Where runc says the same its phrases are used, which its callers know.

#![forbid(unsafe_code)]

mod cgroups;
mod child;
mod criu;
pub mod doctor;
mod error;
mod host;
mod inspect;
mod interrupt;
pub mod register;
mod sockets;
mod store;
mod verbs;

pub use cgroups::CgroupManager;
pub use child::supervise::Orphans;
pub use child::timings::{Lane, Span, Timings};
pub use criu::{CgroupMode, Settings, Switch};
pub use error::{Distrust, Error, NoRecord};
pub use host::seal::{Environment, Sealed, is_exposed, seal, settle};
pub use husk_bundle::{Notice, Warning};
pub use husk_cgroup::Resources;
pub use husk_plan::hooks::OCI_VERSION;
pub use husk_plan::{Keyring, NewRoot};
pub use husk_script::sys::tolerate;
pub use husk_spawn::Signal;
pub use inspect::events::{Event, events, stats};
pub use inspect::features::features;
pub use inspect::plan::{Planned, PlannedStep, plan};
pub use inspect::ps;
pub use inspect::state::{Listed, State, Status, list, state};
pub use inspect::validate::{Finding, Severity, validate};
pub use inspect::wait::wait;
pub use store::Store;
pub use store::record::{Record, RecordedHook, now};
pub use store::whole::{write_whole, write_whole_in};
pub use verbs::create::{CreateRequest, create};
pub use verbs::delete::{delete, force_delete};
pub use verbs::kill::{Whom, check, kill, signal};
pub use verbs::pause::{pause, resume};
pub use verbs::run::{Afterwards, Foreground, Run, run};
pub use verbs::start::start;
pub use verbs::update::{Update, resources, update};
pub use verbs::{checkpoint, exec, restore};
