//! Tests of the shim from outside, without containerd: the tests play it.

/// Checkpoints, and containers that are restored from them.
mod checkpoint;
/// A client of the task service.
mod client;
/// Bundles, `start` and `delete`.
mod engine;
/// Refused requests and their codes.
mod errors;
/// The events service.
mod events;
/// Deaths: of containerd, of the shim, of clients.
mod faults;
/// Containers from `Create` to `Delete`, and processes that `Exec` adds.
mod life;
/// Root file systems that the shim mounts.
mod mounts;
/// Shims of several containers, and how shims start and end.
mod pods;
/// Limits, statistics, pauses and lists of processes.
mod resources;
/// FIFOs, log files and logging programs.
mod streams;
/// Sizes, output and clients of terminals.
mod terminal;
/// The messages of containerd's protocols.
#[expect(dead_code, reason = "the tests do not use all of them")]
#[path = "../src/wire/mod.rs"]
mod wire;
