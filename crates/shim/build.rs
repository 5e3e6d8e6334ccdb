//! Has the linker make the shim small: without symbols, and with one copy of functions that have the same code. Has it
//! start fast, too.

#![expect(clippy::disallowed_macros, reason = "this is how a build script talks to cargo")]

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=small.ld");
    println!("cargo::rerun-if-changed=../../packaging/order/order.ld");
    let is = |name, value| env::var(name).is_ok_and(|found| found == value);
    if is("PROFILE", "release") && is("CARGO_CFG_TARGET_OS", "linux") {
        println!("cargo::rustc-link-arg-bins=-Wl,--strip-all");
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
        let root = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        // The functions that a verb executes, which husk lists, lie side by side: each page of code costs a page fault.
        println!("cargo::rustc-link-arg-bins=-T{root}/../../packaging/order/order.ld");
        // Nothing unwinds, because panics abort.
        println!("cargo::rustc-link-arg-bins=-T{root}/small.ld");
    }
}
