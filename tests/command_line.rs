//! The command line: options, help, messages and logs.
//!
//! Engines pass the arguments that runc takes and read what it prints. Tests that do not require husk therefore hold
//! for runc too (`RUNTIME_UNDER_TEST`).

use crate::util::{Bundle, Runtime, is_husk, is_root, need, until_gone};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

#[track_caller]
fn json_log(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

// `HUSK_GOLDEN=write` rewrites the golden files; review the difference.
#[test]
fn help_matches_the_golden_files() {
    need!(is_husk(), "other runtimes print other messages");
    let runtime = Runtime::under_test();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help");
    let all = runtime.typed(&["--help"]).succeeds();
    let verbs = all.lines().filter_map(|line| line.strip_prefix("  ")?.split_once("  "));
    let is_verb = |verb: &&str| !verb.is_empty() && verb.chars().all(char::is_alphabetic);
    let verbs = verbs.map(|(verb, _)| verb).filter(is_verb);
    let mut found = vec![("husk".to_owned(), all.clone())];
    found.extend(verbs.map(|verb| (verb.to_owned(), runtime.typed(&[verb, "--help"]).succeeds())));
    assert!(found.len() > 8, "{all}");
    for (name, text) in found {
        let golden = directory.join(name + ".txt");
        if std::env::var_os("HUSK_GOLDEN").is_some_and(|value| value == "write") {
            fs::write(&golden, &text).unwrap();
        }
        assert_eq!(text, fs::read_to_string(&golden).unwrap_or_default(), "{}", golden.display());
        let long = text.lines().find(|line| line.chars().count() > 120);
        assert_eq!(long, None, "wider than a terminal");
    }
}

#[test]
fn help_is_available_in_several_ways() {
    let runtime = Runtime::under_test();
    let all = runtime.typed(&["--help"]).succeeds();
    for words in [&[] as &[&str], &["-h"], &["help"], &["h"]] {
        assert_eq!(runtime.typed(words).succeeds(), all, "{words:?}");
    }
    let kill = runtime.typed(&["kill", "--help"]).succeeds();
    assert_eq!(runtime.typed(&["help", "kill"]).succeeds(), kill);
    assert_eq!(runtime.typed(&["kill", "-h"]).succeeds(), kill);
    for words in [["dance", "-h"], ["dance", "--help"], ["help", "dance"]] {
        let seen = runtime.typed(&words);
        assert!(!seen.0.status.success());
        seen.says("No help topic for 'dance'");
    }
}

// dockerd splits the first line at "version" and looks for "commit:"; podman prints all of it.
#[test]
fn version_has_the_form_that_engines_know() {
    let runtime = Runtime::under_test();
    let text = runtime.typed(&["--version"]).succeeds();
    assert!(text.lines().next().unwrap().contains(" version "), "{text}");
    assert!(text.lines().any(|line| line == "spec: 1.3.0"), "{text}");
    assert_eq!(runtime.typed(&["-v"]).succeeds(), text);
}

// Readers of the output find the name they typed. go-runc looks for "runc version ".
#[test]
fn program_uses_the_name_it_is_installed_by() {
    need!(is_husk(), "tests husk's name");
    let directory = TempDir::new().unwrap();
    let called = |name: &str, words: &[&str]| {
        let link = directory.path().join(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_husk"), &link).unwrap();
        let output = Command::new(&link).args(words).output().unwrap();
        fs::remove_file(&link).unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    assert!(called("runc", &["--version"]).starts_with(concat!(
        "runc version ",
        env!("CARGO_PKG_VERSION"),
        "+husk\n"
    )));
    let help = called("runc", &["--help"]);
    assert!(help.starts_with("NAME:\n  runc - Open Container Initiative runtime"), "{help}");
    assert!(help.contains("\n  runc run --bundle web web-1 ") && help.contains("/run/husk,"), "{help}");
    let help = called("runc", &["create", "--help"]);
    assert!(help.starts_with("NAME:\n  runc create - ") && !help.contains("husk create"), "{help}");
    assert_eq!(called("runc", &["dance"]), "runc: unknown command \"dance\"\nsee 'runc --help'\n");
    let bundle = Bundle::running("exit 0").with("/process/terminal", json!(true));
    bundle.write();
    let root = directory.path().join("root");
    let words =
        ["--root", root.to_str().unwrap(), "create", "--bundle", bundle.path().to_str().unwrap(), "c"];
    for name in ["runc", "crun", "husk"] {
        let said = called(name, &words);
        let wanted = format!("cannot allocate tty if {name} will detach without setting console socket\n");
        assert!(said.ends_with(&wanted), "{said}");
    }
    // A name that is not a plain word is not repeated.
    assert!(called("\u{1b}[2J", &["dance"]).starts_with("husk: unknown"));
}

// In errors of docker and podman, tools look for runc's "runc create failed: unable to start container process: ".
#[test]
fn errors_begin_as_in_runc_under_runcs_name() {
    need!(is_husk(), "tests husk's name");
    let directory = TempDir::new().unwrap();
    let link = directory.path().join("runc");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_husk"), &link).unwrap();
    let wrong = json!({ "destination": "/x", "source": "/not/there", "type": "bind", "options": ["bind"] });
    let bundle = Bundle::running("true").mounting(wrong);
    let seen = Runtime::of(&link).run(&bundle);
    seen.fails(
        1,
        "runc run failed: unable to start container process: error during container init: error mounting: \
         mounts[2] /x: ",
    );
    let seen = Runtime::of(&link).typed(&["exec", "nobody", "true"]);
    seen.fails(255, "runc: exec failed: container does not exist");
    // In the log the field is still a member of its own.
    let log = directory.path().join("log");
    let mut create = Command::new(&link);
    create.arg("--root").arg(directory.path().join("root")).arg("--log").arg(&log);
    let output = create.args(["--log-format", "json", "create", "c", "--bundle"]).arg(bundle.path()).output();
    assert_eq!(output.unwrap().status.code(), Some(1));
    let line: Value = serde_json::from_str(&fs::read_to_string(&log).unwrap()).unwrap();
    assert!(line["msg"].as_str().unwrap().starts_with("runc create failed: unable to start"), "{line}");
    assert_eq!(line["field"], "mounts[2]");
}

#[test]
fn invalid_arguments_are_errors() {
    let runtime = Runtime::under_test();
    for (code, words) in [
        (3, &["dance"] as &[&str]),
        (1, &["--dance"]),
        (1, &["list", "--dance"]),
        (1, &["list", "too-much"]),
        (1, &["list", "--format", "sideways"]),
        (1, &["state"]),
        (1, &["state", "a", "b"]),
        (1, &["create", "--preserve-fds", "many", "c"]),
        (1, &["run", "--detach=maybe", "c"]),
        (1, &["--log-format", "sideways", "list"]),
    ] {
        let seen = runtime.typed(words);
        assert_eq!(seen.0.status.code(), Some(code), "{words:?}");
        assert!(!seen.0.stderr.is_empty(), "{words:?}");
    }
}

#[test]
fn errors_about_arguments_point_to_the_help() {
    need!(is_husk(), "other runtimes print other messages");
    let runtime = Runtime::under_test();
    let says = |words: &[&str], code, text| runtime.typed(words).fails(code, text);
    says(&["dance"], 3, "husk: unknown command \"dance\"\nsee 'husk --help'");
    says(&["state"], 1, "husk: state: ID is missing\nsee 'husk state --help'");
    says(&["list", "--dance"], 1, "husk: list: unexpected argument '--dance' found\nsee 'husk list --help'");
    says(
        &["stat", "c"],
        3,
        "husk: unknown command \"stat\"\ndid you mean 'start' or 'state'?\nsee 'husk --help'",
    );
    let slip =
        "husk: run: unexpected argument '--bundel' found\ndid you mean '--bundle'?\nsee 'husk run --help'";
    says(&["run", "--bundel", "b", "c"], 1, slip);
    let slip = "husk: test: unexpected argument '--tiemout' found\ndid you mean '--timeout'?";
    says(&["test", "--tiemout", "5s", "true"], 125, slip);
    // Options after the program's name are the program's.
    runtime.typed(&["test", "--plan", "true", "--tiemout"]).succeeds();
    // The word after an unknown option is its value, not a command.
    says(&["--lgo", "x", "list"], 1, "husk: unexpected argument '--lgo' found\ndid you mean '--log'?");
}

// podman detects in this way whether an option exists (containers/common, CRRuntimeSupportsPodCheckpointRestore).
#[test]
fn option_without_its_value_is_reported_in_runcs_words() {
    let runtime = Runtime::under_test();
    runtime.typed(&["run", "--pid-file"]).fails(1, "flag needs an argument");
    runtime.typed(&["run", "-b"]).fails(1, "flag needs an argument");
    runtime.typed(&["--log"]).fails(1, "flag needs an argument");
}

// The next file that is opened would get the number of the closed stream.
#[test]
fn output_to_a_closed_stream_is_discarded() {
    let runtime = Runtime::under_test();
    let log = runtime.root().join("log");
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        let script = format!("exec \"$0\" --root \"$1\" --log \"$1/log\" list -f json {closed}");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script]).arg(runtime.command("list").get_program()).arg(runtime.root());
        assert!(shell.output().unwrap().status.success(), "{closed}");
        assert_eq!(fs::read_to_string(&log).unwrap(), "", "{closed}");
    }
}

