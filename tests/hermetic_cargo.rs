//! `test --runner` as cargo and nextest call it, with the tests of the example.

use crate::hermetic::{Project, has_sandboxes};
use crate::hermetic_libtest::has_rustc;
use crate::hermetic_services::{lines, server};
use crate::util::{Seen, guest, need};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::NamedTempFile;

/// A copy of the example project, with husk as cargo's runner.
struct CargoProject {
    place: Project,
}

impl CargoProject {
    fn new() -> Self {
        let place = Project::new();
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/hermetic-cargo");
        fs::create_dir(place.path("here/src")).unwrap();
        for file in ["Cargo.toml", "src/lib.rs"] {
            fs::copy(example.join(file), place.path("here").as_str().to_owned() + "/" + file).unwrap();
        }
        Self { place }
    }

    /// Runs `cargo` with these words and with husk as its runner, with these options.
    fn cargo(&self, options: &str, words: &[&str]) -> Seen {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let runner = format!("{} test {options} --runner", env!("CARGO_BIN_EXE_husk"));
        for target in ["X86_64_UNKNOWN_LINUX_GNU", "AARCH64_UNKNOWN_LINUX_GNU"] {
            command.env(format!("CARGO_TARGET_{target}_RUNNER"), &runner);
        }
        command.env_remove("CARGO_BUILD_TARGET");
        command
            .args(words)
            .current_dir(self.place.path("here"))
            .env("CARGO_TARGET_DIR", self.place.path("here/target"));
        command
            .env_remove("RUST_BACKTRACE")
            .env("RUSTUP_TOOLCHAIN", option_env!("RUSTUP_TOOLCHAIN").unwrap_or("stable"));
        Seen(command.output().unwrap())
    }

    /// Returns the path of the project's test binary.
    fn binary(&self) -> PathBuf {
        let files = fs::read_dir(self.place.path("here/target/debug/deps")).unwrap();
        let mut files = files.map(|file| file.unwrap().path());
        let is_binary = |path: &PathBuf| {
            path.extension().is_none() && path.to_string_lossy().contains("/hermetic_cargo-")
        };
        files.find(is_binary).expect("a binary")
    }
}

#[test]
fn each_cargo_test_has_its_own_sandbox() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(has_rustc(), "needs a compiler");
    let project = CargoProject::new();
    let seen = project.cargo("", &["test", "--offline", "--lib"]).succeeds();
    for line in [
        "running 7 tests",
        "test tests::first_server_listens ... ok",
        "test tests::second_server_listens ... ok",
        "test tests::home_is_private ... ok",
        "test tests::source_is_unchanged - should panic ... ok",
        "test tests::always_hangs ... ignored, takes for ever",
        "test result: ok. 4 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out; finished in",
    ] {
        assert!(seen.contains(line), "{line}\n{seen}");
    }
    assert!(!fs::exists("/tmp/hermetic-cargo").unwrap());
    let filtered = ["test", "--offline", "--lib", "--", "listens", "--skip", "second"];
    let filtered = project.cargo("", &filtered).succeeds();
    assert!(filtered.contains("running 1 test\ntest tests::first_server_listens ... ok"), "{filtered}");

    let failing = project.cargo("--timeout 1s", &["test", "--offline", "--lib", "--", "--ignored"]);
    failing.fails(101, "");
    let text = String::from_utf8_lossy(&failing.0.stdout);
    for line in [
        "test tests::always_fails ... FAILED\n",
        "test tests::always_aborts ... FAILED (signal: 6 (SIGABRT)",
        "test tests::always_hangs ... FAILED (killed: time limit of 1 s reached)",
        "---- tests::always_fails stdout ----\nsaid\n",
        "panicked at src/lib.rs",
        "test result: FAILED. 0 passed; 3 failed;",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    check_nextest_requests(&project);
    check_report_of_each_test(&project);
}

/// nextest gets the list of tests unchanged, and each test it runs has a sandbox.
fn check_nextest_requests(project: &CargoProject) {
    let binary = project.binary();
    let ask = |phase: &str, words: &[&str]| {
        let mut command =
            project.place.command(&["--runner"], &[&[binary.to_str().unwrap()], words].concat());
        Seen(command.env("NEXTEST_TEST_PHASE", phase).output().unwrap())
    };
    let list = ask("list", &["--list", "--format", "terse"]).succeeds();
    assert!(list.lines().all(|line| line.ends_with(": test")), "{list}");
    let seen = ask("run", &["--exact", "tests::first_server_listens", "--nocapture"]).succeeds();
    assert!(seen.contains("test tests::first_server_listens ... ok"), "{seen}");
    assert_eq!(
        ask("run", &["--exact", "tests::always_fails", "--nocapture", "--ignored"]).0.status.code(),
        Some(101)
    );
}

