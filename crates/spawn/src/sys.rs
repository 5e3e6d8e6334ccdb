//! The kernel's types that steps and commands are made of.
//!
//! There are types here and no functions. A function that makes a system call on a descriptor's number is sound in a
//! child, whose table is its own; in a parent the number may belong to somebody's `OwnedFd`. Say what the child does
//! with a [`Step`](crate::Step), and make a parent's calls with rustix or std.
//!
//! ```
//! use husk_spawn::sys::Fd;
//! use husk_spawn::{Command, Step};
//!
//! # fn main() -> Result<(), husk_spawn::Error> {
//! let closed = Step::CloseRange { first: Fd::FIRST_EXTRA, last: Fd::MAX };
//! assert!(Command::new("true").step(closed).status()?.success());
//! # Ok(())
//! # }
//! ```
//!
//! ```compile_fail,E0432
//! use husk_spawn::sys::file::close;
//! ```
//!
//! ```compile_fail,E0432
//! use husk_spawn::sys::clone::fork;
//! ```

pub use husk_script::sys::{CArray, CPtr, Errno, Fd, Gid, Pid, Uid};

/// Nodes of a file system, for [`Step::Mknod`](crate::Step::Mknod).
pub mod at {
    pub use husk_script::sys::at::{Mode, Node};
}

/// How files are opened and made.
pub mod file {
    pub use husk_script::sys::file::{Mode, OFlags};
}

/// What a process may use, and how it is scheduled.
pub mod limits {
    pub use husk_script::sys::limits::{Resource, Rlimit, SchedAttr};
}

/// Mounts.
pub mod mount {
    pub use husk_script::sys::mount::{Extent, MountFlags, MountPropagationFlags};
}

/// Namespaces.
pub mod namespace {
    pub use husk_script::sys::namespace::Namespaces;
}

/// What a process is and what it used.
pub mod process {
    pub use husk_script::sys::process::{Capabilities, Instruction, KeepCaps, Usage};
}

/// Signals.
pub mod signal {
    pub use husk_script::sys::signal::{Arrived, Signal, SignalSet};
}
