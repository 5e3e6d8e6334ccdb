//! Kernel types that steps and commands are made of.
//!
//! This module exports types but no functions. A function that makes a system call on a descriptor number is
//! sound only in a child, which has its own descriptor table. In a parent the number may belong to an
//! `OwnedFd` elsewhere. Use a [`Step`](crate::Step) for the child's calls, and rustix or std for the
//! parent's.
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

/// File system nodes, for [`Step::Mknod`](crate::Step::Mknod).
pub mod at {
    pub use husk_script::sys::at::{Mode, Node};
}

/// Flags and modes for opening and creating files.
pub mod file {
    pub use husk_script::sys::file::{Mode, OFlags};
}

/// Resource limits and scheduling.
pub mod limits {
    pub use husk_script::sys::limits::{Resource, Rlimit, SchedAttr};
}

/// Flags of mounts.
pub mod mount {
    pub use husk_script::sys::mount::{
        AttributeChange, Extent, MountAttributes, MountFlags, MountPropagationFlags,
    };
}

/// Kinds of namespaces.
pub mod namespace {
    pub use husk_script::sys::namespace::Namespaces;
}

/// Capabilities, seccomp instructions and resource usage.
pub mod process {
    pub use husk_script::sys::process::{Capabilities, KeepCaps, SockFilter, Usage};
}

/// Signals, sets of signals, and received signals.
pub mod signal {
    pub use husk_script::sys::signal::{Arrived, Signal, SignalSet};
}