/// Shards together run every test once, and the report has one line for each test.
fn check_report_of_each_test(project: &CargoProject) {
    let json = project.place.path("json");
    for part in ["1/2", "2/2"] {
        let options = format!("--shard {part} --json {json}");
        project.cargo(&options, &["test", "--offline", "--lib"]).succeeds();
    }
    let lines = fs::read_to_string(&json).unwrap();
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // Other lines are for '--merge'.
    let ran = |line: &&serde_json::Value| line["test"].is_string() && line["verdict"] != "ignored";
    let mut names: Vec<_> = lines.iter().filter(ran).map(|line| line["test"].as_str().unwrap()).collect();
    names.sort_unstable();
    let wanted = ["first_server_listens", "home_is_private", "second_server_listens", "source_is_unchanged"];
    assert_eq!(names, wanted.map(|name| format!("tests::{name}")));
    assert!(
        lines
            .iter()
            .filter(ran)
            .all(|line| line["verdict"] == "passed" && line["wall_ms"].as_f64().unwrap() > 0.0)
    );
    let words = ["test", "--offline", "--lib", "--", "--ignored", "--test-threads=1", "always_"];
    let fast = project.cargo("--fail-fast", &words);
    fast.fails(101, "");
    let text = String::from_utf8_lossy(&fast.0.stdout).into_owned();
    assert!(text.contains("0 passed; 1 failed;"), "{text}");
}

/// Covers doctests, compiled together and standalone, and benchmarks.
#[test]
fn doctests_and_benches_run_in_sandboxes() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(has_rustc(), "needs a compiler");
    let project = CargoProject::new();
    let add = |file: &str, text: &str| {
        let path = project.place.path(file);
        let before = fs::read_to_string(&path).unwrap_or_default();
        fs::write(path, before + text).unwrap();
    };
    // A doctest has pid 2 only inside a sandbox.
    let test = "/// assert_eq!(std::process::id(), 2);\n/// ```\n";
    // rustdoc's binaries are below /tmp, which the sandbox replaces.
    let of_host = NamedTempFile::new_in("/tmp").unwrap();
    let sees = format!("/// assert!(!std::path::Path::new({:?}).exists());\n", of_host.path());
    let documented =
        format!("/// ```\n{sees}{test}/// ```standalone_crate\n{sees}{test}pub fn documented() {{}}\n");
    add("here/src/lib.rs", &documented);
    add("here/Cargo.toml", "[[bench]]\nname = \"timed\"\nharness = false\n");
    fs::create_dir(project.place.path("here/benches")).unwrap();
    add("here/benches/timed.rs", "fn main() { println!(\"timed in {}\", std::process::id()) }\n");
    let tested = project.cargo("", &["test", "--offline", "--doc"]).succeeds();
    assert!(tested.contains("2 passed") && tested.contains("1 passed"), "{tested}");
    let timed = project.cargo("", &["bench", "--offline", "--bench", "timed"]).succeeds();
    assert!(timed.contains("timed in 2"), "{timed}");
}

/// The tests of two binaries and of the documentation ask a server how often it was asked.
#[test]
fn binaries_and_doctests_of_a_package_share_services_as_husk_toml_says() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(has_rustc(), "needs a compiler");
    let project = CargoProject::new();
    let write =
        |file: &str, text: &str| fs::write(project.place.path(&format!("here/{file}")), text).unwrap();
    let ask = r#"
        use std::io::{Read as _, Write as _};

        /// ```
        /// assert_eq!(hermetic_cargo::ask(), std::fs::read_to_string("expected").unwrap());
        /// ```
        pub fn ask() -> String {
            let mut server = std::net::TcpStream::connect(("127.0.0.1", 7340)).unwrap();
            server.write_all(b"count\n").unwrap();
            let mut answer = String::new();
            server.read_to_string(&mut answer).unwrap();
            answer.trim().to_owned()
        }
    "#;
    write("src/lib.rs", ask);
    fs::create_dir(project.place.path("here/tests")).unwrap();
    // The tests fail, so that their output is reported.
    let asks =
        |name: &str| format!("#[test]\nfn {name}() {{ panic!(\"count {{}}\", hermetic_cargo::ask()); }}\n");
    write("tests/first.rs", &(asks("one") + &asks("two")));
    write("tests/second.rs", &(asks("three") + &asks("four")));
    let counts = |per: &str, of_doctest: &str| {
        write("expected", of_doctest);
        let service = server("web", 7340).replace("GUEST", guest().to_str().unwrap());
        write("husk.toml", &format!("{service}per = \"{per}\"\n"));
        let json = project.place.path("lines.json");
        drop(fs::remove_file(&json));
        let options = format!("--explain off --json {json}");
        project.cargo(&options, &["test", "--offline", "--no-fail-fast"]).fails(101, "");
        let lines = lines(&json);
        let count = |line: &Value| {
            let output = line["output"].as_str()?;
            let count = output.lines().find_map(|line| line.strip_prefix("count ")).expect(output);
            Some((line["suite"].as_str()?.to_owned(), count.to_owned()))
        };
        assert!(
            lines
                .iter()
                .any(|line| line["suite"] == "hermetic-cargo::rust_out" && line["verdict"] == "passed"),
            "{lines:?}"
        );
        let mut counts: Vec<_> = lines.iter().filter_map(count).collect();
        counts.sort();
        counts
    };
    for _ in 0..2 {
        let found = counts("run", "5");
        let mut numbers: Vec<_> = found.iter().map(|(_, count)| count.as_str()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, ["1", "2", "3", "4"]);
    }
    let of_binaries = [("first", "1"), ("first", "2"), ("second", "1"), ("second", "2")];
    assert_eq!(
        counts("binary", "1"),
        of_binaries.map(|(suite, count)| (format!("hermetic-cargo::{suite}"), count.to_owned()))
    );
}

