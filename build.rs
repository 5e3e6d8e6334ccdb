//! Has the linker place the functions that an engine's commands execute side by side. Otherwise they are spread over
//! the binary, and more page faults occur. At each page fault the kernel maps sixteen pages.
//!
//! `packaging/order/write.sh` writes the list. `tests/house/order.rs` reports an outdated
//! list; the linker does not, and the functions it does not name cost page faults.
//!
//! Also finds the commit that `husk --version` prints, so that `cargo install` gives a husk that names it.

#![expect(clippy::disallowed_macros, reason = "this is how a build script talks to cargo")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=packaging/order/order.ld");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let is = |name, value| env::var(name).is_ok_and(|found| found == value);
    if is("PROFILE", "release") {
        if is("CARGO_CFG_TARGET_OS", "linux") {
            let root = root.display();
            println!("cargo::rustc-link-arg-bin=husk=-T{root}/packaging/order/order.ld");
        }
        name_commit(&root);
    }
}

/// Sets `HUSK_COMMIT` for the compiler, unless the caller sets it or the source has no commit. Other builds than release
/// builds do not name one, because each commit would compile husk again.
fn name_commit(root: &Path) {
    println!("cargo::rerun-if-env-changed=HUSK_COMMIT");
    if env::var_os("HUSK_COMMIT").is_some() {
        return;
    }
    if let Some(commit) = packaged_commit(root).or_else(|| checked_out_commit(root)) {
        println!("cargo::rustc-env=HUSK_COMMIT={commit}");
    }
}

/// Returns the commit that cargo has written into a package of crates.io.
fn packaged_commit(root: &Path) -> Option<String> {
    let text = fs::read_to_string(root.join(".cargo_vcs_info.json")).ok()?;
    commit_of(text.split_once("\"sha1\": \"")?.1.split('"').next()?)
}

fn checked_out_commit(root: &Path) -> Option<String> {
    // A repository around the source, such as one of packages, has other commits.
    if !root.join(".git").exists() {
        return None;
    }
    // Git adds a line to this file for each commit that is checked out.
    println!("cargo::rerun-if-changed={}", git(root, &["rev-parse", "--git-path", "logs/HEAD"])?);
    commit_of(&git(root, &["rev-parse", "HEAD"])?)
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    Some(text.trim().to_owned())
}

fn commit_of(text: &str) -> Option<String> {
    let is_digest = text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_digest.then(|| text.to_owned())
}
