//! Names, makes, enters, limits and removes a container's cgroup and its resctrl group.
//!
//! The record names the cgroup before it is made. So `delete` knows what to remove even if the creating process was
//! killed. Processes in it are killed only once the record names a process: until then, the cgroup may belong to
//! another container.

mod freeze;
mod home;
mod recorded;
pub(crate) mod resctrl;

pub(crate) use freeze::TemporaryFreeze;
pub use home::CgroupManager;
pub(crate) use home::{ChildCgroup, NewCgroup, company, of_process};
pub(crate) use recorded::{
    below, find, is_frozen, kill_all, kill_rest, leave, let_die, no_cgroup, of, paths, remove, update,
};
