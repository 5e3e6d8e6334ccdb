//! Which devices a cgroup's processes may open and make.
//!
//! `rules.rs` has what rules mean, `program.rs` makes an eBPF program of them for version 2, `list.rs`
//! lines for version 1, `filter.rs` hands a program to the kernel.

mod filter;
pub mod interpret;
mod list;
mod program;
mod rules;

pub(crate) use filter::{attach, replace};
pub(crate) use list::{flatten, lines};
pub use program::{Program, compile};
pub use rules::{DeviceAccess, DevicePermissions, Rule, Type, allows, built_in};
