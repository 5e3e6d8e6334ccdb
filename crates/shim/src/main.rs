//! `containerd-shim-husk-v1`.

#![forbid(unsafe_code)]
#![expect(dead_code, reason = "being built")]

mod failure;
mod rpc;
mod streams;
mod wire;

fn main() {}