#[test]
fn long_options_accept_one_dash_and_both_forms_of_value() {
    let runtime = Runtime::under_test();
    let root = runtime.root().to_str().unwrap();
    let equals = [format!("--root={root}"), format!("-root={root}")];
    for words in [
        &["--root", root, "list", "--format", "json"] as &[&str],
        &["-root", root, "list", "-format", "json"],
        &[&equals[0], "list", "--format=json"],
        &[&equals[1], "list", "-format=json"],
        &["--root", root, "list", "-f", "json"],
        &["--debug=false", "--root", root, "list", "--quiet=false", "-f=json"],
        &["list", "-f", "json", "--root", root],
        &["--root", "/not/there", "list", "-f", "json", "--root", root],
    ] {
        assert_eq!(runtime.typed(words).succeeds(), "null\n", "{words:?}");
    }
}

#[test]
fn options_are_accepted_before_and_after_the_container() {
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("wait");
    bundle.write();
    let path = bundle.path().to_str().unwrap();
    let pid_file = bundle.path().join("pid");
    let pid = pid_file.to_str().unwrap();
    runtime.call("create", &["c", "-bundle", path, "--pid-file", pid]).succeeds();
    assert!(fs::read_to_string(pid_file).unwrap().parse::<u32>().is_ok());
    runtime.call("delete", &["c", "-force"]).succeeds();
    runtime.call("run", &["-no-subreaper", "--bundle", "/not/there", "c"]).fails(1, "");
    assert!(runtime.is_empty());
    // Words after `--` are not options.
    runtime.call("start", &["--", "c"]).fails(1, "container does not exist");
}

