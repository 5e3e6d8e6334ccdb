//! Reads JSON as Go does, because engines write for Go: into a tree and then into types. It also finds duplicate
//! keys.

pub(crate) mod duplicate;
pub(crate) mod pruned;
pub(crate) mod tree;
pub(crate) mod typed;
mod words;
