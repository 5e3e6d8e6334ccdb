//! Has the linker make the shim small: without symbols, and with one copy of functions that have the same code. Has it
//! start fast, too.

#![expect(clippy::disallowed_macros, reason = "this is how a build script talks to cargo")]

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=small.ld");
    println!("cargo::rerun-if-changed=../../packaging/order/order.ld");
    let is = |name, value| env::var(name).is_ok_and(|found| found == value);
    if is("PROFILE", "release") && is("CARGO_CFG_TARGET_OS", "linux") {
        // For musl, rustc executes the linker itself (.cargo/config.toml).
        let is_linker = is("CARGO_CFG_TARGET_ENV", "musl");
        let argument = |argument| {
            let driver = if is_linker { "" } else { "-Wl," };
            println!("cargo::rustc-link-arg-bins={driver}{argument}");
        };
        argument("--strip-all");
        let root = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        // The functions that a verb executes, which husk lists, lie side by side: each page of code costs a page fault.
        println!("cargo::rustc-link-arg-bins=-T{root}/../../packaging/order/order.ld");
        // GNU ld can do neither. The shim is then larger.
        if is_linker || has_lld() {
            argument("--icf=all");
            // Nothing unwinds, because panics abort.
            println!("cargo::rustc-link-arg-bins=-T{root}/small.ld");
        }
    }
}

/// Whether rustc links with the LLD that it brings.
fn has_lld() -> bool {
    // The only target for which rustc uses it unless told so.
    const TARGET: &str = "x86_64-unknown-linux-gnu";
    let sysroot = || {
        let output = Command::new(env::var_os("RUSTC")?).args(["--print", "sysroot"]).output().ok()?;
        String::from_utf8(output.stdout).ok()
    };
    let lld = |sysroot: String| {
        Path::new(sysroot.trim()).join("lib/rustlib").join(TARGET).join("bin/gcc-ld/ld.lld").exists()
    };
    env::var("TARGET").is_ok_and(|target| target == TARGET) && sysroot().is_some_and(lld)
}
