//! `husk.toml`: options for every run, for all tests or some of them.

use crate::hermetic::{Project, has_sandboxes};
use crate::hermetic_libtest::{Binary, has_rustc};
use crate::util::{Seen, is_root, need};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;

/// Runs a program with this text as `husk.toml` and returns what husk prints.
fn said_of(text: &str) -> Seen {
    let place = Project::new();
    fs::write(place.path("here/husk.toml"), text).unwrap();
    place.sh(&[], "true")
}

/// tests/messages.txt has the others.
#[test]
fn invalid_setting_is_shown_where_it_is() {
    for (text, lines) in [
        (
            "net = \"none\"\ntimout = 3",
            "husk.toml:2:1: unknown option 'timout'; did you mean 'timeout'?\n    2 | timout = 3\n      | ^^^^^^\n",
        ),
        (
            "[[override]]\ntest = \"a\"\nnet = \"all\"",
            "husk.toml:3:7: invalid value 'all' for '--net <NET>' [possible values: none, loopback, host]\n    \
             3 | net = \"all\"\n      |       ^^^^^\n",
        ),
        // An override has no option 'junit', and so it is not suggested.
        (
            "[[override]]\ntest = \"a\"\njunits = \"b\"",
            "husk.toml:3:1: unknown option 'junits'\n    3 | junits = \"b\"\n      | ^^^^^^\n",
        ),
        (
            "[[override]]\ntets = \"a\"",
            "husk.toml:2:1: unknown option 'tets'; did you mean 'test'?\n    2 | tets = \"a\"\n      | ^^^^\n",
        ),
        ("[[overide]]\nnet = \"none\"", "husk.toml:1:3: unknown option 'overide'; did you mean 'override'?"),
        ("[[override]]\ntest = \"a\"\nhtml = \"b\"", "husk.toml:3:1: html applies to all tests"),
    ] {
        said_of(text).fails(125, lines);
    }
}

#[test]
fn settings_file_in_a_parent_directory_applies() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    fs::write(
        place.path("husk.toml"),
        "env = [\"A=file\", \"B=file\"]\nhide = [\"here/file\"]\nretries = 2\n",
    )
    .unwrap();
    let script = "echo $A $B; cat file";
    // Paths are relative to the file. The command line overrides the file.
    place.sh(&["--env", "B=typed"], script).prints("file typed\n");
    // `--config` names another file, which is empty.
    place.sh(&["--config", "/dev/null"], script).prints("\nfile");
    place.sh(&["--config", "no-such"], script).fails(125, "read no-such: no such file or directory");
    // An override applies only to the programs that it names.
    let one = "[[override]]\nbinary = [\"no\", \"s*\"]\nenv = \"A=sh\"\n[[override]]\nbinary = \"b*\"\nenv = \"A=no\"\n";
    fs::write(place.path("husk.toml"), one).unwrap();
    place.sh(&[], "echo $A").prints("sh\n");
}

#[test]
fn override_applies_to_matching_tests() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(has_rustc(), "needs a compiler");
    let binary = Binary::new();
    let json = binary.place.path("lines");
    let settings = "retries = 1\njson = \"lines\"\n[[override]]\ntest = \"fails\"\nretries = 2\n\
                    [[override]]\ntest = \"fails_*\"\nbinary = \"lab\"\nretries = 0\n\
                    [[override]]\ntest = \"pa*\"\npackage = \"none-such\"\nnet = \"host\"\n";
    fs::write(binary.place.path("husk.toml"), settings).unwrap();
    let attempts = |options: &[&str]| {
        fs::remove_file(&json).unwrap_or(());
        binary.with_husk(options, &["fails", "panics_not"]);
        let lines = fs::read_to_string(&json).unwrap();
        let lines = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let mut attempts: Vec<_> = lines
            .map(|line| (line["test"].as_str().unwrap().to_owned(), line["attempts"].as_u64().unwrap()))
            .collect();
        attempts.sort();
        attempts
    };
    let named = |names: [(&str, u64); 4]| names.map(|(name, attempts)| (name.to_owned(), attempts));
    assert_eq!(
        attempts(&[]),
        named([("fails", 3), ("fails_silently", 1), ("fails_with_an_error", 1), ("panics_not", 2)])
    );
    assert_eq!(
        attempts(&["--retries=3"]),
        named([("fails", 4), ("fails_silently", 4), ("fails_with_an_error", 4), ("panics_not", 4)])
    );
}