#[test]
fn list_of_an_empty_store_is_empty() {
    let runtime = Runtime::under_test();
    runtime.call("list", &["-q"]).prints("");
    let missing = runtime.root().join("missing");
    // A root directory given as an option has to exist.
    runtime.typed(&["--root", missing.to_str().unwrap(), "list"]).fails(1, "");
    runtime.typed(&["--root", "/", "list"]).fails(1, "--root");
    runtime.typed(&["--root", "/../..", "list"]).fails(1, "--root");
}

#[test]
fn store_of_a_user_is_in_the_runtime_directory() {
    need!(!is_root(), "root has another store");
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("exit 0");
    bundle.write();
    let created = runtime.typed(&["run", "--bundle", bundle.path().to_str().unwrap(), "in-runtime-dir"]);
    created.succeeds();
    let made = fs::read_dir(runtime.root()).unwrap().next().unwrap().unwrap();
    assert_eq!(made.metadata().unwrap().permissions().mode() & 0o7777, 0o1700);
}

#[test]
fn log_is_created_even_if_it_stays_empty() {
    let runtime = Runtime::under_test();
    let log = runtime.root().join("log");
    let root = runtime.root().to_str().unwrap();
    runtime.typed(&["--log", log.to_str().unwrap(), "--root", root, "list", "-q"]).succeeds();
    assert_eq!(fs::read_to_string(&log).unwrap(), "");
    let nowhere = runtime.root().join("not/there");
    runtime.typed(&["--log", nowhere.to_str().unwrap(), "--root", root, "list"]).fails(1, "");
}

// containerd reads `level`, `msg` and `time` of the last object; podman parses the whole file as one object.
#[test]
fn error_is_one_json_object_in_the_log_and_one_line_on_stderr() {
    let runtime = Runtime::under_test();
    let log = runtime.root().join("log");
    let log_words = ["--log", log.to_str().unwrap(), "--log-format", "json"];
    let seen = runtime.typed(&[&log_words as &[&str], &["--root", "/not-there", "state", "c"]].concat());
    seen.fails(1, "container does not exist");
    assert!(!String::from_utf8_lossy(&seen.0.stderr).contains('{'));
    let objects = json_log(&log);
    assert_eq!(objects.len(), 1);
    assert_eq!(objects[0]["level"], "error");
    assert_eq!(objects[0]["msg"], "container does not exist");
    let time = objects[0]["time"].as_str().unwrap();
    assert!(time.len() >= 20 && time.ends_with('Z') && time.as_bytes()[10] == b'T', "{time}");
}

