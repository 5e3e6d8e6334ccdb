//! Has the linker put side by side what the commands of an engine execute. Else it lies all over the binary, and each
//! part of it is a page fault, with which the kernel maps sixteen pages.
//!
//! The list is written by packaging/order/write.sh. What is not in it, or is no more, is no error: it costs a page.

#![expect(clippy::disallowed_macros, reason = "this is how a build script talks to cargo")]

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=packaging/order/order.ld");
    let is = |name, value| env::var(name).is_ok_and(|found| found == value);
    if is("PROFILE", "release") && is("CARGO_CFG_TARGET_OS", "linux") {
        let root = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        println!("cargo::rustc-link-arg-bin=husk=-T{root}/packaging/order/order.ld");
    }
}
