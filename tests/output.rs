//! Checks streams that cannot be written, and text that a terminal would interpret.

use crate::hermetic::has_sandboxes;
use crate::hermetic_libtest::{Binary, has_rustc};
use crate::util::{Bundle, Runtime, Seen, is_husk, need};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

const NO_SPACE: &str = "no space left on device";

fn full() -> Stdio {
    File::options().write(true).open("/dev/full").expect("/dev/full").into()
}

/// Returns the writing end of a pipe whose reader is closed.
fn closed_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

/// Returns every verb that prints data, for a container `c` and this bundle.
fn verbs_with_data(bundle: &str) -> Vec<Vec<&str>> {
    let mut verbs = vec![
        vec!["--help"],
        vec!["--version"],
        vec!["run", "--help"],
        vec!["list"],
        vec!["list", "--quiet"],
        vec!["list", "--format", "json"],
        vec!["state", "c"],
        vec!["plan", bundle],
        vec!["plan", "--json", bundle],
        vec!["validate", bundle],
        vec!["features"],
        vec!["man"],
        vec!["completion", "bash"],
        vec!["completion", "words", "--", ""],
        vec!["register", "docker", "--print"],
        vec!["test", "--plan", "--", "/bin/true"],
    ];
    if crate::util::is_root() {
        verbs.push(vec!["ps", "c"]);
        verbs.push(vec!["ps", "--format", "json", "c"]);
        verbs.push(vec!["events", "--stats", "c"]);
    }
    verbs
}

