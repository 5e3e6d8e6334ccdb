//! Has the linker place the functions that an engine's commands execute side by side. Otherwise they are spread over
//! the binary, and more page faults occur. At each page fault the kernel maps sixteen pages.
//!
//! `packaging/order/write.sh` writes the list. `tests/house/order.rs` reports an outdated
//! list; the linker does not, and the functions it does not name cost page faults.

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
