//! Starts processes.

mod child;
mod clone;
mod command;
mod dumpable;
mod environ;
mod environment;
mod error;
mod fds;
mod idmap;
mod join;
mod launch;
mod list;
mod output;
mod pool;
mod program;
mod stack;
mod stdio;
mod writer;

pub use child::{Child, Output};
pub use command::Command;
pub use error::{Error, Reason};
pub use husk_script::sys;
pub use husk_script::sys::limits::{Resource, SchedAttr};
pub use husk_script::sys::namespace::Namespaces;
pub use husk_script::sys::signal::{Signal, SignalSet};
pub use husk_script::{Handle, Reg, Step};
pub use idmap::IdMap;
pub use stdio::Stdio;
pub use writer::Writer;
