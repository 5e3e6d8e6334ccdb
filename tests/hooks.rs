//! The six kinds of hooks: where and when they run, what they are given, and what happens if they fail.
//!
//! A hook is the guest, from the host's file system or the container's. It appends what it finds to a file in the
//! image, which is reachable from both.

use crate::util::{Bundle, Runtime, ends, guest, is_husk, is_root, need};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

const KINDS: [&str; 6] =
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

/// Returns a hook with these arguments. Its program is the guest, at the path where hooks of this kind are looked up.
fn hook(kind: &str, words: &[&str]) -> Value {
    let path = if kind == "startContainer" { Path::new("/guest").to_owned() } else { guest() };
    let args: Vec<_> = std::iter::once("guest").chain(words.iter().copied()).collect();
    json!({ "path": path, "args": args, "env": ["A=1"] })
}

/// Returns a hook that records what it finds.
fn witness(bundle: &Bundle, kind: &str) -> Value {
    let host = bundle.rootfs().join("log");
    let file = if kind == "startContainer" { "/log" } else { host.to_str().unwrap() };
    hook(kind, &["hook", kind, file])
}

/// Returns a container with a recording hook of every kind, preceded by these hooks.
fn witnessed(words: &str, before: &[(&str, Value)]) -> Bundle {
    let bundle = Bundle::running(words).with("/annotations", json!({ "key": "va\"lue" }));
    fs::write(bundle.rootfs().join("log"), "").unwrap();
    let hooks = KINDS.map(|kind| {
        let before = before.iter().filter(|(of, _)| *of == kind).map(|(_, hook)| hook.clone());
        (kind.to_owned(), before.chain([witness(&bundle, kind)]).collect::<Value>())
    });
    bundle.with("/hooks", Value::Object(hooks.into_iter().collect()))
}