#[test]
fn log_option_accepts_a_kind_before_the_path() {
    need!(is_husk(), "the syntax is crun's");
    let runtime = Runtime::under_test();
    let log = runtime.root().join("log");
    let said = format!("--log=file:{}", log.display());
    runtime.typed(&[&said, "--root", "/not-there", "state", "c"]).fails(1, "container does not exist");
    assert!(fs::read_to_string(log).unwrap().contains("container does not exist"));
}

#[test]
fn syslog_and_journal_receive_messages() {
    need!(is_husk(), "the syntax is crun's");
    need!(is_root(), "needs root to mount over /dev/log");
    let directory = TempDir::new().unwrap();
    let place = directory.path().join("systemd/journal");
    fs::create_dir_all(&place).unwrap();
    let (syslog, journal) = (directory.path().join("log"), place.join("socket"));
    let (syslog, journal) = (UnixDatagram::bind(syslog).unwrap(), UnixDatagram::bind(journal).unwrap());
    let told = |socket: &UnixDatagram, covered: &str, words: &[&str]| {
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "sh", "-c", "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$0\" \"$@\""]);
        shell.arg(env!("CARGO_BIN_EXE_husk")).arg(directory.path()).arg(covered).args(words);
        let output = shell.args(["--root", "/not-there", "state", "c"]).output().unwrap();
        // Standard error still has the message for people.
        assert_eq!(String::from_utf8_lossy(&output.stderr), "husk: container does not exist\n");
        let mut bytes = [0; 1024];
        let length = socket.recv(&mut bytes).unwrap();
        bytes[..length].to_vec()
    };
    let datagram = String::from_utf8(told(&syslog, "/dev", &["--log=syslog:web"])).unwrap();
    assert!(datagram.starts_with("<11>web["), "{datagram}");
    assert!(datagram.ends_with("]: container does not exist"), "{datagram}");
    let datagram = told(&journal, "/run", &["--log", "journald:"]);
    let wanted = b"PRIORITY\n\x01\0\0\0\0\0\0\x003\nSYSLOG_IDENTIFIER\n\x04\0\0\0\0\0\0\0husk\n\
        MESSAGE\n\x18\0\0\0\0\0\0\0container does not exist\n";
    assert_eq!(datagram, wanted);
    let datagram = String::from_utf8(told(&syslog, "/dev", &["--log=syslog:", "--log-format=json"])).unwrap();
    let (_, object) = datagram.split_once("]: ").unwrap();
    assert_eq!(serde_json::from_str::<Value>(object).unwrap()["level"], "error");
}

#[test]
fn log_level_filters_messages() {
    need!(is_husk(), "the option is crun's");
    let runtime = Runtime::under_test();
    let bundle =
        Bundle::running("exit 0").with("/process/capabilities", json!({ "bounding": ["CAP_OF_THE_FUTURE"] }));
    bundle.write();
    let root = runtime.root().join("containers");
    let run = ["--root", root.to_str().unwrap(), "run", "--bundle", bundle.path().to_str().unwrap(), "c"];
    let said = |words: &[&str]| {
        let seen = runtime.typed(&[words, &run].concat());
        seen.succeeds();
        String::from_utf8(seen.0.stderr).unwrap()
    };
    assert_eq!(said(&["--log-level", "error"]), "");
    for words in [&[] as &[&str], &["--log-level=warning"]] {
        assert!(said(words).contains("warning: ") && !said(words).contains("level=debug"));
    }
    for words in [["--log-level", "debug"], ["--debug", "--log-level=error"]] {
        assert!(said(&words).contains("level=debug"));
    }
}

