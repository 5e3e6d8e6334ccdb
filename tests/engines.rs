//! The exact commands that engines run, and the output that they read: one test for each engine.
//!
//! The tests hold for every runtime that engines run (`RUNTIME_UNDER_TEST`).

use crate::util::{Bundle, Receiver, Runtime, Seen, is_husk, is_root, need, until_gone};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// An engine: a bundle, and the arguments that precede each of its commands.
struct Engine {
    runtime: Runtime,
    bundle: Bundle,
    always: Vec<String>,
}

impl Engine {
    fn new(bundle: Bundle, always: impl Fn(&str, &str) -> Vec<String>) -> Self {
        bundle.write();
        let runtime = Runtime::under_test();
        let (root, path) = (runtime.root().to_str().unwrap(), bundle.path().to_str().unwrap());
        let always = always(root, path);
        Self { runtime, bundle, always }
    }

    /// Runs a command. `B` at the beginning of a word, or after its `=`, stands for the bundle's directory.
    fn types(&self, words: &str) -> Seen {
        let bundle = self.path("");
        let word = |word: &str| match word.split_once('=') {
            Some((name, place)) if place.starts_with("B/") => format!("{name}={bundle}{}", &place[2..]),
            _ if word == "B" => bundle.trim_end_matches('/').to_owned(),
            _ => word.strip_prefix("B/").map_or_else(|| word.to_owned(), |place| format!("{bundle}{place}")),
        };
        let words: Vec<String> = self.always.iter().cloned().chain(words.split(' ').map(word)).collect();
        self.runtime.typed(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn path(&self, name: &str) -> String {
        self.bundle.path().join(name).to_str().unwrap().to_owned()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.bundle.path().join(name)).unwrap()
    }

    /// Writes a process file for `exec --process`.
    fn process(&self, name: &str, args: &[&str]) {
        let process = json!({ "args": args, "cwd": "/", "user": { "uid": 0, "gid": 0 } });
        fs::write(self.bundle.path().join(name), process.to_string()).unwrap();
    }

    fn state(&self) -> Value {
        serde_json::from_str(&self.types("state c").succeeds()).unwrap()
    }

    /// Reads the pid in a file as strictly as Go's `strconv.Atoi` does.
    fn pid(&self, name: &str) -> i32 {
        self.read(name).parse().unwrap()
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Parses a log as go-runc does: one object after the other.
fn log(text: &str) -> Vec<Value> {
    serde_json::Deserializer::from_str(text).into_iter::<Value>().map(Result::unwrap).collect()
}

/// Whether Go can parse the text as an RFC 3339 time.
fn is_time(text: &str) -> bool {
    let digits = |range: std::ops::Range<usize>| text[range].bytes().all(|byte| byte.is_ascii_digit());
    let marks = text.char_indices().filter(|(place, _)| [4, 7, 10, 13, 16].contains(place));
    text.len() >= 20
        && digits(0..4)
        && marks.map(|(_, mark)| mark).eq("--T::".chars())
        && (text.ends_with('Z') || text.as_bytes()[text.len() - 6] == b'+')
}

fn waiting() -> Bundle {
    Bundle::running("wait")
}

#[test]
fn containerd_lifecycle_works() {
    let engine = Engine::new(waiting(), |root, bundle| {
        words(&["--root", root, "--log", &format!("{bundle}/log.json"), "--log-format", "json"])
    });
    engine.types("create --bundle B --pid-file B/init.pid c").succeeds();
    let pid = engine.pid("init.pid");
    let state = engine.state();
    assert_eq!(
        (&state["id"], &state["status"], &state["pid"]),
        (&json!("c"), &json!("created"), &json!(pid))
    );
    assert!(is_time(state["created"].as_str().unwrap()), "{state}");
    engine.types("start c").succeeds();
    assert_eq!(engine.state()["status"], "running");
    engine.process("process", &["/guest", "wait"]);
    engine.types("exec --process B/process --detach --pid-file B/exec.pid c").succeeds();
    let exec = engine.pid("exec.pid");
    assert!(Path::new(&format!("/proc/{exec}")).exists());
    if is_root() {
        // go-runc parses an array of numbers.
        let pids: Vec<i32> = serde_json::from_str(&engine.types("ps --format json c").succeeds()).unwrap();
        assert!(pids.contains(&pid) && pids.contains(&exec), "{pids:?}");
        let table = engine.types("ps --format table c -ef").succeeds();
        assert!(table.lines().next().unwrap().contains("PID"), "{table}");
        engine.types("update --pids-limit=100 c").succeeds();
        let stats: Value = serde_json::from_str(&engine.types("events --stats c").succeeds()).unwrap();
        assert_eq!((&stats["type"], &stats["id"]), (&json!("stats"), &json!("c")));
        engine.types("kill --all c 9").succeeds();
    } else {
        engine.types("kill c 9").succeeds();
    }
    until_gone(pid);
    let list: Value = serde_json::from_str(&engine.types("list --format=json").succeeds()).unwrap();
    assert_eq!((&list[0]["id"], &list[0]["status"]), (&json!("c"), &json!("stopped")));
    // The log is empty as long as nothing fails. Afterwards its last object is the last error.
    assert_eq!(engine.read("log.json"), "");
    engine.types("kill c 15").fails(1, "container not running");
    engine.types("delete c").succeeds();
    engine.types("delete c").fails(1, "does not exist");
    // The shim's own cleanup, which deletes the container whether it still exists or not.
    engine.types("delete --force c").succeeds();
    let objects = log(&engine.read("log.json"));
    let last = objects.last().unwrap();
    assert_eq!((&last["level"], &last["msg"]), (&json!("error"), &json!("container does not exist")));
    assert!(objects.iter().all(|object| is_time(object["time"].as_str().unwrap())), "{objects:?}");
}

// conmon and CRI-O request terminals with the same arguments.
#[test]
fn containerd_lifecycle_with_a_terminal_works() {
    let devpts = json!({ "destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["newinstance", "ptmxmode=0666", "mode=0620"] });
    let bundle = waiting().with("/process/terminal", true.into()).mounting(devpts);
    let engine = Engine::new(bundle, |root, bundle| {
        words(&["--root", root, "--log", &format!("{bundle}/log.json"), "--log-format", "json"])
    });
    let socket = Receiver::new();
    let console = format!("--console-socket {}", socket.path());
    engine.types(&format!("create --bundle B --pid-file B/init.pid {console} c")).succeeds();
    let (_terminal, name) = socket.received();
    assert!(!name.is_empty());
    let pid = engine.pid("init.pid");
    engine.types("start c").succeeds();
    engine.process("process", &["/guest", "wait"]);
    let mut process: Value = serde_json::from_str(&engine.read("process")).unwrap();
    process["terminal"] = true.into();
    fs::write(engine.path("process"), process.to_string()).unwrap();
    let exec = format!("exec --process B/process {console} --detach --pid-file B/exec.pid c");
    engine.types(&exec).succeeds();
    let (_terminal, _name) = socket.received();
    assert!(engine.pid("exec.pid") > 1);
    engine.types("kill c 9").succeeds();
    until_gone(pid);
    engine.types("delete c").succeeds();
    assert_eq!(engine.read("log.json"), "");
}

// `podman run --cgroups=disabled`, for runtimes that podman's configuration lists as supporting it.
#[test]
fn podman_lifecycle_without_cgroups_works() {
    need!(is_husk(), "the option is crun's");
    let engine = Engine::new(Bundle::running("cat /proc/self/cgroup"), |root, bundle| {
        let log = format!("{bundle}/log");
        words(&["--root", root, "--cgroup-manager", "disabled", "--log-format=json", "--log", &log])
    });
    let seen = engine.types("run --bundle B --no-pivot --no-new-keyring c");
    let ours = fs::read_to_string("/proc/self/cgroup").unwrap();
    assert_eq!(seen.succeeds(), ours);
}

// podman reads the log as one object, so a warning must not precede an error there.
#[test]
fn podman_lifecycle_through_conmon_works() {
    let bundle = waiting().with("/process/capabilities", json!({ "bounding": ["CAP_OF_THE_FUTURE"] }));
    let engine = Engine::new(bundle, |root, bundle| {
        words(&["--root", root, "--log-format=json", &format!("--log={bundle}/log")])
    });
    engine.types("create --bundle B --pid-file B/pid --no-new-keyring --preserve-fds 0 c").succeeds();
    engine.types("start c").succeeds();
    engine.process("process", &["/guest", "exit", "7"]);
    engine.types("exec --pid-file B/exec.pid --process B/process --detach c").succeeds();
    assert!(engine.pid("exec.pid") > 1);
    let pid = engine.pid("pid");
    engine.types("kill c 9").succeeds();
    until_gone(pid);
    engine.types("delete --force c").succeeds();
    engine.types("state c").fails(1, "does not exist");
}

// podman runs these commands to learn whether pods can be restored (containers/common,
// `CRRuntimeSupportsPodCheckpointRestore`). The full `restore` command is that of containerd's shim.
#[test]
fn engines_can_detect_checkpoint_support() {
    let engine = Engine::new(waiting(), |_, _| Vec::new());
    let features: Value = serde_json::from_str(&engine.types("features").succeeds()).unwrap();
    let enabled = &features["annotations"]["org.opencontainers.runc.checkpoint.enabled"];
    need!(enabled == "true", "the runtime makes no checkpoints");
    engine.types("checkpoint --help").succeeds();
    engine.types("restore --lsm-mount-context").fails(1, "flag needs an argument");
    let restore = "restore --image-path B/image --work-path B/work --detach --pid-file B/pid -no-subreaper --bundle B c";
    let seen = engine.types(restore);
    assert!(!seen.0.status.success());
    let said = String::from_utf8_lossy(&seen.0.stderr);
    assert!(!said.contains("unexpected argument") && !said.contains("--help"), "{said}");
}

#[test]
fn podman_reads_the_log_as_one_object() {
    let bundle = waiting()
        .with("/process/capabilities", json!({ "bounding": ["CAP_OF_THE_FUTURE"] }))
        .with("/process/args", json!(["missing"]));
    let engine = Engine::new(bundle, |root, bundle| {
        words(&["--root", root, "--log-format=json", "--log", &format!("{bundle}/log")])
    });
    engine.types("create --bundle B --pid-file B/pid c").fails(1, "executable file not found in $PATH");
    let objects = log(&engine.read("log"));
    let error = objects.last().unwrap();
    assert_eq!(error["level"], "error");
    assert!(error["msg"].as_str().unwrap().contains("executable file not found in $PATH"), "{error}");
    // With runc, podman loses the error here.
    assert!(objects.len() == 1 || !is_husk(), "{objects:?}");
}

#[test]
fn cri_o_lifecycle_works() {
    let engine = Engine::new(waiting(), |root, _| words(&["--root", root]));
    engine.types("create --bundle B --pid-file B/pid c").succeeds();
    engine.types("start c").succeeds();
    engine.process("process", &["/guest", "exit", "7"]);
    // The pid file exists already.
    fs::write(engine.path("exec.pid"), "").unwrap();
    engine.types("exec --pid-file B/exec.pid --process B/process --detach c").succeeds();
    assert!(engine.pid("exec.pid") > 1);
    engine.types("exec --process B/process c").fails(7, "");
    if is_root() {
        let resources = PathBuf::from(engine.path("resources"));
        fs::write(&resources, json!({ "pids": { "limit": 77 } }).to_string()).unwrap();
        let mut update = engine.runtime.command("update");
        update.args(["--resources", "-", "c"]).stdin(fs::File::open(&resources).unwrap());
        assert!(update.status().unwrap().success());
        engine.types("pause c").succeeds();
        assert_eq!(engine.state()["status"], "paused");
        engine.types("resume c").succeeds();
    }
    let pid = engine.pid("pid");
    engine.types("kill c SIGTERM").succeeds();
    engine.types("kill c KILL").succeeds();
    until_gone(pid);
    if is_root() {
        // `kill --all` is not an error when no process is left.
        engine.types("kill -a c 9").succeeds();
    }
    engine.types("kill c KILL").fails(1, "container not running");
    engine.types("delete --force c").succeeds();
}

#[test]
fn buildah_lifecycle_works() {
    let engine = Engine::new(Bundle::running("until TERM"), |root, _| words(&["--root", root]));
    engine.types("create --bundle B --pid-file B/pid --no-new-keyring c").succeeds();
    let pid = engine.pid("pid");
    assert_eq!(engine.state()["status"], "created");
    engine.types("start c").succeeds();
    // buildah sends the default signal.
    engine.types("kill c").succeeds();
    engine.types("kill c SIGKILL");
    until_gone(pid);
    let state = engine.state();
    assert_eq!((&state["status"], &state["pid"]), (&json!("stopped"), &json!(0)));
    engine.types("delete c").succeeds();
    assert!(engine.runtime.is_empty());
}

#[test]
fn buildkit_lifecycle_works() {
    let engine = Engine::new(Bundle::running("until TERM"), |root, bundle| {
        words(&["--root", root, "--log", &format!("{bundle}/log"), "--log-format", "json"])
    });
    let mut run = engine.runtime.command("run");
    run.args(["--bundle", &engine.path(""), "--keep", "c"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut run = run.spawn().unwrap();
    let mut begun = [0; 6];
    std::io::Read::read_exact(run.stdout.as_mut().unwrap(), &mut begun).unwrap();
    engine.process("process", &["/guest", "exit", "7"]);
    engine.types("exec --process B/process c").fails(7, "");
    let husk = rustix::process::Pid::from_child(&run);
    // buildkit may send SIGWINCH at any time; the program must not receive it as a signal.
    rustix::process::kill_process(husk, rustix::process::Signal::WINCH).unwrap();
    rustix::process::kill_process(husk, rustix::process::Signal::TERM).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(42));
    // `--keep` keeps the container for buildkit to delete.
    assert_eq!(engine.state()["status"], "stopped");
    engine.types("delete c").succeeds();
    assert_eq!(engine.read("log"), "");
}

// dockerd splits the first line at "version" and recognises the other lines by how they begin.
#[test]
fn dockerd_and_go_runc_can_query_features() {
    let engine = Engine::new(waiting(), |_, _| Vec::new());
    let text = engine.types("--version").succeeds();
    let (name, version) = text.lines().find_map(|line| line.split_once("version")).unwrap();
    assert!(
        !name.trim().is_empty() && version.trim().starts_with(|first: char| first.is_ascii_digit()),
        "{text}"
    );
    assert!(text.lines().any(|line| line.starts_with("spec: 1.")), "{text}");
    let features: Value = serde_json::from_str(&engine.types("features").succeeds()).unwrap();
    assert_eq!(features["linux"]["mountExtensions"]["idmap"]["enabled"], true);
    assert!(features["mountOptions"].as_array().unwrap().contains(&json!("rro")));
    need!(is_root(), "the rest tests root's store");
    engine.types("--root=/run/no/such/place list -q").fails(1, "");
}