#[test]
fn plan_of_a_runner_shows_the_plan_of_each_test() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(has_rustc(), "needs a compiler");
    let source = "fn ran() { std::fs::write(\"ran\", \"\").unwrap() }
        #[test] fn one() { ran() } #[test] fn two() { ran() } #[test] #[ignore] fn never() { ran() }
        #[test] fn three() { ran() }";
    let binary = Binary::of(source);
    let (json, here) = (binary.place.path("lines"), binary.place.path("here"));
    let settings = "write = [\"here\"]\njson = \"lines\"\n[[override]]\ntest = \"t*\"\nfiles = 77\n";
    fs::write(binary.place.path("husk.toml"), settings).unwrap();
    let plan = |words: &[&str]| Seen(binary.with_husk(&["--plan"], words)).succeeds();
    let all = plan(&[]);
    let (one, others) = all.split_once("test three\ntest two\n").unwrap_or_else(|| panic!("{all}"));
    assert!(one.contains("test one\n") && !all.contains("never"), "{all}");
    assert!(one.contains("exec ") && !one.contains("nofile 77"), "{one}");
    assert!(others.contains("exec ") && others.contains("nofile 77 77"), "{others}");
    let two = plan(&["two"]);
    assert!(two.contains("test two\n") && !two.contains("test three") && !two.contains("test one"), "{two}");
    // No test has run, and nothing is reported.
    assert!(!fs::exists(json).unwrap() && !fs::exists(format!("{here}/ran")).unwrap());
    let program = binary.place.test(&["--plan", "--runner"], &["sh", "-c", "exit 3"]);
    program.prints("runs without a sandbox, because it is not a test binary");
}

/// As root, husk ignores a file that another user has written or could have written.
#[test]
fn settings_file_that_others_could_have_written_is_not_used() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(is_root(), "needs root to create files of another user");
    /// Changes a path so that another user could have written the file.
    type Change = fn(&Path);
    let cases: [(&str, Change, &str); 6] = [
        ("here/husk.toml", |path| chown(path, Some(1000), None).unwrap(), "it belongs to user 1000"),
        ("here", |path| chown(path, Some(1000), None).unwrap(), "its directory belongs to user 1000"),
        ("here/husk.toml", |path| permit(path, 0o646), "it is writable by all users"),
        ("here", |path| permit(path, 0o1777), "its directory is writable by all users"),
        (
            "here",
            |path| {
                chown(path, None, Some(1000)).unwrap();
                permit(path, 0o775);
            },
            "its directory is writable by group 1000",
        ),
        (
            "here/husk.toml",
            |path| {
                fs::rename(path, path.with_extension("other")).unwrap();
                symlink("husk.other", path).unwrap();
            },
            "it is a symlink",
        ),
    ];
    for (path, change, why) in cases {
        let place = Project::new();
        fs::write(place.path("here/husk.toml"), "env = \"A=file\"\n").unwrap();
        // husk does not use the next file above instead.
        fs::write(place.path("husk.toml"), "env = \"A=above\"\n").unwrap();
        let used = place.sh(&[], "echo $A");
        used.prints("file");
        used.says(&format!("husk: options from {}", place.path("here/husk.toml")));
        change(Path::new(&place.path(path)));
        let seen = place.sh(&[], "echo $A");
        seen.prints("");
        seen.says(&format!("husk: warning: {} is ignored: {why}", place.path("here/husk.toml")));
        // husk does use a file that `--config` names.
        place.sh(&["--config", "husk.toml"], "echo $A").prints("file");
    }
    // The search also ends, without a warning, at such a directory that has no file.
    let place = Project::new();
    fs::write(place.path("husk.toml"), "env = \"A=above\"\n").unwrap();
    place.sh(&[], "echo $A").prints("above");
    permit(Path::new(&place.path("here")), 0o777);
    place.sh(&[], "echo $A").prints("");
}

fn permit(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}
