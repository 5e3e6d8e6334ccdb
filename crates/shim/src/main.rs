//! `containerd-shim-husk-v1`.

#![forbid(unsafe_code)]
#![expect(dead_code, reason = "being built")]

mod failure;
mod metrics;
mod wire;

fn main() {}
