//! Checks that nothing in the crate or linked with it can allocate, format or panic.
//!
//! There are two builds, both optimised. A program with the step loop alone must link and run without any library (see
//! `freestanding/program.rs`). The crate by itself, as programs link it, must not contain a forbidden symbol.

#![expect(clippy::unwrap_used, reason = "what the child must not do, a test may")]

use object::read::archive::ArchiveFile;
use object::{Object as _, ObjectSymbol as _};
use rustc_demangle::demangle;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

/// The names that no symbol may contain.
const FORBIDDEN: [&str; 4] = ["core::panicking", "core::fmt", "alloc::", "__rust_alloc"];

/// The target to build for: this test's own processor and libc.
const TARGET: &str = match (cfg!(target_arch = "x86_64"), cfg!(target_env = "musl")) {
    (true, false) => "x86_64-unknown-linux-gnu",
    (true, true) => "x86_64-unknown-linux-musl",
    (false, false) => "aarch64-unknown-linux-gnu",
    (false, true) => "aarch64-unknown-linux-musl",
};

/// Builds the package of `program.rs` and returns the directory of its output.
///
/// The package is outside of the workspace, which cannot build it: it has no `std` and special linker arguments. It
/// uses the workspace's versions of all dependencies, which are already downloaded.
fn build(lto: &str, arguments: &[&str]) -> PathBuf {
    // Compiling the dependencies takes long.
    const LONG: husk_deadline::Long = &[("", Duration::from_secs(600))];
    husk_deadline::watch(LONG);
    let script = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = script.ancestors().nth(2).unwrap();
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("freestanding-{lto}"));
    fs::create_dir_all(&dir).unwrap();
    let manifest = format!(
        r#"
            [package]
            name = "freestanding"
            edition = "2024"

            [[bin]]
            name = "freestanding"
            path = "{script}/tests/freestanding/program.rs"

            [dependencies]
            husk-script = {{ path = "{script}" }}

            [profile.release]
            panic = "abort"
            lto = "{lto}"
            codegen-units = 1

            [workspace]
        "#,
        script = script.display(),
    );
    fs::write(dir.join("Cargo.toml"), manifest).unwrap();
    fs::copy(workspace.join("Cargo.lock"), dir.join("Cargo.lock")).unwrap();

    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.current_dir(workspace).args(["rustc", "--release", "--offline", "--target", TARGET]);
    cargo.arg("--manifest-path").arg(dir.join("Cargo.toml"));
    cargo.arg("--target-dir").arg(dir.join("target"));
    let output = cargo.args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    dir.join("target").join(TARGET).join("release")
}

/// Returns the symbols of an object file, defined or not, demangled and without hashes.
fn symbols(file: &[u8]) -> Vec<String> {
    let file = object::File::parse(file).unwrap();
    file.symbols().map(|symbol| format!("{:#}", demangle(symbol.name().unwrap()))).collect()
}

fn forbidden(symbols: &[String]) -> Vec<&String> {
    symbols.iter().filter(|symbol| FORBIDDEN.iter().any(|word| symbol.contains(word))).collect()
}

#[test]
fn step_loop_links_and_runs_without_libraries() {
    // No start files, no libraries, and no dynamic linker to relocate it.
    let mut arguments =
        vec!["--bin", "freestanding", "--", "-Clink-arg=-static", "-Crelocation-model=static"];
    match cfg!(target_env = "musl") {
        // The compiler would add those that it brings.
        true => arguments.push("-Clink-self-contained=no"),
        false => arguments.extend(["-Clink-arg=-nostartfiles", "-Clink-arg=-nostdlib"]),
    }
    let program = build("fat", &arguments).join("freestanding");

    let output = Command::new(&program).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello\n");
    assert_eq!(output.status.code(), Some(42));

    let symbols = symbols(&fs::read(program).unwrap());
    assert!(symbols.iter().any(|symbol| symbol == "_start"), "symbols are not stripped: {symbols:?}");
    assert_eq!(forbidden(&symbols), [""; 0]);
}

#[test]
fn objects_reference_nothing_forbidden_in_the_child() {
    for (package, symbol) in [("husk-script", "husk_script::run"), ("husk-sys", "husk_sys::file::open")] {
        let library = format!("lib{}.rlib", package.replace('-', "_"));
        let library = fs::read(build("off", &["--package", package]).join(library)).unwrap();
        let archive = ArchiveFile::parse(&*library).unwrap();
        let members = archive.members().map(Result::unwrap);
        // The other member is the compiler's description of the crate.
        let objects = members.filter(|member| member.name().ends_with(b".o"));
        let symbols: Vec<_> = objects.flat_map(|object| symbols(object.data(&*library).unwrap())).collect();
        assert!(symbols.iter().any(|name| name == symbol), "forbidden symbols: {symbols:?}");
        assert_eq!(forbidden(&symbols), [""; 0], "{package}");
    }
}
