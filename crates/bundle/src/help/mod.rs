//! Help for authors of a configuration: all its problems, what to write instead, and which names are valid.

mod hint;
pub mod known;
pub(crate) mod near;
pub(crate) mod problems;
