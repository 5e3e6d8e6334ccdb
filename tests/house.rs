//! Rules of this project that the compiler does not check. The tests need no tool except cargo.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The list of functions for the linker.
mod order;
/// Rules for comments and help texts.
mod prose;

/// The audit list: every file outside `tests` that may contain `unsafe`. A new one is a decision, recorded here.
const UNSAFE: &[&str] = &[
    "crates/shim/src/entry.rs",
    "src/entry.rs",
    "crates/spawn/src/clone.rs",
    "crates/spawn/src/inherited.rs",
    "crates/spawn/src/memory/kept.rs",
    "crates/spawn/src/memory/page.rs",
    "crates/spawn/src/memory/program.rs",
    "crates/spawn/src/memory/snapshot.rs",
    "crates/spawn/src/memory/stack.rs",
    "crates/spawn/src/signalfd.rs",
    "crates/sys/src/arch/aarch64.rs",
    "crates/sys/src/arch/x86_64.rs",
    "crates/sys/src/bpf.rs",
    "crates/sys/src/clone.rs",
    "crates/sys/src/fd.rs",
    "crates/sys/src/memory.rs",
    "crates/sys/src/raw.rs",
    "integration/bench/spawn/src/contend/memory.rs",
    "integration/bench/spawn/src/contend/pre_exec.rs",
    "integration/bench/spawn/src/contend/usage.rs",
];

/// A file with more lines than this, unit tests aside, has a second topic. (A file of tests may have one long topic:
/// every setting, every step.)
const MOST_LINES: usize = 900;

#[test]
fn every_file_has_a_module_comment() {
    for file in sources() {
        let text = read(&file);
        assert!(text.starts_with("//!"), "{}: begins with no `//!`", file.display());
    }
}

#[test]
fn unsafe_code_is_only_in_listed_files() {
    let found: BTreeSet<_> = sources()
        .into_iter()
        .filter(|file| !file.components().any(|part| part.as_os_str() == "tests"))
        .filter(|file| allows_unsafe(&read(file)))
        .collect();
    let listed: BTreeSet<_> = UNSAFE.iter().map(PathBuf::from).collect();
    assert_eq!(found, listed);
    for file in &listed {
        assert!(read(file).contains("# Safety"), "{}: states no contract", file.display());
    }
}

#[test]
fn child_crates_have_no_standard_library() {
    for crate_name in ["sys", "script"] {
        let root = read(&Path::new("crates").join(crate_name).join("src/lib.rs"));
        assert!(root.contains("#![no_std]"), "{crate_name} is not no_std");
        assert!(!root.contains("extern crate alloc"), "{crate_name} allocates");
    }
}

/// The functions of `husk-sys` that only a child may call, by file.
const CHILD_ONLY: [(&str, &[&str]); 4] = [
    ("clone.rs", &["fork", "clone_parent", "fork_on", "vfork"]),
    ("file.rs", &["close", "close_range", "close_range_on_exec", "dup3", "fcntl_keep_on_exec"]),
    ("process.rs", &["seccomp_set_mode_filter", "seccomp_new_listener", "wait4_any_nohang"]),
    ("memory.rs", &["forget"]),
];

/// The files that may make the proof of being a child: two entry points of a child, and a program that is one list of
/// steps.
const PROOFS: [&str; 3] =
    ["crates/script/tests/freestanding/program.rs", "crates/spawn/src/clone.rs", "crates/sys/src/clone.rs"];

#[test]
fn child_only_functions_take_the_proof() {
    for (file, functions) in CHILD_ONLY {
        let text = read(&Path::new("crates/sys/src").join(file));
        for function in functions {
            let is_declared = |line: &&str| {
                line.strip_prefix("pub fn ")
                    .and_then(|rest| rest.strip_prefix(function))
                    .is_some_and(|rest| rest.starts_with(['(', '<']))
            };
            let line = text.lines().find(is_declared).unwrap_or_else(|| panic!("{file}: no {function}"));
            assert!(line.contains("(_: &InChild"), "{file}: {function} takes no proof: {line}");
        }
    }
    let text = read(Path::new("crates/script/src/lib.rs"));
    assert!(text.contains("pub fn run(child: &InChild, "), "running a list proves being a child");
}

