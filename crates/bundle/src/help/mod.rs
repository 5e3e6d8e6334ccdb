//! What people are told of a configuration: all of its problems, what to write instead, and what may be written.

mod hint;
pub mod known;
pub(crate) mod problems;