// Under an engine, standard error is the container's own: everything written there appears in `docker logs`.
#[test]
fn warnings_go_only_to_the_log_if_there_is_one() {
    need!(is_husk(), "tests husk's warnings");
    let mut runtime = Runtime::under_test();
    let unknown = json!({ "bounding": ["CAP_OF_THE_FUTURE"] });
    let bundle = Bundle::running("exit 0").with("/process/capabilities", unknown);
    let log = bundle.path().join("log");
    let place: &'static str = log.to_str().unwrap().to_owned().leak();
    let warning = "process.capabilities.bounding[0]: \"CAP_OF_THE_FUTURE\" is unknown and ignored";
    let written = |runtime: &Runtime, bundle: &Bundle, code| {
        let seen = runtime.run(bundle);
        assert_eq!(seen.0.status.code(), Some(code));
        let said = String::from_utf8(seen.0.stderr).unwrap();
        assert!(!said.contains("warning") && !said.contains("CAP_OF_THE_FUTURE"), "{said}");
        let text = fs::read_to_string(&log).unwrap();
        fs::remove_file(&log).unwrap();
        text
    };

    runtime.globals = vec!["--log", place].leak();
    let text = written(&runtime, &bundle, 0);
    assert!(text.contains("level=warning") && text.lines().count() == 1, "{text}");
    runtime.globals = vec!["--log", place, "--log-format", "json"].leak();
    let object: Value = serde_json::from_str(&written(&runtime, &bundle, 0)).unwrap();
    assert_eq!((&object["level"], &object["msg"]), (&json!("warning"), &json!(warning)));

    // An error is one object that includes the warnings.
    let failing = bundle.with("/process/args", json!(["missing"]));
    let object: Value = serde_json::from_str(&written(&runtime, &failing, 1)).unwrap();
    assert_eq!((&object["level"], &object["warnings"]), (&json!("error"), &json!([warning])));
}

// Engines ask for ambient capabilities in every container.
#[test]
fn ambient_capabilities_that_cannot_be_raised_are_only_logged_for_debugging() {
    need!(is_husk(), "runc warns");
    let ambient = json!({ "bounding": ["CAP_CHOWN"], "ambient": ["CAP_CHOWN", "CAP_KILL"] });
    let bundle = Bundle::running("exit 0").with("/process/capabilities", ambient);
    let mut runtime = Runtime::under_test();
    let seen = runtime.run(&bundle);
    seen.succeeds();
    assert_eq!(String::from_utf8_lossy(&seen.0.stderr), "");
    let path = bundle.path().to_str().unwrap();
    let found = runtime.call("validate", &[path]).succeeds();
    assert!(
        found.contains("can't raise ambient capability CAP_CHOWN") && found.contains("2 warnings"),
        "{found}"
    );
    runtime.globals = &["--debug"];
    runtime.run(&bundle).says("can't raise ambient capability CAP_KILL");
}

#[test]
fn configuration_file_can_be_named() {
    need!(is_husk(), "the options are crun's");
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("wait");
    bundle.write();
    let path = bundle.path().to_str().unwrap();
    let other = bundle.path().join("other.json");
    fs::rename(bundle.path().join("config.json"), &other).unwrap();
    runtime.call("create", &["--bundle", path, "c"]).fails(1, "config.json: ");
    runtime
        .call("create", &["--bundle", path, "--config", "/not/there.json", "c"])
        .fails(1, "/not/there.json: ");
    runtime.call("create", &["--bundle", path, "--config", other.to_str().unwrap(), "c"]).succeeds();
    runtime.call("start", &["c"]).succeeds();
    // `exec` reads the configuration again.
    runtime.call("exec", &["c", "/guest", "exit", "7"]).fails(7, "");
    runtime.call("delete", &["--force", "c"]).succeeds();
    runtime.typed(&["spec", "--bundle", path, "-f", "third.json"]).prints("");
    assert!(bundle.path().join("third.json").exists() && !bundle.path().join("config.json").exists());
    runtime.typed(&["spec", "--bundle", path, "--file", "third.json"]).fails(1, "File third.json exists");
}

#[test]
fn several_containers_can_be_named_at_once() {
    need!(is_husk(), "the option is crun's");
    let runtime = Runtime::under_test();
    let create = |id: &str| {
        let bundle = Bundle::running("wait");
        bundle.write();
        runtime.call("create", &["--bundle", bundle.path().to_str().unwrap(), id]).succeeds();
        bundle
    };
    let _bundles = ["web-1", "web-2", "other"].map(create);
    runtime.call("kill", &["--regex", "^web-[0-9]$", "KILL"]).succeeds();
    let status = |id: &str| {
        let state: Value = serde_json::from_str(&runtime.call("state", &[id]).succeeds()).unwrap();
        state["status"].as_str().unwrap().to_owned()
    };
    until_stopped(&runtime, &["web-1", "web-2"]);
    assert_eq!(status("other"), "created");
    // The error names the container that failed.
    runtime.call("kill", &["-r", "web|other", "0"]).fails(1, "web-1: container not running");
    runtime.call("delete", &["-r", "web"]).succeeds();
    runtime.call("list", &["-q"]).prints("other");
    runtime.call("delete", &["--regex", "("]).fails(1, "invalid regular expression \"(\": unclosed group\n");
    runtime.call("delete", &["--force", "--regex", "."]).succeeds();
    assert!(runtime.is_empty());
}