/// Returns what the hooks have recorded.
fn log(bundle: &Bundle) -> Vec<Value> {
    let log = fs::read_to_string(bundle.rootfs().join("log")).unwrap();
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn seen(bundle: &Bundle) -> Vec<String> {
    log(bundle).iter().map(|line| line["name"].as_str().unwrap().to_owned()).collect()
}

/// Returns the state that a hook received on standard input.
fn told(line: &Value) -> Value {
    serde_json::from_str(line["told"].as_str().unwrap()).unwrap()
}

#[test]
fn every_hook_runs_in_order_and_receives_the_state() {
    need!(is_husk(), "runc's poststart hooks do not wait for startContainer (see runtime.md)");
    let runtime = Runtime::under_test();
    let bundle = witnessed("exit 0", &[]);
    runtime.run(&bundle).prints("");
    let log = log(&bundle);
    let names: Vec<_> = log.iter().map(|line| line["name"].as_str().unwrap()).collect();
    assert_eq!(names, KINDS);

    let here = |kind: &str| json!(fs::read_link(format!("/proc/self/ns/{kind}")).unwrap());
    let host = log[0]["root"].clone();
    let pid = told(&log[0])["pid"].clone();
    assert!(pid.as_i64().is_some_and(|pid| pid > 1), "{pid}");
    let (one, none) = (json!(1), Value::Null);
    // For each hook: whose namespaces, root and working directory it has, and which status and pid it is told.
    let (path, rootfs) = (json!(bundle.path()), json!(bundle.rootfs()));
    let (outside, inside) = (&host, &json!(["dev", "guest", "log", "proc"]));
    let table = [
        ("runtime", outside, &path, "creating", &pid),
        ("runtime", outside, &path, "creating", &pid),
        ("container", outside, &rootfs, "creating", &one),
        ("container", inside, &json!("/"), "created", &one),
        ("runtime", outside, &path, "running", &pid),
        ("runtime", outside, &path, "stopped", &none),
    ];
    for (line, (namespaces, root, cwd, status, pid)) in log.iter().zip(table) {
        let name = &line["name"];
        for kind in ["mnt", "pid", "net"] {
            match namespaces {
                "runtime" => assert_eq!(line[kind], here(kind), "{name}"),
                _ => {
                    assert_ne!(line[kind], here(kind), "{name}");
                    assert_eq!(line[kind], log[3][kind], "{name}: of the one container");
                }
            }
        }
        assert_eq!((&line["root"], &line["cwd"]), (root, cwd), "{name}");
        let told = told(line);
        assert_eq!((&told["status"], &told["pid"]), (&json!(status), pid), "{name}");
        assert_eq!((&told["ociVersion"], &told["id"]), (&json!("1.3.0"), &json!("c")), "{name}");
        assert_eq!((&told["bundle"], &told["annotations"]["key"]), (&path, &json!("va\"lue")), "{name}");
        assert_eq!(line["environment"], json!(["A=1"]), "{name}");
        assert_eq!(line["umask"], "0022", "{name}");
        assert_eq!(line["blocked"], "0000000000000000", "{name}");
        // Descriptor 3 is the listing's own. (runc leaves five of its own open for createContainer, among them its
        // sockets and its binary.)
        assert_eq!(line["descriptors"], json!(["0", "1", "2", "3"]), "{name}");
    }
    assert!(runtime.is_empty());
}

// With runc `start` does not wait for startContainer hooks, so poststart hooks may run first.
#[test]
fn every_verb_runs_its_hooks() {
    need!(is_husk(), "runc's poststart does not wait for startContainer");
    for delete in [&["c"][..], &["--force", "c"]] {
        let runtime = Runtime::under_test();
        let bundle = witnessed("wait", &[]);
        runtime.create(&bundle).succeeds();
        assert_eq!(seen(&bundle), KINDS[..3]);
        runtime.call("start", &["c"]).succeeds();
        assert_eq!(seen(&bundle), KINDS[..5]);
        let state: Value = serde_json::from_str(&runtime.call("state", &["c"]).succeeds()).unwrap();
        for line in [0, 1, 4].map(|index| told(&log(&bundle)[index])) {
            assert_eq!(line["pid"], state["pid"]);
        }
        if delete.len() == 1 {
            runtime.call("kill", &["c", "KILL"]).succeeds();
            let pid = state["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).unwrap();
            crate::util::until_gone(pid);
        }
        runtime.call("delete", delete).succeeds();
        assert_eq!(seen(&bundle), KINDS);
        assert_eq!(told(&log(&bundle)[5])["status"], "stopped");
        runtime.call("delete", &["--force", "c"]).succeeds();
        assert_eq!(seen(&bundle), KINDS, "deleting again runs no hooks");
        assert!(runtime.is_empty());
    }
}

#[test]
fn delete_runs_hooks_of_a_container_that_was_never_started() {
    let runtime = Runtime::under_test();
    let bundle = witnessed("wait", &[]);
    runtime.create(&bundle).succeeds();
    runtime.call("delete", &["c"]).succeeds();
    assert_eq!(seen(&bundle), ["prestart", "createRuntime", "createContainer", "poststop"]);
}

#[test]
fn failing_hook_fails_create_and_leaves_nothing() {
    for (index, kind) in KINDS[..3].iter().enumerate() {
        let runtime = Runtime::under_test();
        let bundle = witnessed(
            "wait",
            &[(kind, hook(kind, &["exit", "0"])), (kind, hook(kind, &["fail", "3", "words"]))],
        );
        let error = runtime.create(&bundle);
        error.fails(1, &format!("error running {kind} hook #1: "));
        error.fails(1, "exit status 3");
        error.fails(1, "err words");
        assert!(runtime.is_empty(), "{kind}");
        // "Continue the lifecycle at step 12" (runtime.md): the container is destroyed, and poststop runs.
        let wanted: Vec<_> = KINDS[..index].iter().chain(["poststop"].iter()).copied().collect();
        assert_eq!(seen(&bundle), wanted);
    }
}

#[test]
fn failing_hook_fails_run() {
    need!(is_husk(), "runc exits like its init process, with 255 if that runs the hook");
    for (index, kind) in KINDS[..5].iter().enumerate() {
        let runtime = Runtime::under_test();
        let bundle = witnessed("wait", &[(kind, hook(kind, &["fail", "3", "words"]))]);
        let error = runtime.run(&bundle);
        error.fails(1, &format!("error running {kind} hook #0: "));
        error.fails(1, "exit status 3");
        error.fails(1, "err words");
        assert!(runtime.is_empty(), "{kind}");
        let wanted: Vec<_> = KINDS[..index].iter().chain(["poststop"].iter()).copied().collect();
        assert_eq!(seen(&bundle), wanted);
    }
}

// runc's `start` succeeds if a startContainer hook fails, because it closes its connection before the hooks run.
#[test]
fn failing_hook_fails_start_and_stops_the_container() {
    need!(is_husk(), "runc's start does not report the failure");
    for (index, kind) in [(3, "startContainer"), (4, "poststart")] {
        let runtime = Runtime::under_test();
        let bundle = witnessed("wait", &[(kind, hook(kind, &["fail", "4", "words"]))]);
        runtime.create(&bundle).succeeds();
        let error = runtime.call("start", &["c"]);
        error.fails(1, &format!("hooks.{kind}[0]: error running {kind} hook #0: hook "));
        error.fails(1, "exit status 4: out words\n    err words");
        if kind == "startContainer" {
            assert_eq!(runtime.status(), "stopped");
            assert_eq!(seen(&bundle), KINDS[..index]);
            runtime.call("delete", &["c"]).succeeds();
        }
        // If a poststart hook fails, `start` itself destroys the container.
        assert_eq!(seen(&bundle).last().unwrap(), "poststop");
        assert!(runtime.is_empty());
    }
}

// "The remaining hooks and lifecycle continue as if the hook had succeeded" (runtime.md). runc runs no
// further poststop hooks, and its `delete` fails.
#[test]
fn failing_poststop_hook_is_only_reported() {
    let runtime = Runtime::under_test();
    let failing = [("poststop", hook("poststop", &["fail", "5", "words"]))];
    let bundle = witnessed("exit 0", &failing);
    let run = runtime.run(&bundle);
    run.prints("");
    need!(is_husk(), "runc's messages name no field");
    run.says("hooks.poststop[0]: error running poststop hook #0: ");
    run.says("exit status 5: out words\n    err words");
    assert_eq!(seen(&bundle), KINDS);

    let bundle = witnessed("wait", &failing);
    runtime.create(&bundle).succeeds();
    let deleted = runtime.call("delete", &["c"]);
    deleted.prints("");
    deleted.says("error running poststop hook #0: ");
    assert_eq!(seen(&bundle).last().unwrap(), "poststop");
    assert!(runtime.is_empty());
}

#[test]
fn hook_over_its_timeout_fails() {
    need!(is_husk(), "the message is husk's");
    let threads = KINDS.map(|kind| {
        std::thread::spawn(move || {
            let runtime = Runtime::under_test();
            let mut hang = hook(kind, &["hang"]);
            hang["timeout"] = json!(1);
            // This hook ends long before its timeout.
            let mut quick = hook(kind, &["exit", "0"]);
            quick["timeout"] = json!(100_000);
            let bundle = witnessed("exit 0", &[(kind, quick), (kind, hang)]);
            let run = runtime.run(&bundle);
            run.says(&format!("error running {kind} hook #1: hook "));
            run.says("timed out and was killed");
            assert_eq!(run.0.status.success(), kind == "poststop", "{kind}");
            assert_eq!(seen(&bundle).last().unwrap(), "poststop");
            assert!(runtime.is_empty());
        })
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

// The container has neither a pid namespace nor a cgroup: either would end the processes that the hook has started.
#[test]
fn hook_over_its_timeout_is_killed_with_its_process_group() {
    need!(is_husk(), "runc only kills the hook itself");
    need!(is_root(), "needs root to run a container without a pid namespace");
    let threads = KINDS.map(|kind| {
        std::thread::spawn(move || {
            let mut runtime = Runtime::under_test();
            runtime.globals = &["--cgroup-manager=disabled"];
            let mut bundle = Bundle::running("exit 0");
            let namespaces = bundle.config["linux"]["namespaces"].as_array_mut().unwrap();
            namespaces.retain(|namespace| namespace["type"] != "pid");
            let host = bundle.rootfs().join("pid");
            let file = if kind == "startContainer" { "/pid" } else { host.to_str().unwrap() };
            let mut hang = hook(kind, &["leave-hanging", file]);
            hang["timeout"] = json!(3);
            let bundle = bundle.with("/hooks", json!({ kind: [hang] }));
            runtime.run(&bundle).says("timed out and was killed");
            let left = fs::read_to_string(&host).unwrap().parse().unwrap();
            assert!(ends(left), "{kind}: what the hook has started lives");
        })
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn killed_hook_counts_as_failed() {
    need!(is_husk(), "the message is husk's");
    for kind in &KINDS[..5] {
        let runtime = Runtime::under_test();
        let bundle = witnessed("wait", &[(kind, hook(kind, &["die"]))]);
        runtime.run(&bundle).fails(1, "killed by signal 6");
        assert!(runtime.is_empty(), "{kind}");
    }
}

#[test]
fn hook_may_read_all_or_none_of_the_state() {
    let runtime = Runtime::under_test();
    let large = "0123456789abcdef".repeat(200 << 6);
    let before = KINDS.map(|kind| (kind, hook(kind, &["exit", "0"])));
    let bundle = witnessed("exit 0", &before).with("/annotations", json!({ "key": large }));
    runtime.run(&bundle).prints("");
    let log = log(&bundle);
    assert_eq!(log.len(), KINDS.len());
    log.iter().for_each(|line| assert!(told(line)["annotations"]["key"] == *large, "{}", line["name"]));
}

#[test]
fn hook_that_cannot_run_is_named() {
    need!(is_husk(), "runc's messages name no field");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    for kind in &KINDS[..5] {
        let runtime = Runtime::under_test();
        let missing = json!({ "path": "/no/such" });
        let bundle = witnessed("wait", &[(kind, hook(kind, &["exit", "0"])), (kind, missing)]);
        let error = runtime.run(&bundle);
        error.fails(1, &format!("hooks.{kind}[1]: error running {kind} hook #1: "));
        error.fails(1, "/no/such: no such file or directory");

        let path = if *kind == "startContainer" { Path::new("/log") } else { &file };
        let error = runtime.run(&witnessed("wait", &[(kind, json!({ "path": path }))]));
        error.fails(1, &format!("hooks.{kind}[0]: error running {kind} hook #0: "));
        error.fails(1, &format!("{}: permission denied", path.display()));

        let error = runtime.run(&witnessed("wait", &[(kind, json!({ "path": "bin/true" }))]));
        error.fails(1, &format!("hooks.{kind}[0].path: \"bin/true\" is not an absolute path"));
        assert!(runtime.is_empty(), "{kind}");
    }
}

#[test]
fn arguments_and_environment_of_hooks_have_defaults() {
    need!(is_husk(), "runc exits like its init process, with 255 if that runs the hook");
    let runtime = Runtime::under_test();
    // The guest needs a first argument. A hook without arguments fails and prints the ones it has.
    for kind in &KINDS[..5] {
        let hook = json!({ "path": hook(kind, &[])["path"] });
        let error = runtime.run(&witnessed("exit 0", &[(kind, hook)]));
        error.fails(1, "guest: what is []?");
    }

    let mut bundle = witnessed("exit 0", &[]).with("/process/env", json!(["B=2"]));
    for kind in KINDS {
        bundle.config["hooks"][kind][0].as_object_mut().unwrap().remove("env");
    }
    runtime.run(&bundle).prints("");
    let log = log(&bundle);
    let environment = |index: usize| log[index]["environment"].as_array().unwrap();
    let path = json!(format!("PATH={}", std::env::var("PATH").unwrap()));
    for index in [0, 1, 4, 5] {
        assert!(environment(index).contains(&path), "{}: the runtime's", KINDS[index]);
    }
    assert!(environment(2).is_empty(), "like runc, there are no hooks");
    assert_eq!(environment(3), &[json!("B=2"), json!("HOME=/")], "the program's");
    for (index, kind) in KINDS.iter().enumerate() {
        assert_eq!(log[index]["arguments"][0], "guest", "{kind}: what it was told, not its path");
    }

    // An empty environment stays empty. (With runc, a startContainer hook then has the program's.)
    let mut bundle = witnessed("exit 0", &[]);
    for kind in KINDS {
        bundle.config["hooks"][kind][0]["env"] = json!([]);
    }
    runtime.run(&bundle).prints("");
    self::log(&bundle).iter().for_each(|line| assert_eq!(line["environment"], json!([]), "{}", line["name"]));
}

// The annotations are crun's.
#[test]
fn output_of_hooks_is_appended_to_the_annotated_files() {
    need!(is_husk(), "runc does not know the annotations");
    let runtime = Runtime::under_test();
    let say = |kind| (kind, hook(kind, &["say", kind, &format!("error of {kind}")]));
    let outside: Vec<_> = KINDS.into_iter().filter(|kind| *kind != "startContainer").collect();
    let hooks: Vec<_> = outside.iter().copied().map(say).collect();
    let bundle = witnessed("exit 0", &hooks);
    let [stdout, stderr] = ["stdout", "stderr"].map(|name| bundle.path().join(name));
    fs::write(&stdout, "before\n").unwrap();
    let with = |bundle: Bundle, stdout: &Path| {
        let annotations = json!({ "run.oci.hooks.stdout": stdout, "run.oci.hooks.stderr": stderr });
        bundle.with("/annotations", annotations)
    };
    let bundle = with(bundle, &stdout);
    runtime.run(&bundle).prints("");
    assert_eq!(fs::read_to_string(&stdout).unwrap(), format!("before\n{}\n", outside.join("\n")));
    let errors: String = outside.iter().map(|kind| format!("error of {kind}\n")).collect();
    assert_eq!(fs::read_to_string(&stderr).unwrap(), errors);

    let place = tempfile::tempdir().unwrap();
    let fifo = place.path().join("fifo");
    mkfifo(&fifo);
    let refused = [
        (Path::new("/no/such/file"), "/no/such/file: no such file or directory"),
        (&fifo, "fifo: no such device or address"),
    ];
    for kind in ["prestart", "createContainer"] {
        for (file, reason) in refused {
            let hooks = json!({ kind: [hook(kind, &["exit", "0"])] });
            let error = runtime.run(&with(Bundle::running("exit 0").with("/hooks", hooks), file));
            error.fails(1, reason);
        }
    }
    assert!(runtime.is_empty());
}

#[test]
fn hooks_run_before_paths_are_masked() {
    // Hooks that prepare the container run before paths are masked and made read-only, as with runc.
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("cat /written");
    let file = bundle.rootfs().join("written");
    let write = |kind: &str| json!([hook(kind, &["write", file.to_str().unwrap()])]);
    let bundle = bundle.with("/root/readonly", json!(true));
    let hooks =
        json!({ "createRuntime": write("createRuntime"), "createContainer": write("createContainer") });
    runtime.run(&bundle.with("/hooks", hooks)).prints("written");
}

#[test]
fn startcontainer_hook_has_no_more_privileges_than_the_program() {
    need!(is_root(), "needs root to become another user");
    need!(is_husk(), "runc runs the hook as root");
    let runtime = Runtime::under_test();
    let profile = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{ "names": ["getpriority"], "action": "SCMP_ACT_ERRNO", "errnoRet": 7 }]
    });
    for privileges in [true, false] {
        let bundle = witnessed("exit 0", &[])
            .with("/process/user", json!({ "uid": 1000, "gid": 1000, "umask": 63 }))
            .with("/process/cwd", json!("/proc"))
            .with("/process/noNewPrivileges", json!(privileges))
            .with("/linux/seccomp", profile.clone());
        fs::set_permissions(bundle.rootfs().join("log"), fs::Permissions::from_mode(0o666)).unwrap();
        runtime.run(&bundle).prints("");
        let log = log(&bundle);
        let inside = &log[3];
        assert_eq!((&inside["uid"], &inside["umask"]), (&json!("1000\t1000\t1000\t1000"), &json!("0077")));
        assert_eq!((&inside["cwd"], &inside["seccomp"]), (&json!("/proc"), &json!("2")));
        assert_eq!((&log[2]["uid"], &log[2]["seccomp"]), (&json!("0\t0\t0\t0"), &json!("0")));
    }
}

#[test]
fn process_started_by_a_hook_does_not_block_the_runtime() {
    need!(is_husk(), "runc reads a hook's output until all writers have closed it");
    let runtime = Runtime::under_test();
    for kind in KINDS {
        let inside = kind == "startContainer";
        let directory = tempfile::tempdir().unwrap();
        let host = directory.path().join("fifo");
        let fifo = if inside { Path::new("/fifo") } else { &host };
        let bundle = witnessed("exit 0", &[(kind, hook(kind, &["leave", fifo.to_str().unwrap()]))]);
        let made = if inside { bundle.rootfs().join("fifo") } else { host.clone() };
        mkfifo(&made);
        runtime.run(&bundle).prints("");
        assert_eq!(seen(&bundle), KINDS, "{kind}");
        // Processes that a hook left in the container have ended with it.
        if !["createContainer", "startContainer"].contains(&kind) {
            drop(fs::OpenOptions::new().write(true).open(host).unwrap());
        }
    }
}

fn mkfifo(path: &Path) {
    use husk_sys::at::{Mode, Node, mknodat};
    let directory = fs::File::open(path.parent().unwrap()).unwrap();
    let name = std::ffi::CString::new(path.file_name().unwrap().as_encoded_bytes()).unwrap();
    mknodat(husk_sys::Fd::of(&directory), &name, Node::Fifo, Mode::from_raw_mode(0o666)).unwrap();
}

#[test]
fn container_killed_by_its_hook_fails_to_start() {
    need!(is_root(), "needs a container that sees the host's processes");
    let runtime = Runtime::under_test();
    let kill = [("startContainer", hook("startContainer", &["kill-parent"]))];
    let mut bundle = witnessed("wait", &kill);
    let namespaces = bundle.config["linux"]["namespaces"].as_array_mut().unwrap();
    namespaces.retain(|namespace| namespace["type"] != "pid");
    runtime.create(&bundle).succeeds();
    let died = "hooks.startContainer[0]: error running startContainer hook #0: hook /guest: the container's process has died";
    need!(is_husk(), "runc's start does not report the failure");
    runtime.call("start", &["c"]).fails(1, died);
    assert_eq!(runtime.status(), "stopped");
    assert_eq!(seen(&bundle), KINDS[..3]);
}

#[test]
fn container_cannot_be_started_from_its_create_hooks() {
    need!(is_husk(), "the message is husk's");
    let husk = env!("CARGO_BIN_EXE_husk");
    for kind in &KINDS[..3] {
        let runtime = Runtime::under_test();
        let start = json!({ "path": husk, "args": ["husk", "--root", runtime.root(), "start", "c"] });
        let bundle = Bundle::running("exit 0").with("/hooks", json!({ *kind: [start] }));
        let refused = "exit status 1: husk: cannot start a container that is not created";
        runtime.create(&bundle).fails(1, refused);
        runtime.run(&bundle).fails(1, refused);
    }
}
