//! The memory that a child uses until it execs: its stack, its list, its journal, and what of this process it keeps.

pub(crate) mod dumpable;
pub(crate) mod forget;
pub(crate) mod kept;
pub(crate) mod page;
pub(crate) mod pool;
pub(crate) mod snapshot;
pub(crate) mod stack;
pub(crate) mod writer;
