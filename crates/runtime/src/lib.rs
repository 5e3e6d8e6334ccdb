//! The life cycle of containers.
//!
//! Each verb has its own file. They share the [`Store`] with a directory for each container, the [`Record`] in that
//! directory, and the probe of the host. Nothing here prints. A [`Warning`] for the user is returned beside the result,
//! and progress goes to `log`. Messages that runc has too are worded as runc's, because its callers know them.

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
pub use child::trees::user_namespace;
pub use criu::{CgroupMode, Settings, Switch};
pub use error::{Error, NoRecord, UntrustedReason};
pub use host::seal::{Environment, Sealed, arguments, is_exposed, prepare_process, seal, sealed_program};
pub use host::subids::RootlessMaps;
pub use host::users::{ImageUser, image_user};
pub use husk_bundle::{LAYERS, Notice, Warning, nearest};
pub use husk_cgroup::stats::{Amount, BlkioEntry};
pub use husk_cgroup::{OomEvent, OomWatch, Resources, Stats};
pub use husk_listing::Cause;
pub use husk_plan::hooks::OCI_VERSION;
pub use husk_plan::{Keyring, NewRoot, Origin, Part};
pub use husk_script::sys::tolerate;
pub use husk_spawn::{Signal, inherited};
pub use inspect::events::{Event, cgroup_paths, events, stats, watch_memory};
pub use inspect::features::features;
pub use inspect::plan::{Planned, PlannedStep, plan};
pub use inspect::ps;
pub use inspect::state::{Listed, State, Status, list, state};
pub use inspect::validate::{Problem, Severity, validate};
pub use inspect::wait::wait;
pub use store::Store;
pub use store::atomic::{write_atomically, write_atomically_in};
pub use store::record::{Record, RecordedHook, now};
pub use verbs::create::{CreateRequest, create};
pub use verbs::delete::{delete, force_delete};
pub use verbs::kill::{KillScope, check, kill, signal};
pub use verbs::pause::{pause, resume};
pub use verbs::run::{AfterExit, Executed, Foreground, RunMode, run};
pub use verbs::start::start;
pub use verbs::update::{UpdateRequest, resources, update};
pub use verbs::{checkpoint, exec, restore};