/// Waits until the processes of these containers have ended. They are not children of the test.
fn until_stopped(runtime: &Runtime, ids: &[&str]) {
    for id in ids {
        let state: Value = serde_json::from_str(&runtime.call("state", &[id]).succeeds()).unwrap();
        if let Some(pid) = state["pid"].as_i64().filter(|pid| *pid != 0) {
            until_gone(i32::try_from(pid).unwrap());
        }
    }
}

#[test]
fn error_in_the_log_has_a_code_and_a_field() {
    need!(is_husk(), "runc's log has no codes and fields");
    let runtime = Runtime::under_test();
    let logged = |words: &[&str]| {
        let log = runtime.root().join("log");
        let words = [&["--log", log.to_str().unwrap(), "--log-format", "json"], words].concat();
        runtime.typed(&words);
        let objects = json_log(&log);
        fs::remove_file(log).unwrap();
        assert_eq!(objects.len(), 1);
        let text = |key: &str| objects[0][key].as_str().unwrap_or_default().to_owned();
        (text("code"), text("field"))
    };
    let pair = |code: &str, field: &str| (code.to_owned(), field.to_owned());
    assert_eq!(logged(&["--root", "/not-there", "state", "c"]), pair("not-found", ""));
    assert_eq!(logged(&["--root", "/not-there", "state", ".."]), pair("invalid-id", ""));
    assert_eq!(logged(&["state"]), pair("usage", ""));
    assert_eq!(logged(&["dance"]), pair("usage", ""));
    assert_eq!(logged(&["dance", "--help"]), pair("usage", ""));
    assert_eq!(logged(&["list", "--format", "sideways"]), pair("usage", ""));
    let bundle = Bundle::running("exit 0").with("/process/cwd", "relative".into());
    bundle.write();
    let path = bundle.path().to_str().unwrap();
    assert_eq!(
        logged(&["--root", "/not-there", "run", "-b", path, "c"]),
        pair("invalid-config", "process.cwd")
    );
    let options = json!(["size=nonsense"]);
    let mount = json!({ "destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": options });
    let bundle = Bundle::running("exit 0").mounting(mount);
    bundle.write();
    let (path, root) = (bundle.path().to_str().unwrap(), runtime.root().join("containers"));
    let words = ["--root", root.to_str().unwrap(), "run", "-b", path, "c"];
    assert_eq!(logged(&words), pair("step-failed", "mounts[2]"));
}

