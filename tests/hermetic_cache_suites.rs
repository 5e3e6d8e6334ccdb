//! `test --cache` with `--each` and `--tap`: units that other tools list are remembered like the tests of a binary.

use crate::hermetic::{Project, has_sandboxes};
use crate::hermetic_cache::with_index;
use crate::util::{Seen, need};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a file of the project.
fn file(place: &Project, name: &str, text: &str) {
    let path = place.path(&format!("here/{name}"));
    fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

/// A project with an input and two programs whose test points have the same names.
fn project() -> Project {
    let place = Project::new();
    file(&place, "data/a", "one");
    file(
        &place,
        "t/a.t",
        "#!/bin/sh\necho ok 1 - same; echo ok 2 - later '# SKIP no disk'; cat data/a >&2; echo 1..2\n",
    );
    file(&place, "t/b.t", "#!/bin/sh\necho ok 1 - same; test ! -e t/a.t || echo not ok 2; echo 1..1\n");
    place
}

fn run(place: &Project, options: &[&str], program: &[&str]) -> Seen {
    let store = place.path("store");
    let mut command = Command::new(env!("CARGO_BIN_EXE_husk"));
    command.args(["test", "--cache", &store, "--inputs", "data/**", "--explain", "off"]).args(options);
    command.arg("--").args(program).current_dir(place.path("here")).env("HOME", place.path("home"));
    with_index(command.stdin(Stdio::null()));
    Seen(command.output().unwrap())
}

/// Returns the names of the tests, with an asterisk for those that were cached.
fn results(place: &Project, options: &[&str], program: &[&str]) -> Vec<String> {
    let json = place.path("lines");
    drop(fs::remove_file(&json));
    let seen = run(place, &[&["--json", &json], options].concat(), program);
    let said = String::from_utf8_lossy(&seen.0.stdout).into_owned();
    let lines = fs::read_to_string(&json).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut names: Vec<_> = lines
        .map(|line| {
            let (name, is_cached) = (line["test"].as_str().unwrap().to_owned(), line["cached"] == true);
            let printed = format!("test {name} ... ok{}", if is_cached { " (cached)\n" } else { "" });
            assert!(line["verdict"] != "passed" || said.contains(&printed), "{printed}: {said}");
            let mark = if is_cached { "*" } else { "" };
            if line["verdict"] == "failed" { format!("{name} failed") } else { name + mark }
        })
        .collect();
    names.sort();
    names
}

#[test]
fn programs_of_tap_that_passed_are_not_run_again() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = project();
    let both = ["t/a.t", "t/b.t"];
    let each = |options: &[&str]| results(&place, &[&["--tap", "--each"], options].concat(), &both);
    let [first, later, other] = ["t/a.t 1 - same", "t/a.t 2 - later", "t/b.t 1 - same"];
    let cached = |name: &str| format!("{name}*");
    assert_eq!(each(&[]), [first, later, other]);
    assert_eq!(each(&[]), [&cached(first), later, &cached(other)]);
    // A program sees its own file and not that of another one, which is part of no other key.
    file(&place, "t/b.t", "#!/bin/sh\necho ok 1 - same; echo 1..1; # changed\n");
    assert_eq!(each(&[]), [&cached(first), later, other]);
    assert_eq!(each(&[]), [&cached(first), later, &cached(other)]);
    // Another list of programs, another input, and other options.
    assert_eq!(results(&place, &["--tap", "--each"], &["t/b.t"]), [cached(other)]);
    file(&place, "data/a", "two");
    assert_eq!(each(&[]), [first, later, other]);
    assert_eq!(each(&["--env", "A=1"]), [first, later, other]);
    assert_eq!(each(&["--env", "A=1"]), [&cached(first), later, &cached(other)]);
    // The whole command is another unit only if it has other arguments.
    assert_eq!(results(&place, &["--tap"], &["t/b.t", "x"]), [other]);
    assert_eq!(results(&place, &["--tap"], &["t/b.t", "x"]), [cached(other)]);
    // A comparison runs everything.
    assert_eq!(each(&["--cache-verify"]), [first, later, other]);

    let (junit, html) = (place.path("junit.xml"), place.path("page.html"));
    each(&["--junit", &junit, "--html", &html]);
    let text = fs::read_to_string(&junit).unwrap();
    assert_eq!(text.matches("<property name=\"husk.cached\" value=\"true\"/>").count(), 2, "{text}");
    assert!(fs::read_to_string(&html).unwrap().contains("<h2>Cached</h2>"));
}

