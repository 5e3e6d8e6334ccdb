//! The memory that a child uses until it execs: its stack, list, journal, and what it keeps of this
//! process's.

pub(crate) mod dumpable;
pub(crate) mod forget;
pub(crate) mod kept;
pub(crate) mod page;
pub(crate) mod pool;
pub(crate) mod program;
pub(crate) mod snapshot;
pub(crate) mod stack;
pub(crate) mod writer;