#[test]
fn text_log_has_the_format_of_logrus() {
    let runtime = Runtime::under_test();
    let log = runtime.root().join("log");
    let words = ["--log", log.to_str().unwrap(), "--root", "/not-there", "state", "c"];
    runtime.typed(&words).fails(1, "container does not exist");
    let text = fs::read_to_string(log).unwrap();
    assert!(text.starts_with("time=\""), "{text}");
    assert!(text.contains(" level=error msg=\"container does not exist\""), "{text}");
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn error_without_a_log_is_a_json_object_on_stderr() {
    let runtime = Runtime::under_test();
    let seen = runtime.typed(&["--log-format", "json", "--root", "/not-there", "state", "c"]);
    assert_eq!(seen.0.status.code(), Some(1));
    let object: Value = serde_json::from_slice(&seen.0.stderr).unwrap();
    assert_eq!(object["msg"], "container does not exist");
}

// Follows runc's tests/integration/debug.bats. Each runtime chooses the text of the lines.
#[test]
fn debug_option_logs_what_is_done() {
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("exit 0");
    bundle.write();
    let log = runtime.root().join("log");
    let (path, log_path) = (bundle.path().to_str().unwrap(), log.to_str().unwrap());
    let root = runtime.root().join("containers");
    let run = ["--debug", "--root", root.to_str().unwrap(), "run", "-b", path, "c"];
    let seen = runtime.typed(&run);
    seen.succeeds();
    assert!(String::from_utf8_lossy(&seen.0.stderr).contains("level=debug"));
    let seen = runtime.typed(&[&["--log", log_path] as &[&str], &run].concat());
    seen.succeeds();
    assert!(!String::from_utf8_lossy(&seen.0.stderr).contains("level=debug"));
    assert!(fs::read_to_string(&log).unwrap().contains("level=debug"));
    fs::remove_file(&log).unwrap();
    runtime.typed(&[&["--log", log_path, "--log-format", "json"] as &[&str], &run].concat()).succeeds();
    let lines = json_log(&log);
    assert!(lines.iter().all(|line| line["level"] == "debug"));
    // runc's own tests look for these words. husk adds facts to them.
    for words in
        ["nsexec container setup", "child process in init()", "init: closing the pipe to signal completion"]
    {
        assert!(lines.iter().any(|line| line["msg"].as_str().unwrap().contains(words)), "{words}: {lines:?}");
    }
}

#[test]
fn cgroup_manager_can_be_chosen_as_in_runc_and_crun() {
    need!(is_husk(), "runc has no --cgroup-manager");
    let runtime = Runtime::under_test();
    let root = runtime.root().to_str().unwrap();
    for manager in ["disabled", "cgroupfs"] {
        let words = ["--cgroup-manager", manager, "--rootless", "auto", "--root", root, "list", "-q"];
        runtime.typed(&words).prints("");
    }
}

#[test]
fn generated_configuration_runs() {
    let runtime = Runtime::under_test();
    let mut bundle = Bundle::running("cat /proc/sys/kernel/hostname");
    let path = bundle.path().to_str().unwrap().to_owned();
    let rootless: &[&str] = if is_root() { &[] } else { &["--rootless"] };
    runtime.typed(&[&["spec", "--bundle", &path], rootless].concat()).prints("");
    let text = fs::read_to_string(bundle.path().join("config.json")).unwrap();
    assert!(text.starts_with("{\n\t\"ociVersion\": \"1.3.0\",\n\t\"process\": {\n\t\t\"terminal\": true,"));
    let args = bundle.config["process"]["args"].take();
    bundle.config = serde_json::from_str(&text).unwrap();
    let bundle = bundle.with("/process/args", args).with("/process/terminal", false.into());
    runtime.run(&bundle).prints(bundle.config["hostname"].as_str().unwrap());
    // `spec` does not overwrite an existing file.
    runtime.typed(&["spec", "--bundle", &path]).fails(1, "File config.json exists. Remove it first");
    let kept: Value = serde_json::from_slice(&fs::read(bundle.path().join("config.json")).unwrap()).unwrap();
    assert_eq!(kept, bundle.config);
}

#[test]
fn generated_rootless_configuration_needs_no_root() {
    let runtime = Runtime::under_test();
    let path = runtime.root().to_str().unwrap();
    runtime.typed(&["spec", "--rootless", "-b", path]).prints("");
    let config: Value =
        serde_json::from_slice(&fs::read(runtime.root().join("config.json")).unwrap()).unwrap();
    assert_eq!(config["linux"]["uidMappings"][0]["hostID"], rustix::process::geteuid().as_raw());
    let kinds = config["linux"]["namespaces"].as_array().unwrap();
    assert!(kinds.iter().any(|namespace| namespace["type"] == "user"));
    assert!(kinds.iter().all(|namespace| namespace["type"] != "network"));
}

#[test]
fn json_plan_matches_the_text_plan() {
    need!(is_husk(), "runc has no plan");
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("exit 0");
    bundle.write();
    let path = bundle.path().to_str().unwrap();
    let listing = runtime.typed(&["plan", path]).succeeds();
    let steps: Vec<Value> =
        serde_json::from_str(&runtime.typed(&["plan", "--json", path]).succeeds()).unwrap();
    assert_eq!(steps.len(), listing.lines().count());
    let text = |step: &Value, key: &str| step[key].as_str().unwrap().to_owned();
    for (number, (step, line)) in steps.iter().zip(listing.lines()).enumerate() {
        assert_eq!(step["step"], number);
        let (origin, said) = (text(step, "origin"), text(step, "text"));
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(line), words(&format!("{number} {origin} {said}")));
        assert!(origin.starts_with(&text(step, "field")));
        assert!(said.contains(&text(step, "kind")));
    }
    assert_eq!(text(steps.last().unwrap(), "kind"), "exec");
    let of_dev = steps.iter().find(|step| step["field"] == "mounts[1]").unwrap();
    assert_eq!((text(of_dev, "kind"), text(of_dev, "text")), ("fsopen".into(), "r0 = fsopen tmpfs".into()));
}

