//! `test` with reports on any program, and with adapters that give the tests of pytest, go and TAP sandboxes of their
//! own. The tests of pytest and go need these tools; those of TAP are shell scripts.

use crate::hermetic::{Project, has_sandboxes};
use crate::util::{Seen, need};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A project with a report.
pub(crate) struct Suite {
    pub(crate) place: Project,
    json: String,
}

impl Suite {
    pub(crate) fn new() -> Self {
        let place = Project::new();
        let json = place.path("lines.json");
        Self { place, json }
    }

    /// Writes a file of the project.
    pub(crate) fn file(&self, name: &str, text: impl AsRef<[u8]>) -> &Self {
        let path = self.place.path(&format!("here/{name}"));
        fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    pub(crate) fn script(&self, name: &str, text: &str) -> &Self {
        self.file(name, format!("#!/bin/sh\n{text}"));
        let path = self.place.path(&format!("here/{name}"));
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    pub(crate) fn command(&self, options: &[&str], program: &[&str]) -> Command {
        drop(fs::remove_file(&self.json));
        self.place.command(&[&["--json", &self.json], options].concat(), program)
    }

    pub(crate) fn test(&self, options: &[&str], program: &[&str]) -> Seen {
        Seen(self.command(options, program).output().unwrap())
    }

    fn lines(&self) -> Vec<Value> {
        let lines = fs::read_to_string(&self.json).unwrap();
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        // The other lines of a shard are for '--merge'.
        lines.filter(|line| line["test"].is_string()).collect()
    }

    /// Returns the verdict on each test, with the reason if it was ignored.
    fn verdicts(&self) -> BTreeMap<String, String> {
        let verdict = |line: &Value| {
            let why = line["why"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
            (text(&line["test"]), text(&line["verdict"]) + &why)
        };
        let lines = self.lines();
        let verdicts: BTreeMap<_, _> = lines.iter().map(verdict).collect();
        assert_eq!(verdicts.len(), lines.len(), "{lines:?}");
        verdicts
    }

    fn output(&self, test: &str) -> String {
        let lines = self.lines();
        text(&lines.iter().find(|line| line["test"] == test).expect(test)["output"])
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn verdicts<'v>(pairs: &[(&'v str, &'v str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, verdict)| ((*name).to_owned(), (*verdict).to_owned())).collect()
}

#[test]
fn any_program_is_one_test_of_the_reports() {
    need!(has_sandboxes(), "needs user namespaces");
    let suite = Suite::new();
    let (junit, page) = (suite.place.path("out/junit.xml"), suite.place.path("out/page.html"));
    let secret = suite.place.path("home/secret");
    let script = format!("cat {secret} || exit 7");
    let seen = suite.test(&["--junit", &junit, "--html", &page], &["sh", "-c", &script]);
    seen.fails(7, &format!("show it with '--read {secret}'"));
    let line = suite.lines().remove(0);
    let name = format!("sh -c '{script}'");
    assert_eq!((&line["test"], &line["status"]), (&name.into(), &"exit status: 7".into()));
    assert_eq!(line["denied"][0]["option"], format!("--read {secret}"), "{line}");
    let junit = fs::read_to_string(junit).unwrap();
    assert!(junit.contains("tests=\"1\" failures=\"1\""), "{junit}");
    assert!(fs::read_to_string(page).unwrap().contains("<h1 class=\"failed\">"));
    // A long command line is shortened, and the program's output is still its own.
    suite.test(&[], &["echo", &"a".repeat(300)]).prints(&("a".repeat(300) + "\n"));
    let line = suite.lines().remove(0);
    assert_eq!((text(&line["test"]).chars().count(), &line["verdict"]), (101, &"passed".into()));
}

#[test]
fn any_program_can_be_run_again_until_it_passes() {
    need!(has_sandboxes(), "needs user namespaces");
    let suite = Suite::new();
    let here = suite.place.path("here");
    let script = "test -e left && exit; echo > left; exit 3";
    let seen = suite.test(&["--write", &here, "--retries=2"], &["sh", "-c", script]);
    seen.says("husk: attempt 1 failed (exit status: 3); running it again");
    seen.says("husk: flaky: passed at attempt 2");
    seen.prints("");
    let line = suite.lines().remove(0);
    assert_eq!((&line["verdict"], &line["attempts"]), (&"flaky".into(), &2.into()));
    suite.test(&["--retries=2"], &["sh", "-c", "exit 3"]).fails(3, "attempt 2 failed");
    assert_eq!(suite.lines().remove(0)["attempts"], 3);
    // Options of husk.toml apply to every program.
    suite.file("husk.toml", "retries = 1\n");
    suite.test(&[], &["sh", "-c", "exit 3"]).fails(3, "attempt 1 failed");
}

#[test]
fn any_program_is_in_the_first_shard() {
    need!(has_sandboxes(), "needs user namespaces");
    let suite = Suite::new();
    suite.test(&["--shard", "1/2", "--fail-fast"], &["echo", "run"]).prints("run\n");
    let seen = suite.test(&["--shard", "2/2"], &["echo", "run"]);
    seen.prints("");
    seen.says("not run: the program is one test, and so in shard 1/2, not 2/2");
    assert_eq!(suite.lines(), Vec::<Value>::new());
}

const POINTS: &str = r##"
echo "TAP version 14"
echo "1..6"
echo "    ok 1 - part"
echo "ok 1 - adds"
echo "not ok 2 - subtracts"
echo "# expected 1"
echo "written to standard error, and no newline" | tr -d '\n' >&2
echo "ok 3 - multiplies # SKIP slow"
echo "not ok 4 - divides # TODO later"
echo "ok"
printf 'not ok 6 \000\377 \033[31m%s\n' "$(head -c 100000 /dev/zero | tr '\000' a)"
"##;

#[test]
fn points_of_tap_are_tests() {
    need!(has_sandboxes(), "needs user namespaces");
    let suite = Suite::new();
    suite.script("points.t", POINTS);
    let seen = suite.test(&["--tap"], &["./points.t"]);
    seen.fails(101, "");
    seen.shows("running 1 program\n");
    seen.shows("2 passed; 2 failed; 2 ignored;");
    let found = suite.verdicts();
    let expected = [
        ("points.t 1 - adds", "passed"),
        ("points.t 2 - subtracts", "failed"),
        ("points.t 3 - multiplies", "ignored: slow"),
        ("points.t 4 - divides", "ignored: TODO later"),
        ("points.t 5", "passed"),
    ];
    for (name, verdict) in expected {
        assert_eq!(found.get(name).map(String::as_str), Some(verdict), "{name}: {found:?}");
    }
    let last = found.keys().find(|name| name.starts_with("points.t 6")).unwrap();
    assert!(!last.contains(['\0', '\x1b']) && last.len() < 300, "{last}");
    let said = suite.output("points.t 2 - subtracts");
    assert_eq!(said, "not ok 2 - subtracts\n# expected 1\nwritten to standard error, and no newline");
}

#[test]
fn wrong_tap_is_a_failure() {
    need!(has_sandboxes(), "needs user namespaces");
    let suite = Suite::new();
    for (script, why) in [
        ("echo 1..2; echo ok", "planned 2 test points, but has 1"),
        ("echo ok", "has no plan"),
        ("echo 1..1; echo ok 2", "test point 2 comes where 1 was expected"),
        ("echo 1..1; echo ok; echo 1..1", "has more than one plan"),
        ("echo 1..3; echo ok; echo 'Bail out! no disk'", "bailed out: no disk"),
        ("echo 1..1; echo ok; echo why >&2; exit 3", "why"),
        ("echo 1..1; echo ok; kill -9 $$", "1..1\nok\n"),
    ] {
        suite.script("wrong.t", script).test(&["--tap", "--explain=off"], &["./wrong.t"]).fails(101, "");
        assert_eq!(suite.verdicts()["wrong.t"], "failed", "{script}");
        assert!(suite.output("wrong.t").contains(why), "{script}: {}", suite.output("wrong.t"));
    }
    suite.script("all.t", "echo '1..0 # SKIP not here'").test(&["--tap"], &["./all.t"]).succeeds();
    assert_eq!(suite.verdicts(), verdicts(&[("all.t", "ignored: not here")]));
}

#[test]
fn programs_of_tap_have_sandboxes_of_their_own() {
    need!(has_sandboxes(), "needs user namespaces");
    let suite = Suite::new();
    let script = "echo 1..1; test -e /tmp/left && echo not ok || echo ok $1; echo > /tmp/left";
    suite.script("t/a.t", script).script("t/b.t", script).script("c.t", script);
    suite.test(&["--tap", "--each"], &["t/a.t", "t/b.t", "c.t"]).succeeds();
    let all = [("t/a.t 1", "passed"), ("t/b.t 1", "passed"), ("c.t 1", "passed")];
    assert_eq!(suite.verdicts(), verdicts(&all));
    // Each program is in one shard.
    let mut found = BTreeMap::new();
    for shard in ["1/2", "2/2"] {
        suite.test(&["--tap", "--each", "--shard", shard], &["t/a.t", "t/b.t", "c.t"]).succeeds();
        found.append(&mut suite.verdicts());
    }
    assert_eq!(found, verdicts(&all));
    // Overrides of husk.toml apply to programs by name.
    suite.script("c.t", "echo 1..1; test \"$A\" && echo ok || echo not ok");
    suite.file("husk.toml", "[[override]]\ntest = \"c.t\"\nenv = \"A=1\"\n");
    suite.test(&["--tap", "--each"], &["t/a.t", "c.t"]).succeeds();
}

#[test]
fn failed_points_of_tap_are_explained_and_run_again() {
    need!(has_sandboxes(), "needs user namespaces");
    let suite = Suite::new();
    let data = suite.place.path("home/data");
    fs::write(&data, "").unwrap();
    suite.script("a.t", &format!("echo 1..2; echo ok 1; cat {data} >&2 && echo ok 2 || echo not ok 2"));
    suite.test(&["--tap"], &["./a.t"]).shows(&format!("husk: passes with: husk test --read {data}"));
    let here = suite.place.path("here");
    suite.script("a.t", "echo 1..2; echo ok 1; test -e left && echo ok 2 || echo not ok 2; echo > left");
    suite.test(&["--tap", "--write", &here, "--retries=1"], &["./a.t"]).succeeds();
    assert_eq!(suite.verdicts(), verdicts(&[("a.t 1", "passed"), ("a.t 2", "flaky")]));
    // So is a program that fails for itself.
    fs::remove_file(suite.place.path("here/left")).unwrap();
    suite.script("a.t", "echo 1..1; echo ok 1; test -e left || { echo > left; exit 1; }");
    suite.test(&["--tap", "--write", &here, "--retries=1"], &["./a.t"]).succeeds();
    assert_eq!(suite.verdicts(), verdicts(&[("a.t 1", "passed"), ("a.t", "flaky")]));
}

#[test]
fn command_without_an_adapter_is_refused() {
    let suite = Suite::new();
    suite
        .test(&["--each"], &["make", "test"])
        .fails(125, "--each needs a command that runs pytest or 'go test'");
    suite.test(&["--each=package"], &["pytest"]).fails(125, "--each=package is for 'go test'");
    suite.test(&["--each=file"], &["go", "test"]).fails(125, "--each=file is for pytest");
    suite.test(&["--each=test", "--tap"], &["a.t"]).fails(125, "leave out its value");
}

const TESTS: &str = r#"
import os, sys
import pytest

@pytest.mark.parametrize("word", ["a b", "x[y]::z", "ä/\n", "\ud800", ""])
def test_words(word): pass

def test_fails(capfd):
    print("said")
    os.write(1, b"\n\x1e0123456789abcdef call 00 00\n\0\xff")
    assert "left" == "right"

@pytest.mark.skip(reason="not here")
def test_skipped(): pass

@pytest.mark.xfail(reason="known")
def test_fails_as_known(): assert False

@pytest.mark.xfail(reason="known", strict=True)
def test_passes_unexpectedly(): pass

class TestState:
    @pytest.fixture
    def broken(self): raise OSError("no fixture")
    def test_setup_fails(self, broken): pass
    def test_state(self):
        assert not os.path.exists("/tmp/left")
        open("/tmp/left", "w").close()
"#;

pub(crate) fn has_pytest(suite: &Suite) -> bool {
    Command::new("pytest").arg("--version").output().is_ok_and(|said| said.status.success())
        && suite.place.test(&[], &["pytest", "--version"]).0.status.success()
}

#[test]
fn tests_of_pytest_have_sandboxes_of_their_own() {
    need!(has_sandboxes(), "needs user namespaces");
    let suite = Suite::new();
    need!(has_pytest(&suite), "needs pytest");
    let module = "import pytest\npytest.skip('no such machine', allow_module_level=True)\n";
    suite
        .file("test_a.py", TESTS)
        .file("sub dir/test_ü.py", "def test_one(): pass\n")
        .file("test_c.py", module);
    let mut expected = verdicts(&[
        ("test_a.py::test_words[a b]", "passed"),
        ("test_a.py::test_words[x[y]::z]", "passed"),
        ("test_a.py::test_words[\\xe4/\\n]", "passed"),
        ("test_a.py::test_words[\\ud800]", "passed"),
        ("test_a.py::test_words[]", "passed"),
        ("test_a.py::test_fails", "failed"),
        ("test_a.py::test_skipped", "ignored: not here"),
        ("test_a.py::test_fails_as_known", "ignored: xfail known"),
        ("test_a.py::test_passes_unexpectedly", "failed"),
        ("test_a.py::TestState::test_setup_fails", "failed"),
        ("test_a.py::TestState::test_state", "passed"),
        ("sub dir/test_ü.py::test_one", "passed"),
        ("test_c.py", "ignored: no such machine"),
    ]);
    for each in ["--each", "--each=test"] {
        suite.test(&[each, "--explain=off"], &["pytest"]).fails(101, "");
        assert_eq!(suite.verdicts(), expected, "{each}");
        let said = suite.output("test_a.py::test_fails");
        assert!(said.contains("assert 'left' == 'right'") && said.contains("said"), "{said}");
        assert!(suite.output("test_a.py::TestState::test_setup_fails").contains("no fixture"));
    }
    // Arguments of pytest choose the tests, also through another program.
    expected.retain(|name, _| name.contains("TestState"));
    let words = ["python3", "-m", "pytest", "-q", "test_a.py::TestState"];
    suite.test(&["--each=test", "--explain=off"], &words).fails(101, "");
    assert_eq!(suite.verdicts(), expected);
    assert!(!fs::exists(suite.place.path("here/.pytest_cache")).unwrap());
}

#[test]
fn errors_of_pytest_are_failures() {
    need!(has_sandboxes(), "needs user namespaces");
    let suite = Suite::new();
    need!(has_pytest(&suite), "needs pytest");
    suite.file("test_a.py", "import no_such_module\n").file("test_b.py", "def test_one(): pass\n");
    let seen = suite.test(&["--each", "--explain=off"], &["pytest"]);
    seen.fails(101, "");
    seen.shows("husk: 1 tests were not run");
    assert_eq!(suite.verdicts(), verdicts(&[("test_a.py", "failed")]));
    assert!(suite.output("test_a.py").contains("No module named 'no_such_module'"));
    suite.test(&["--each", "--explain=off"], &["pytest", "--continue-on-collection-errors"]).fails(101, "");
    assert_eq!(suite.verdicts(), verdicts(&[("test_a.py", "failed"), ("test_b.py::test_one", "passed")]));
    // Errors of the command line, and a selection without tests.
    for words in [["pytest", "--no-such-option"], ["pytest", "-k=nothing"]] {
        suite.file("test_a.py", "").test(&["--each", "--explain=off"], &words).fails(101, "");
        assert_eq!(suite.verdicts(), verdicts(&[("pytest", "failed")]), "{words:?}");
    }
    // A test that ends its process, and one that has not begun then.
    suite.file(
        "test_b.py",
        "import os\ndef test_one(): pass\ndef test_two(): os._exit(0)\ndef test_three(): pass\n",
    );
    suite.test(&["--each", "--explain=off"], &["pytest"]).shows("husk: 1 tests were not run");
    assert_eq!(
        suite.verdicts(),
        verdicts(&[("test_b.py::test_one", "passed"), ("test_b.py::test_two", "failed")])
    );
}

const GO: &str = r#"package a
import ("fmt"; "os"; "testing")
func TestPasses(t *testing.T) { if _, err := os.Stat("testdata/file"); err != nil { t.Fatal(err) } }
func TestFails(t *testing.T) { fmt.Print("no newline"); t.Run("sub", func(t *testing.T) { t.Error("on purpose") }) }
func TestSkips(t *testing.T) { t.Skip("not here") }
func TestState(t *testing.T) {
    if _, err := os.Stat("/tmp/left"); err == nil { t.Fatal("left") }
    os.WriteFile("/tmp/left", nil, 0o600)
}
func TestLies(t *testing.T) { fmt.Println("--- PASS: TestLies (0.00s)\n=== RUN   TestOther"); t.Run("ok", func(*testing.T) {}) ; t.Fail() }
func BenchmarkOne(b *testing.B) {}
func Example() { fmt.Println("one") // Output: one
}
func FuzzSeeds(f *testing.F) { f.Add(1); f.Fuzz(func(t *testing.T, n int) { if n == 2 { t.Error(n) } }) }
"#;

pub(crate) fn has_go() -> bool {
    Command::new("go").arg("version").output().is_ok_and(|said| said.status.success())
}

impl Suite {
    /// Runs go with the caller's cache, because building its library takes long.
    pub(crate) fn go(&self, options: &[&str], words: &[&str]) -> Seen {
        let cache = Command::new("go").args(["env", "GOCACHE"]).output().unwrap().stdout;
        let cache = String::from_utf8(cache).unwrap();
        let mut command =
            self.command(&[options, &["--explain=off"]].concat(), &[&["go", "test"], words].concat());
        command.env("GOCACHE", cache.trim()).env("GOFLAGS", "-mod=mod").env("GOPROXY", "off");
        Seen(command.output().unwrap())
    }
}

#[test]
fn tests_of_go_have_sandboxes_of_their_own() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(has_go(), "needs go");
    let suite = Suite::new();
    suite
        .file("go.mod", "module example.org/m\ngo 1.20\n")
        .file("a/a_test.go", GO)
        .file("a/testdata/file", "");
    suite.file("empty/empty.go", "package empty\n");
    let mut expected = verdicts(&[
        ("example.org/m/a.TestPasses", "passed"),
        ("example.org/m/a.TestFails", "failed"),
        ("example.org/m/a.TestSkips", "ignored: not here"),
        ("example.org/m/a.TestState", "passed"),
        ("example.org/m/a.TestLies", "failed"),
        ("example.org/m/a.Example", "passed"),
        ("example.org/m/a.FuzzSeeds", "passed"),
    ]);
    for each in ["--each", "--each=package"] {
        suite.go(&[each], &["./..."]).fails(101, "");
        assert_eq!(suite.verdicts(), expected, "{each}");
        let said = suite.output("example.org/m/a.TestFails");
        assert!(said.contains("on purpose") && said.contains("no newline"), "{said}");
    }
    // go reads its own arguments.
    suite.go(&["--each"], &["-run", "Fails/other|State", "-v", "-json", "./a"]).succeeds();
    expected.retain(|name, _| name.ends_with("TestState") || name.ends_with("TestFails"));
    expected.values_mut().for_each(|verdict| *verdict = "passed".to_owned());
    assert_eq!(suite.verdicts(), expected);
    suite.go(&["--each"], &["-run", "Fails/other", "./a"]).succeeds();
    suite.go(&["--each"], &["-skip", "Fails|Lies", "./a"]).succeeds();
    assert_eq!(suite.verdicts().len(), 5);
    suite.go(&["--each"], &["-bench=.", "./a"]).fails(101, "");
    assert!(suite.output("go test").contains("with -bench, all tests of a package run in one process"));
}

#[test]
fn tests_of_go_are_run_again_although_there_is_a_cache() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(has_go(), "needs go");
    let suite = Suite::new();
    suite
        .file("go.mod", "module example.org/m\ngo 1.20\n")
        .file("a_test.go", "package a\nimport \"testing\"\nfunc TestOne(t *testing.T) {}\n");
    let store = TempDir::new().unwrap();
    let options = ["--each", "--cache", store.path().to_str().unwrap()];
    for _ in 0..2 {
        suite.go(&options, &["./..."]).says("not cached: 'go test' builds its binaries anew in each run");
        assert_eq!(suite.verdicts(), verdicts(&[("example.org/m.TestOne", "passed")]));
        assert!(suite.lines().iter().all(|line| line["cached"] == false));
    }
    let inputs = [&options[..], &["--inputs", "**"]].concat();
    suite.go(&inputs, &["./..."]).fails(125, "needs the toolchain and its caches, which --inputs hides");
}

#[test]
fn packages_that_cannot_be_built_are_failures() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(has_go(), "needs go");
    let suite = Suite::new();
    let test = "package p\nimport \"testing\"\nfunc TestOne(t *testing.T) {}\n";
    suite.file("go.mod", "module example.org/m\ngo 1.20\n").file("a/a_test.go", test);
    suite.file("b/b_test.go", format!("{test}func TestTwo(t *testing.T) {{ nothing() }}\n"));
    suite.file(
        "c/c_test.go",
        "package c\nimport \"testing\"\nfunc TestMain(m *testing.M) { panic(\"no\") }\n",
    );
    suite.go(&["--each"], &["./..."]).fails(101, "");
    let expected =
        [("example.org/m/a.TestOne", "passed"), ("example.org/m/b", "failed"), ("example.org/m/c", "failed")];
    assert_eq!(suite.verdicts(), verdicts(&expected));
    let said = suite.output("example.org/m/b");
    assert!(said.starts_with("# example.org/m/b") && said.contains("undefined: nothing"), "{said}");
    assert!(suite.output("example.org/m/c").contains("panic: no"));
    suite.go(&["--each"], &["./no/such"]).fails(101, "");
    assert_eq!(suite.verdicts().len(), 1);
}