#[test]
fn unit_of_tap_is_remembered_only_if_all_of_it_passed() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = project();
    for (script, expected) in [
        ("echo ok 1 - a; echo not ok 2 - b; echo 1..2", &["t/a.t 1 - a", "t/a.t 2 - b failed"] as &[&str]),
        ("echo ok 1 - a; echo 1..1; exit 3", &["t/a.t 1 - a", "t/a.t failed"]),
        ("echo ok 1 - a; echo 1..2", &["t/a.t 1 - a", "t/a.t failed"]),
        ("echo ok 1 - a; echo 1..1; sleep 1000 &", &["t/a.t 1 - a"]),
        ("echo '1..0 # SKIP no machine'", &["t/a.t"]),
    ] {
        file(&place, "t/a.t", &format!("#!/bin/sh\n{script}\n"));
        for _ in 0..2 {
            assert_eq!(results(&place, &["--tap", "--each"], &["t/a.t"]), expected, "{script}");
        }
    }
    // One program with the same arguments, read as one test and as TAP. Its exit status is a pass, its TAP is not.
    file(&place, "t/a.t", "#!/bin/sh\necho not ok 1 - a; echo 1..1\n");
    for _ in 0..2 {
        run(&place, &[], &["./t/a.t"]).succeeds();
        assert_eq!(results(&place, &["--tap"], &["./t/a.t"]), ["t/a.t 1 - a failed"]);
    }
}

#[test]
fn comparison_finds_a_unit_that_depends_on_more_than_its_inputs() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = project();
    // The times of files are not part of the key.
    file(&place, "t/a.t", "#!/bin/sh\ntest data/b -nt data/a || printf 'not '; echo ok 1 - a; echo 1..1\n");
    file(&place, "data/b", "");
    let age = |name: &str, seconds| {
        let time = std::time::SystemTime::now() - std::time::Duration::from_secs(seconds);
        let path = place.path(&format!("here/data/{name}"));
        fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    };
    age("a", 500);
    let tap = |options: &[&str]| results(&place, &[&["--tap", "--each"], options].concat(), &["t/a.t"]);
    assert_eq!(tap(&[]), ["t/a.t 1 - a"]);
    age("b", 1000);
    assert_eq!(tap(&[]), ["t/a.t 1 - a*"]);
    let seen = run(&place, &["--tap", "--each", "--cache-verify"], &["t/a.t"]);
    assert!(String::from_utf8_lossy(&seen.0.stdout).contains("cached as passed; the result depends on more"));
    assert_eq!(tap(&[]), ["t/a.t 1 - a failed"]);
}

/// Copies pytest to the project, so that it needs nothing of the home directory. Returns whether that works.
fn copy_pytest(place: &Project) -> bool {
    let script = "import importlib, sys\nfor name in ['pytest', '_pytest', 'pluggy', 'iniconfig', 'packaging', 'pygments']:\n    \
                  print(importlib.import_module(name).__path__[0])";
    let Ok(found) = Command::new("python3").args(["-c", script]).output() else { return false };
    fs::create_dir_all(place.path("here/lib")).unwrap();
    let paths = String::from_utf8(found.stdout).unwrap();
    let copied =
        Command::new("cp").arg("-r").args(paths.lines()).arg(place.path("here/lib")).status().unwrap();
    let lib = place.path("here/lib");
    let mut python = Command::new("/usr/bin/python3");
    let works = python.args(["-m", "pytest", "--version"]).env("PYTHONPATH", lib).output();
    found.status.success() && copied.success() && works.is_ok_and(|works| works.status.success())
}

#[test]
fn tests_of_pytest_that_passed_are_not_run_again() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = project();
    need!(copy_pytest(&place), "needs pytest and the system's Python");
    let lib = format!("PYTHONPATH={}", place.path("here/lib"));
    let options =
        ["--inputs", "lib/**", "--inputs", "tests/**", "--env", &lib, "--env", "PYTHONDONTWRITEBYTECODE=1"];
    let program = ["/usr/bin/python3", "-m", "pytest", "-p", "no:cacheprovider", "tests"];
    let pytest = |each: &str| results(&place, &[&options[..], &[each]].concat(), &program);
    file(&place, "tests/test_a.py", "def test_one(): pass\ndef test_two(): assert 1 + 1 == 2\n");
    file(&place, "tests/test_b.py", "import os\ndef test_one(): assert os.path.exists('here')\n");
    let [one, two, three] =
        ["tests/test_a.py::test_one", "tests/test_a.py::test_two", "tests/test_b.py::test_one failed"];
    let cached = |name: &str| format!("{name}*");
    for each in ["--each=test", "--each=file"] {
        assert_eq!(pytest(each), [one, two, three], "{each}");
        assert_eq!(pytest(each), [&cached(one), &cached(two), three], "{each}");
    }
    // The list is remembered too, until a file changes.
    file(&place, "tests/test_b.py", "def test_one(): pass\ndef test_new(): pass\n");
    let [new, third] = ["tests/test_b.py::test_new", "tests/test_b.py::test_one"];
    assert_eq!(pytest("--each=test"), [one, two, new, third]);
    assert_eq!(pytest("--each=test"), [one, two, new, third].map(cached));
    // Arguments choose other tests, and are part of the key.
    let chosen = [&program[..], &["-k", "new"]].concat();
    assert_eq!(results(&place, &[&options[..], &["--each=test"]].concat(), &chosen), [new]);
    assert_eq!(results(&place, &[&options[..], &["--each=test"]].concat(), &chosen), [cached(new)]);
}
