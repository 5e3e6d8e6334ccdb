//! What is tested across the tree. The tests of one crate stand beside it.

/// The rules of the house that a compiler does not know.
mod house;