#[test]
fn plan_shows_what_a_seccomp_profile_decides() {
    need!(is_husk(), "runc has no plan");
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("exit 0");
    bundle.write();
    let path = bundle.path().to_str().unwrap().to_owned();
    runtime.typed(&["plan", "--seccomp", &path]).fails(1, "linux.seccomp: is missing");
    let profile = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{ "names": ["getcwd", "not_a_call"], "action": "SCMP_ACT_ERRNO", "errnoRet": 7 }]
    });
    let bundle = bundle.with("/linux/seccomp", profile);
    bundle.write();
    let seen = runtime.typed(&["plan", "--seccomp", &path]);
    let table = seen.succeeds();
    assert!(table.starts_with("default allow\n"), "{table}");
    assert!(table.lines().any(|line| line.ends_with("errno 7            getcwd")), "{table}");
    assert!(String::from_utf8_lossy(&seen.0.stderr).contains("not_a_call"));
}

#[test]
fn timings_list_every_step_once_in_order() {
    need!(is_husk(), "runc has no --timings");
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("exit 7");
    bundle.write();
    let (path, root) = (bundle.path().to_str().unwrap(), runtime.root().to_str().unwrap());
    let steps: Vec<Value> =
        serde_json::from_str(&runtime.typed(&["plan", "--json", path]).succeeds()).unwrap();
    // A plan has no container, so its keyring's name contains `ID` instead of the container's.
    let text = |step: &Value, key: &str| step[key].as_str().unwrap().replace("_ses.ID", "_ses.c");
    let wanted: Vec<_> = steps
        .iter()
        // A user may be unable to make a cgroup, which husk finds out only by trying.
        .filter(|step| is_root() || step["text"] != "request cgroup")
        .map(|step| format!("{}: {}", text(step, "origin"), text(step, "text")))
        .collect();

    let run = |timings: &str| {
        let seen = runtime.typed(&["--root", root, "run", timings, "-b", path, "c"]);
        assert_eq!(seen.0.status.code(), Some(7));
        String::from_utf8(seen.0.stderr).unwrap()
    };
    let list = runtime.root().join("list.txt");
    run(&format!("--timings={}", list.display()));
    let list = fs::read_to_string(list).unwrap();
    let (list, longest) = list.split_once("\n\nthe longest:\n").unwrap();
    let rows = list.lines().filter_map(|line| line.get(21..)?.trim_start_matches([' ', '#']).into());
    let (ours, theirs): (Vec<&str>, Vec<&str>) =
        rows.filter(|row| row.contains(": ")).partition(|row| row.starts_with("husk: "));
    assert_eq!(theirs, wanted, "{list}");
    let phases = ["load config.json", "look at the machine", "plan", "clone, map ids", "wait for exec"];
    let places = phases.map(|phase| ours.iter().position(|row| *row == format!("husk: {phase}")).unwrap());
    assert!(places.is_sorted(), "{list}");
    assert_eq!(longest.lines().count(), 5, "{longest}");

    // On standard error and in the picture, short steps share a row.
    let shown = run("--timings");
    assert!(shown.contains(" short steps\n") && shown.contains("\nthe longest:\n"), "{shown}");
    assert!(shown.lines().count() <= 70, "{shown}");
    let picture = runtime.root().join("picture.svg");
    run(&format!("--timings={}", picture.display()));
    let svg = fs::read_to_string(picture).unwrap();
    assert!(svg.ends_with("</svg>\n") && svg.contains(" short steps</text>"), "{svg}");
    assert!((10..=60).contains(&svg.matches("<rect class=\"bar\"").count()), "{svg}");
    // The axis and the legend.
    assert!(
        svg.matches("<line ").count() > 3 && svg.contains(">the container's first process</text>"),
        "{svg}"
    );
}

// A child that called clock_gettime after loading this filter would be killed.
#[test]
fn timings_skip_the_clock_where_a_filter_could_forbid_it() {
    need!(is_husk(), "runc has no --timings");
    let runtime = Runtime::under_test();
    let profile = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{ "names": ["clock_gettime"], "action": "SCMP_ACT_KILL_PROCESS" }]
    });
    for privileges in [true, false] {
        if !privileges && !is_root() {
            continue;
        }
        let bundle = Bundle::running("exit 7")
            .with("/linux/seccomp", profile.clone())
            .with("/process/noNewPrivileges", privileges.into());
        bundle.write();
        let (path, root) = (bundle.path().to_str().unwrap(), runtime.root().to_str().unwrap());
        let seen = runtime.typed(&["--root", root, "run", "--timings", "-b", path, "c"]);
        assert_eq!(seen.0.status.code(), Some(7), "{}", String::from_utf8_lossy(&seen.0.stderr));
    }
}