/// Runs a verb with these streams. Without a stream for standard error, reads what it writes there.
fn call(runtime: &Runtime, words: &[&str], stdout: Stdio, stderr: Option<Stdio>) -> Seen {
    let mut command = runtime.command(words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(stdout);
    command.stderr(stderr.unwrap_or_else(Stdio::piped));
    Seen(command.spawn().expect("husk").wait_with_output().expect("husk"))
}

/// Returns a created container, whose streams are not read, and its bundle.
fn created() -> (Runtime, Bundle) {
    let (runtime, bundle) = (Runtime::under_test(), Bundle::running("wait"));
    runtime.create(&bundle).succeeds();
    (runtime, bundle)
}

#[test]
fn failure_to_write_data_is_exit_code_1() {
    need!(is_husk(), "tests husk's messages");
    let (runtime, bundle) = created();
    for words in verbs_with_data(bundle.path().to_str().unwrap()) {
        let seen = call(&runtime, &words, full(), None);
        assert_eq!(seen.0.status.code(), Some(1), "{words:?}");
        seen.says(&format!("husk: write standard output: {NO_SPACE}\n"));
        // An error that cannot be reported does not abort the process.
        let seen = call(&runtime, &words, full(), Some(full()));
        assert_eq!(seen.0.status.code(), Some(1), "{words:?}");
        // A stream that is not open for writing counts as unwritable too.
        let seen = call(&runtime, &words, File::open("/dev/null").unwrap().into(), None);
        seen.fails(1, "husk: write standard output: bad file descriptor\n");
    }
    // `spec` writes a file and prints nothing.
    let directory = TempDir::new().unwrap();
    let spec = ["spec", "--bundle", directory.path().to_str().unwrap()];
    assert!(call(&runtime, &spec, full(), Some(full())).0.status.success());
}

#[test]
fn closed_pipe_ends_a_verb_quietly() {
    need!(is_husk(), "other runtimes may be killed by SIGPIPE");
    let (runtime, bundle) = created();
    for words in verbs_with_data(bundle.path().to_str().unwrap()) {
        let seen = call(&runtime, &words, closed_pipe(), None);
        assert_eq!(seen.succeeds(), "", "{words:?}");
        assert_eq!(String::from_utf8_lossy(&seen.0.stderr), "", "{words:?}");
    }
    // The exit code reports an invalid bundle even without a reader.
    fs::write(bundle.path().join("config.json"), "{}").unwrap();
    let seen = call(&runtime, &["validate", bundle.path().to_str().unwrap()], closed_pipe(), None);
    assert_eq!((seen.0.status.code(), seen.0.stderr.len()), (Some(1), 0));
}

#[test]
fn closed_descriptors_abort_no_verb() {
    need!(is_husk(), "tests husk's behaviour");
    let (runtime, bundle) = created();
    for words in verbs_with_data(bundle.path().to_str().unwrap()) {
        let mut command = runtime.command(words[0]);
        command.args(&words[1..]);
        let mut shell = Command::new("sh");
        shell.args(["-c", "exec \"$@\" <&- >&- 2>&-", "sh"]);
        shell.arg(command.get_program()).args(command.get_args());
        assert_eq!(shell.status().unwrap().code(), Some(0), "{words:?}");
    }
}

#[test]
fn events_end_when_their_reader_closes_the_pipe() {
    need!(is_husk() && crate::util::is_root(), "needs root to create cgroups");
    let runtime = Runtime::started(&Bundle::running("wait"));
    let words = ["events", "--interval", "1ms", "c"];
    let seen = call(&runtime, &words, closed_pipe(), None);
    assert_eq!((seen.succeeds(), seen.0.stderr.len()), (String::new(), 0));
    call(&runtime, &words, full(), None).fails(1, &format!("write standard output: {NO_SPACE}\n"));
}

#[test]
fn warnings_that_cannot_be_written_are_dropped() {
    need!(is_husk(), "tests husk's warnings");
    for stderr in [full, closed_pipe] {
        let (runtime, bundle) = (Runtime::under_test(), Bundle::running("exit 0"));
        let log = bundle.rootfs().join("log");
        let fails = |name: &str| {
            json!({ "path": "/bin/sh",
                "args": ["sh", "-c", format!("echo {name} >>{}; exit 1", log.display())] })
        };
        let bundle = bundle.with("/hooks", json!({ "poststop": [fails("first"), fails("second")] }));
        runtime.create(&bundle).succeeds();
        let deleted = call(&runtime, &["delete", "--force", "c"], full(), Some(stderr()));
        assert_eq!(deleted.0.status.code(), Some(0));
        assert_eq!(fs::read_to_string(&log).unwrap(), "first\nsecond\n");
        assert!(runtime.is_empty());

        // An unreadable record does not hide the other containers from `list`.
        fs::create_dir(runtime.root().join("broken")).unwrap();
        fs::write(runtime.root().join("broken/state.json"), "{").unwrap();
        let listed = call(&runtime, &["list"], Stdio::piped(), Some(stderr()));
        assert!(listed.succeeds().starts_with("ID "));
        // The exit code is the same if the error cannot be written.
        assert_eq!(call(&runtime, &["state", "x"], full(), Some(stderr())).0.status.code(), Some(1));
        assert_eq!(call(&runtime, &["dance"], full(), Some(stderr())).0.status.code(), Some(3));
    }
}

#[test]
fn log_on_a_full_disk_aborts_no_verb() {
    need!(is_husk(), "tests husk's log");
    let mut runtime = Runtime::under_test();
    for globals in [
        &["--log", "/dev/full"][..],
        &["--log", "/dev/full", "--log-format", "json"],
        &["--log", "/dev/full", "--debug"],
    ] {
        runtime.globals = globals;
        runtime.run(&Bundle::running("cwd")).prints("/");
        runtime.call("state", &["x"]).fails(1, "husk: container does not exist\n");
    }
}

#[test]
fn results_that_cannot_be_written_do_not_stop_tests() {
    need!(is_husk() && has_sandboxes(), "needs husk test and user namespaces");
    need!(has_rustc(), "needs rustc");
    let binary = Binary::new();
    let run = |stdout: Stdio, report: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_husk"));
        command.args(["test", "--runner", "--json"]).arg(report).arg("--").arg(&binary.path).arg("many::");
        command.env_remove("CARGO_PKG_NAME").env_remove("CARGO_MANIFEST_DIR").stdin(Stdio::null());
        let child = command.stdout(stdout).stderr(Stdio::piped()).spawn().unwrap();
        Seen(child.wait_with_output().unwrap())
    };
    let directory = TempDir::new().unwrap();
    for (name, stdout, code, said) in [
        ("full", full(), 1, format!("husk: write standard output: {NO_SPACE}\n")),
        ("closed", closed_pipe(), 0, String::new()),
    ] {
        let report = directory.path().join(name);
        let seen = run(stdout, &report);
        assert_eq!(
            (seen.0.status.code(), String::from_utf8_lossy(&seen.0.stderr)),
            (Some(code), said.into())
        );
        assert_eq!(fs::read_to_string(&report).unwrap().lines().count(), 90);
    }
    // The report is opened before the first test, and must be a regular file.
    run(Stdio::piped(), Path::new("/dev/full")).fails(125, "husk: open /dev/full: is not a regular file\n");
}

/// Text that must not reach a terminal. ESC and U+009B begin commands. A line break begins a line that seems to be
/// husk's.
const HOSTILE: &str = "\x1b[2J\u{9b}31m\nhusk: done";
const ESCAPED: &str = "\\u001b[2J\\u009b31m\\nhusk: done";