#[test]
fn init_adds_the_runner_only_once() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(has_rustc(), "needs a compiler");
    let project = CargoProject::new();
    let init = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_husk"));
        command.args(["test", "init"]).args(words).stdin(std::process::Stdio::null());
        command.env("RUSTUP_TOOLCHAIN", option_env!("RUSTUP_TOOLCHAIN").unwrap_or("stable"));
        Seen(command.current_dir(project.place.path("here/src")).output().unwrap())
    };
    let file = project.place.path("here/.cargo/config.toml");
    assert!(init(&["--print"]).succeeds().contains("runner = [\"husk\", \"test\", \"--runner\"]"));
    init(&[])
        .fails(125, "standard input is not a terminal; pass --yes to write the file or --print to print it");
    init(&["--no-such"]).fails(125, "init: unexpected argument '--no-such' found");
    assert!(!fs::exists(&file).unwrap());
    assert!(init(&["--yes"]).succeeds().contains(".cargo/config.toml: written"));
    let written = fs::read_to_string(&file).unwrap();
    assert!(init(&["--yes"]).succeeds().contains("already up to date"));
    assert_eq!(fs::read_to_string(&file).unwrap(), written);
    // If there is a program named `init`, husk runs it.
    let program = project.place.path("here/init");
    fs::write(&program, "#!/bin/sh\nexit 7\n").unwrap();
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = project.place.command(&[], &["init"]);
    let ended = command.env("PATH", project.place.path("here")).output().unwrap();
    assert_eq!(Seen(ended).0.status.code(), Some(7));
}

/// A repository may come from another user, so `init` does not follow links beside or in place of cargo's
/// configuration.
#[test]
fn init_follows_no_links() {
    need!(has_rustc(), "needs cargo");
    let project = CargoProject::new();
    let init = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_husk"));
        command.args(["test", "init", "--yes"]).stdin(std::process::Stdio::null());
        command.env("RUSTUP_TOOLCHAIN", option_env!("RUSTUP_TOOLCHAIN").unwrap_or("stable"));
        Seen(command.current_dir(project.place.path("here")).output().unwrap())
    };
    let victim = project.place.path("victim");
    fs::write(&victim, "before").unwrap();
    let path = |name: &str| project.place.path(&format!("here/{name}"));
    let cargo = path(".cargo");
    symlink("..", &cargo).unwrap();
    init().fails(125, ".cargo without following symlinks");
    fs::remove_file(&cargo).unwrap();
    fs::create_dir(&cargo).unwrap();
    for link in [".cargo/config.toml", ".cargo/config.toml.new"] {
        symlink("../../victim", path(link)).unwrap();
    }
    init().fails(125, "config.toml without following symlinks: too many levels of symbolic links");
    fs::remove_file(path(".cargo/config.toml")).unwrap();
    init().succeeds();
    assert!(fs::read_to_string(path(".cargo/config.toml")).unwrap().contains("husk"));
    assert_eq!(fs::read_to_string(&victim).unwrap(), "before");
    assert!(!fs::exists(project.place.path("config.toml")).unwrap());
}

#[test]
fn program_other_than_a_test_runs_without_a_sandbox() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    place.test(&["--runner"], &["sh", "-c", "cat $HOME/secret; exit 3"]).fails(3, "");
}
