//! Controls which devices a cgroup's processes may open and create.
//!
//! `rules.rs` defines the rules. `program.rs` compiles them to an eBPF program for version 2, which `filter.rs`
//! loads. `list.rs` translates them to lines for version 1.

mod filter;
pub mod interpret;
mod list;
mod program;
mod rules;

pub(crate) use filter::{attach, replace};
pub(crate) use list::{flatten, lines};
pub use program::{DeviceProgram, compile};
pub use rules::{DeviceAccess, DevicePermissions, Rule, Type, allows, built_in};