#[test]
fn proof_of_being_a_child_is_made_only_in_listed_files() {
    // Assembled here, so that this file does not contain it.
    let made = ["InChild", "::new()"].concat();
    let makes = |file: &PathBuf| {
        read(file).lines().any(|line| !line.trim_start().starts_with("//") && line.contains(&made))
    };
    let found: BTreeSet<_> = sources().into_iter().filter(makes).collect();
    assert_eq!(found, PROOFS.iter().map(PathBuf::from).collect());
}

#[test]
fn public_library_re_exports_only_types_of_the_kernel() {
    let mut count = 0;
    for file in ["lib.rs", "sys.rs"] {
        let text = read(&Path::new("crates/spawn/src").join(file));
        for exported in text.split("pub use husk_script::").skip(1) {
            let exported = exported.split(';').next().unwrap_or_default();
            if !exported.starts_with("sys") {
                continue;
            }
            let names = exported.rsplit("::").next().unwrap_or_default();
            for name in names.split(['{', '}', ',']).map(str::trim).filter(|name| !name.is_empty()) {
                assert!(name.starts_with(char::is_uppercase), "{file}: {name} is no type");
                count += 1;
            }
        }
    }
    assert!(count > 10, "the exports were not found");
}

#[test]
fn files_stay_below_the_length_limit() {
    for file in sources() {
        let lines = read(&file).lines().take_while(|line| !line.starts_with("mod tests")).count();
        assert!(lines <= MOST_LINES, "{}: {lines} lines", file.display());
    }
}

#[test]
fn no_reminder_or_debugging_macro_is_left() {
    // Assembled here, so that this file does not contain them.
    let marks = ["TODO", "FIXME", "XXX"].map(|mark| format!("// {mark}"));
    for file in sources().into_iter().filter(|file| !file.ends_with("house.rs")) {
        let text = read(&file);
        for mark in marks.iter().map(String::as_str).chain(["dbg!(", "todo!(", "unimplemented!("]) {
            assert!(!text.contains(mark), "{}: {mark}", file.display());
        }
    }
}

#[test]
fn errors_are_dropped_only_by_tolerate() {
    for file in sources().into_iter().filter(|file| file.starts_with("crates") || file.starts_with("src")) {
        let text = read(&file);
        assert!(!text.contains(".unwrap_or(())"), "{}: `tolerate` says why", file.display());
    }
}

/// An error number travels as data. Only the tests of its words may contain what std appends.
#[test]
fn no_error_number_is_searched_in_a_text() {
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    for file in sources().into_iter().filter(|file| file.starts_with("crates") || file.starts_with("src")) {
        let is_tested_elsewhere = file.components().any(|part| part.as_os_str() == "tests");
        let is_own =
            ["cause.rs", "words.rs"].iter().any(|own| file == Path::new("crates/listing/src").join(own));
        if is_tested_elsewhere || is_own {
            continue;
        }
        let found = read(&file).lines().filter(is_code).any(|line| line.contains("(os error"));
        assert!(!found, "{}: `Cause` has the number", file.display());
    }
}

fn allows_unsafe(text: &str) -> bool {
    let lists = |attribute| text.split(attribute).skip(1).filter_map(|rest| rest.split_once(')'));
    let mut lists = ["#![allow(", "#[allow(", "#![expect(", "#[expect("].into_iter().flat_map(lists);
    lists.any(|(list, _)| list.split(',').any(|lint| lint.trim() == "unsafe_code"))
}

/// Returns every Rust file of the tree, relative to its root.
fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for directory in ["crates", "src", "tests", "examples", "integration"] {
        collect(Path::new(directory), &["rs"], &mut found);
    }
    assert!(found.len() > 20, "the tree was not found");
    found
}

/// Adds the files below a directory that have one of these extensions; `""` stands for none.
fn collect(directory: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(root().join(directory)) else { return };
    for entry in entries {
        let name = entry.expect("a readable directory").file_name();
        let path = directory.join(&name);
        if root().join(&path).is_dir() {
            // Build output is not checked.
            if name != "target" {
                collect(&path, extensions, found);
            }
        } else if extensions.iter().any(|extension| path.extension().unwrap_or_default() == *extension) {
            found.push(path);
        }
    }
}

fn read(file: &Path) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
