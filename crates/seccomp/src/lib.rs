//! draft
#![forbid(unsafe_code)]

mod arch;
mod emit;
mod error;
pub mod interpret;
mod print;
mod profile;
mod program;
mod syscalls;
mod table;

pub use arch::{Abi, Arch, Machine, Width};
pub use error::{Error, Warning};
pub use profile::{Action, Argument, BadAction, Comparison, Condition, Flags, Profile, Rule};
pub use program::{Instruction, MAX_INSTRUCTIONS, Program, code};
pub use table::{Decision, Presence, Range, Section, Table, Test, Then};
