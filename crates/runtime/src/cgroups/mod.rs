//! A container's cgroup: named before it exists, made, entered, limited and removed. Its resctrl group is here too.
//!
//! It is named in the record before it is made, so that whoever deletes the container knows what to
//! remove however its maker ended. What is in one is killed only if it is known to have been the
//! container's: until a process is recorded it may have been somebody else's all the time.

mod home;
mod recorded;
pub(crate) mod resctrl;

pub use home::CgroupManager;
pub(crate) use home::{ChildCgroup, NewCgroup, company, of_process};
pub(crate) use recorded::{below, find, is_frozen, kill_all, kill_rest, leave, let_die, of, remove, update};