#[track_caller]
fn is_harmless(bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).expect("text");
    let control = text.chars().find(|char| char.is_control() && *char != '\n');
    assert_eq!(control, None, "{text:?}");
    assert!(!text.lines().any(|line| line == "husk: done"), "{text}");
}

#[test]
fn control_characters_of_arguments_and_paths_are_escaped() {
    need!(is_husk(), "tests husk's messages");
    let directory = TempDir::new().unwrap();
    let place = directory.path().join(HOSTILE);
    let place = place.to_str().unwrap();
    let runtime = Runtime::under_test();
    let said = [
        runtime.typed(&[HOSTILE]),
        runtime.typed(&["list", HOSTILE]),
        runtime.typed(&["list", &format!("--{HOSTILE}")]),
        runtime.typed(&["list", "--format", HOSTILE]),
        runtime.typed(&["run", "--bundle", place, "c"]),
        runtime.typed(&["--root", place, "list"]),
        runtime.typed(&["--log", &format!("{place}/log"), "list"]),
        runtime.typed(&["state", HOSTILE]),
        runtime.typed(&["kill", "c", HOSTILE]),
        runtime.typed(&["test", "--", place]),
        runtime.typed(&["delete", "--regex", &format!("({HOSTILE}")]),
        runtime.typed(&["validate", place]),
    ];
    for (index, seen) in said.iter().enumerate() {
        assert!(!seen.0.status.success(), "{index}");
        assert!(!seen.0.stderr.is_empty() || !seen.0.stdout.is_empty(), "{index}");
        is_harmless(&seen.0.stderr);
        is_harmless(&seen.0.stdout);
    }
    said[5].says(&format!("/{ESCAPED}: no such file or directory"));
}

#[test]
fn control_characters_of_hooks_and_bundles_are_escaped() {
    need!(is_husk(), "tests husk's messages");
    let directory = TempDir::new().unwrap();
    let place = directory.path().join(HOSTILE);
    fs::create_dir(&place).unwrap();
    let words = "printf '%s\\n' \"$0\" 'more words' >&2; exit 1";
    let hook = |kind: &str| json!({ kind: [{ "path": "/bin/sh", "args": ["sh", "-c", words, HOSTILE] }] });
    let said = "\\u001b[2J\\u009b31m\n    husk: done\n    more words\n";

    // Errors and warnings
    let (mut runtime, bundle) = (Runtime::under_test(), Bundle::running("exit 0"));
    let failing = bundle.with("/hooks", hook("createRuntime"));
    let failed = runtime.run(&failing);
    failed.fails(1, said);
    is_harmless(&failed.0.stderr);
    let warned = runtime.run(&Bundle::running("exit 0").with("/hooks", hook("poststop")));
    warned.prints("");
    warned.says(said);
    is_harmless(&warned.0.stderr);

    // Logs
    let log = directory.path().join("log");
    for format in ["text", "json"] {
        let log: &'static str = String::from(log.to_str().unwrap()).leak();
        runtime.globals = vec!["--log", log, "--log-format", format].leak();
        runtime.run(&failing).fails(1, said);
        let text = fs::read(log).unwrap();
        is_harmless(&text);
        assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 1);
        fs::remove_file(log).unwrap();
        if format == "json" {
            let line: Value = serde_json::from_slice(&text).expect("JSON");
            assert!(line["msg"].as_str().unwrap().contains("\x1b[2J\u{9b}31m\n    husk: done"));
        }
    }
    runtime.globals = &[];

    // Lists
    let bundle = Bundle::running("wait").with("/annotations", json!({ "key": HOSTILE }));
    bundle.write();
    let copied = Command::new("cp").arg("-a").arg(bundle.path()).arg(place.join("b")).status().unwrap();
    assert!(copied.success());
    let create = ["--bundle", place.join("b").to_str().unwrap(), "c"].map(str::to_owned);
    let mut command = runtime.command("create");
    command.args(create);
    runtime.detached(command).succeeds();
    for words in [&["list"][..], &["list", "--format", "json"], &["state", "c"]] {
        let seen = runtime.call(words[0], &words[1..]);
        assert!(seen.succeeds().contains(ESCAPED), "{words:?}: {}", seen.succeeds());
        is_harmless(&seen.0.stdout);
        if words.len() != 1 {
            let value: Value = serde_json::from_slice(&seen.0.stdout).expect("JSON");
            let state = value.get(0).unwrap_or(&value);
            assert!(
                state["bundle"].as_str().unwrap().as_bytes().ends_with(format!("{HOSTILE}/b").as_bytes())
            );
            assert_eq!(state["annotations"]["key"], HOSTILE);
        }
    }
}
