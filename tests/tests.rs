//! What is tested across the tree, through the command line. The tests of one crate stand beside it.

/// What may be typed, and what is said to it.
mod command_line;
/// The rules of the house that a compiler does not know.
mod house;
/// What a program finds in its container.
mod inside;
/// From create to delete, and what each verb says in each state.
mod lifecycle;
/// What is mounted in a container, and how.
mod mounts;
/// What the process of a container is, and what it has from its caller.
mod process;
/// A bundle to build, a runtime to run it, and what is expected of it.
mod util;
