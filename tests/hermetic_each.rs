//! `test --each` and `--tap` with `--plan`, `--shell` and `--keep`.

use crate::hermetic::has_sandboxes;
use crate::hermetic_suites::{Suite, has_go, has_pytest};
use crate::util::{Seen, need};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

/// Runs tests until one fails, and then its shell with this input.
fn shell(suite: &Suite, options: &[&str], program: &[&str], input: &str) -> Seen {
    let options = [&["--shell", "--explain", "off"], options].concat();
    let mut command = suite.command(&options, program);
    command.env("SHELL", "/bin/sh").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A shell that does not start reads nothing.
    drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
    Seen(child.wait_with_output().unwrap())
}

/// Returns the names in a directory, sorted.
fn names(path: &str) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = entries.collect();
    names.sort();
    names
}

#[test]
fn plan_of_each_test_is_printed_once_for_the_same_options() {
    need!(has_sandboxes(), "needs user namespaces");
    let suite = Suite::new();
    suite.script("a.t", "echo a > /tmp/a; touch $HOME/ran");
    suite.script("b.t", "exit 1");
    let plan = suite.test(&["--tap", "--each", "--plan"], &["a.t", "b.t"]).succeeds();
    assert!(plan.contains("test a.t\n") && plan.contains("test b.t\n"), "{plan}");
    let programs: Vec<_> = plan.lines().filter(|line| line.contains(" exec ")).collect();
    assert!(programs.len() == 2 && programs[1].contains("b.t"), "{plan}");
    need!(has_pytest(&suite), "needs pytest");
    suite.file("test_a.py", "def test_one(): assert False\ndef test_two(): pass\n");
    let plan = suite.test(&["--each=test", "--plan"], &["pytest"]).succeeds();
    assert!(plan.contains("test test_a.py::test_one\ntest test_a.py::test_two\n"), "{plan}");
    assert_eq!(plan.lines().filter(|line| line.contains(" exec ")).count(), 1, "{plan}");
    // pytest chooses the tests.
    let plan = suite.test(&["--each=test", "--plan"], &["pytest", "-k", "two"]).succeeds();
    assert!(!plan.contains("test_one") && plan.contains("test test_a.py::test_two\n"), "{plan}");
    suite.file("test_a.py", "import none\n");
    suite
        .test(&["--each=test", "--plan"], &["pytest"])
        .fails(125, "cannot list its tests; run it without --plan");
}

#[test]
fn each_test_keeps_its_files_in_a_directory_of_its_name() {
    need!(has_sandboxes(), "needs user namespaces");
    let suite = Suite::new();
    let points = "echo ok 1; echo ok 2; echo 1..2";
    suite.script("t/a.t", &format!("echo a > /tmp/a; {points}"));
    suite.script("b.t", &format!("echo b > /tmp/b; {points}; exit 3"));
    suite.script("c.t", points);
    let kept = suite.place.path("kept");
    let options = ["--tap", "--each", "--explain", "off", "--retries", "1", "--keep", &kept];
    // Two names that become one.
    suite.script("t_a.t", &format!("echo underscore > /tmp/a; {points}"));
    let seen = suite.test(&options, &["t/a.t", "b.t", "c.t", "t_a.t", "../here/c.t"]);
    seen.fails(101, &format!("kept 3 files in {kept}"));
    let all = names(&kept);
    assert_eq!(all.len(), 5, "{all:?}");
    assert!(all.contains(&"_.._here_c.t".to_owned()), "{all:?}");
    assert_eq!(fs::read_to_string(format!("{kept}/b.t/tmp/b")).unwrap(), "b\n");
    let mut same =
        ["t_a.t", "t_a.t-2"].map(|name| fs::read_to_string(format!("{kept}/{name}/tmp/a")).unwrap());
    same.sort();
    assert_eq!(same, ["a\n", "underscore\n"]);
    // The directory is not one that was used before, and none that a test can write to.
    suite.test(&options, &["c.t"]).fails(125, "is not empty");
    let writable = ["--tap", "--each", "--write", ".", "--keep", "new"];
    suite.test(&writable, &["c.t"]).fails(125, "where the program could change it");
    need!(has_pytest(&suite), "needs pytest");
    suite.file("test_a.py", "def test_one(): open('/tmp/one', 'w')\ndef test_two(tmp_path): pass\n");
    let new = suite.place.path("new");
    suite.test(&["--each=test", "--keep", &new], &["pytest"]).succeeds();
    assert!(Path::new(&format!("{new}/test_a.py::test_one/tmp/one")).exists());
    assert!(!Path::new(&format!("{new}/test_a.py::test_two/tmp/one")).exists());
}

#[test]
fn shell_runs_the_failed_test_alone_and_prints_no_messages() {
    need!(has_sandboxes(), "needs user namespaces");
    let suite = Suite::new();
    suite.script("a.t", "echo ok 1; echo 1..1");
    let none = shell(&suite, &["--tap", "--each"], &["a.t"], "echo opened\n");
    none.says("no test failed, so no shell is opened");
    assert!(!none.succeeds().contains("opened"));
    need!(has_pytest(&suite), "needs pytest");
    suite.file("test_a.py", "def test_one(): pass\ndef test_two(): assert 'left' == 'right'\n");
    for each in ["--each=test", "--each=file"] {
        let seen = shell(&suite, &[each], &["pytest", "-v"], "pwd; pytest -v; echo end $?\n");
        seen.says("shell in the sandbox of test_a.py");
        seen.says("; run: pytest -v");
        let out = String::from_utf8_lossy(&seen.0.stdout).into_owned();
        assert!(out.contains("test_a.py::test_two FAILED") && out.contains("end 1\n"), "{out}");
        assert_eq!(out.contains("test_a.py::test_one PASSED"), each == "--each=file", "{out}");
        assert!(!out.contains('\u{1e}'), "{out}");
        assert_eq!(seen.0.status.code(), Some(101));
    }
}

#[test]
fn shell_of_go_runs_the_failed_test() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(has_go(), "needs go");
    let suite = Suite::new();
    suite.file("go.mod", "module example.com/a\n\ngo 1.20\n");
    let test = "package a\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) {}\nfunc TestTwo(t *testing.T) { t.Fatal(\"wrong\") }\n";
    suite.file("a_test.go", test);
    let seen = shell(&suite, &["--each"], &["go", "test", "./..."], "pwd; ls; echo end\n");
    seen.says("shell in the sandbox of example.com/a.TestTwo; run: ");
    seen.says("/test -test.v '-test.run=^TestTwo$'");
    let out = String::from_utf8_lossy(&seen.0.stdout).into_owned();
    assert!(out.contains("a_test.go") && out.contains("end\n"), "{out}");
}
