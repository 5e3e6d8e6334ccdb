//! JSON as Go reads it, which engines write for: into a tree, out of it into types, and with keys that are there twice.

pub(crate) mod tree;
pub(crate) mod twice;
pub(crate) mod typed;
