//! `test`: coverage, profiles and snapshots that programs write.

use crate::hermetic::{Project, has_sandboxes};
use crate::util::{Seen, need};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs a program with these variables of the caller.
fn run(place: &Project, options: &[&str], program: &[&str], variables: &[(&str, &str)]) -> Seen {
    let mut command = place.command(options, program);
    Seen(command.envs(variables.iter().copied()).env_remove("CI").output().unwrap())
}

fn files(directory: &str) -> usize {
    fs::read_dir(directory).unwrap().count()
}

/// Writes a profile as LLVM does.
const PROFILE: &str = "echo profile > \"$(echo \"$LLVM_PROFILE_FILE\" | sed s/%p/$$/)\"";

#[test]
fn profiles_of_two_sandboxes_have_different_names() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let (profiles, pattern) = (place.path("profiles"), place.path("profiles/a-%p.profraw"));
    // The pid is the same in both. husk creates the directory, as LLVM would.
    for _ in 0..2 {
        run(&place, &[], &["sh", "-c", PROFILE], &[("LLVM_PROFILE_FILE", &pattern)]).succeeds();
    }
    assert_eq!(files(&profiles), 2);
    run(&place, &["--env", &format!("LLVM_PROFILE_FILE={pattern}")], &["sh", "-c", PROFILE], &[]).succeeds();
    assert_eq!(files(&profiles), 3);
    // A pattern without a pid stays as it is.
    let merged = place.path("profiles/%m.profraw");
    let seen = run(&place, &[], &["sh", "-c", "echo $LLVM_PROFILE_FILE"], &[("LLVM_PROFILE_FILE", &merged)]);
    seen.prints(&merged);
}

#[test]
fn instrumented_program_leaves_a_profile_of_each_run() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    fs::write(place.path("here/main.rs"), "fn main() {}").unwrap();
    let mut rustc = Command::new("rustc");
    rustc.args(["-C", "instrument-coverage", "main.rs"]).current_dir(place.path("here"));
    rustc.env("LLVM_PROFILE_FILE", place.path("build-%p.profraw"));
    let is_built = rustc.output().is_ok_and(|output| output.status.success());
    need!(is_built, "needs a rustc with LLVM's profiler");
    for _ in 0..2 {
        let pattern = place.path("profiles/%p.profraw");
        run(&place, &[], &["./main"], &[("LLVM_PROFILE_FILE", &pattern)]).succeeds();
    }
    assert_eq!(files(&place.path("profiles")), 2);
}

#[test]
fn directories_for_coverage_are_writable() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let directory = place.path("coverage");
    fs::create_dir(&directory).unwrap();
    let writes = |name: &str, value: &str, script: &str| {
        run(&place, &[], &["sh", "-c", script], &[(name, value)]).succeeds();
    };
    writes("GCOV_PREFIX", &directory, "echo > $GCOV_PREFIX/a.gcda");
    writes("GOCOVERDIR", &directory, "echo > $GOCOVERDIR/covcounters");
    writes("COVERAGE_FILE", &place.path("coverage/.coverage"), "echo > $COVERAGE_FILE");
    assert_eq!(files(&directory), 3);
    // A file in the working directory.
    writes("COVERAGE_FILE", ".coverage", "echo > .coverage");
    assert!(Path::new(&place.path("here/.coverage")).exists());
    // Temporary files are thrown away.
    writes("CARGO_TARGET_TMPDIR", &directory, "echo > $CARGO_TARGET_TMPDIR/a");
    assert_eq!(files(&directory), 3);
    // Without such a variable nothing is writable.
    let refused =
        run(&place, &["--read", &directory], &["sh", "-c", "echo 2> /dev/null > \"$0/b\"", &directory], &[]);
    assert!(!refused.0.status.success());
}

#[test]
fn directory_with_other_files_is_not_writable() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let home = place.path("home");
    let seen = run(&place, &[], &["sh", "-c", "echo > ~/a"], &[("GOCOVERDIR", &home)]);
    seen.says(&format!(
        "husk: warning: GOCOVERDIR: {home} is not made writable, because it has more than these files"
    ));
    assert_eq!(files(&home), 1);
}

#[test]
fn new_snapshots_are_kept_if_insta_is_asked_for_them() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let here = place.path("here");
    let script = "mkdir -p src/snapshots && echo > src/snapshots/a.snap.new";
    for update in ["no", "unknown"] {
        let variables = [("INSTA_UPDATE", update), ("CARGO_MANIFEST_DIR", &*here)];
        assert!(!run(&place, &[], &["sh", "-c", script], &variables).0.status.success(), "{update}");
    }
    let variables = [("INSTA_UPDATE", "new"), ("CARGO_MANIFEST_DIR", &*here)];
    run(&place, &[], &["sh", "-c", script], &variables).succeeds();
    assert!(Path::new(&place.path("here/src/snapshots/a.snap.new")).exists());
}

#[test]
fn plan_creates_no_directory() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    run(&place, &["--plan"], &["true"], &[("LLVM_PROFILE_FILE", &place.path("profiles/%p"))]).succeeds();
    assert!(!Path::new(&place.path("profiles")).exists());
}
