//! Checks each verb in each state of a container, from create to delete.

use crate::util::{Bundle, Runtime, guest, is_husk, is_root, need, until_gone};
use serde_json::json;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

#[test]
fn run_leaves_nothing() {
    let runtime = Runtime::under_test();
    runtime.run(&Bundle::running("exit 0")).prints("");
    assert!(runtime.is_empty());
}

#[test]
fn run_returns_the_programs_exit_code() {
    assert_eq!(Runtime::under_test().run(&Bundle::running("exit 7")).0.status.code(), Some(7));
}

#[test]
fn a_container_goes_through_its_states() {
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("wait");
    runtime.create(&bundle).succeeds();
    assert_eq!(runtime.status(), "created");
    runtime.create(&bundle).fails(1, "container with given ID already exists");
    runtime.call("start", &["c"]).succeeds();
    assert_eq!(runtime.status(), "running");
    runtime.call("start", &["c"]).fails(1, "cannot start an already running container");
    runtime.call("delete", &["c"]).fails(1, "cannot delete container c that is not stopped: running");
    runtime.call("delete", &["--force", "c"]).succeeds();
    runtime.call("state", &["c"]).fails(1, "container does not exist");
    runtime.call("delete", &["--force", "c"]).succeeds();
    assert!(runtime.is_empty());
}

#[test]
fn a_created_container_can_be_deleted() {
    let runtime = Runtime::under_test();
    runtime.create(&Bundle::running("wait")).succeeds();
    runtime.call("delete", &["c"]).succeeds();
    assert!(runtime.is_empty());
}

// The first process of a pid namespace gets a signal only if it has a handler for it, as Go programs do.
#[test]
fn signal_ends_a_created_container() {
    let runtime = Runtime::under_test();
    for signal in ["HUP", "INT", "QUIT", "TERM"] {
        let bundle = Bundle::running("wait");
        let file = bundle.path().join("pid");
        runtime.create_with(&bundle, &["--pid-file", file.to_str().unwrap()]).succeeds();
        let pid = fs::read_to_string(file).unwrap().parse().unwrap();
        // A signal that does not ask the container to end is kept for the program.
        runtime.call("kill", &["c", "WINCH"]).succeeds();
        assert_eq!(runtime.status(), "created");
        runtime.call("kill", &["c", signal]).succeeds();
        until_gone(pid);
        assert_eq!(runtime.status(), "stopped");
        runtime.call("start", &["c"]).fails(1, "cannot start a container that has stopped");
        runtime.call("delete", &["c"]).succeeds();
    }
    assert!(runtime.is_empty());
}

#[test]
fn exit_code_of_a_killed_program_is_128_plus_signal() {
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("wait");
    let mut running = runtime.running(&bundle);
    let mut said = String::new();
    BufReader::new(running.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "begun\n");
    runtime.call("kill", &["c", "KILL"]).succeeds();
    assert_eq!(running.wait().unwrap().code(), Some(128 + 9));
    assert!(runtime.is_empty());
}

#[test]
fn missing_program_fails_create_and_leaves_nothing() {
    need!(is_husk(), "runc's messages name no field");
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("").with("/process/args", serde_json::json!(["/missing"]));
    let message = "process.args[0]: exec: \"/missing\": stat /missing: no such file or directory";
    runtime.create(&bundle).fails(1, message);
    assert!(runtime.is_empty());
}

#[test]
fn failed_step_names_its_field() {
    need!(is_husk(), "runc's messages name no field");
    let runtime = Runtime::under_test();
    let options = serde_json::json!(["size=nonsense"]);
    let mount =
        serde_json::json!({ "destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": options });
    let message = "mounts[2] /tmp: fsconfig r0 size=nonsense: invalid argument";
    runtime.run(&Bundle::running("exit 0").mounting(mount)).fails(1, message);
    assert!(runtime.is_empty());
}

#[test]
fn unknown_container_or_command_is_an_error() {
    let runtime = Runtime::under_test();
    runtime.call("state", &["c"]).fails(1, "container does not exist");
    runtime.call("kill", &["c"]).fails(1, "container does not exist");
    need!(is_husk(), "runc does not repeat the name");
    runtime.call("start", &["../c"]).fails(1, "invalid container ID \"../c\"");
    runtime.call("dance", &[]).fails(3, "dance");
    assert_eq!(runtime.call("--version", &[]).0.status.code(), Some(0));
}

#[test]
fn stopped_container_can_be_kept() {
    let runtime = Runtime::under_test();
    assert_eq!(runtime.run_with(&Bundle::running("exit 7"), &["--keep"]).0.status.code(), Some(7));
    assert_eq!(runtime.status(), "stopped");
    runtime.call("delete", &["c"]).succeeds();
    assert!(runtime.is_empty());
}

#[test]
fn a_detached_container_outlives_its_runtime() {
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("until HUP");
    let file = bundle.path().join("pid");
    runtime.run_detached(&bundle, &["--detach", "--pid-file", file.to_str().unwrap()]).succeeds();
    assert_eq!(runtime.status(), "running");
    let state: serde_json::Value = serde_json::from_str(&runtime.call("state", &["c"]).succeeds()).unwrap();
    assert_eq!(std::fs::read_to_string(file).unwrap(), state["pid"].to_string());
    runtime.call("kill", &["c", "KILL"]).succeeds();
    until_stopped(&runtime);
    runtime.call("delete", &["c"]).succeeds();
    assert!(runtime.is_empty());
}

#[test]
fn failed_detached_run_is_reported_and_leaves_nothing() {
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("");
    // The kernel has no interpreter for this file. Only execve finds that out.
    let program = bundle.rootfs().join("text");
    std::fs::write(&program, "no program").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let bundle = bundle.with("/process/args", serde_json::json!(["/text"]));
    need!(is_husk(), "runc's start does not report the failure");
    runtime.run_detached(&bundle, &["--detach"]).fails(1, "exec format error");
    assert!(runtime.is_empty());
}

/// A process starts a child, which starts another, in the host's pid namespace. The middle one ends, and the runtime
/// adopts the orphan.
#[test]
fn orphans_are_reaped_without_a_pid_namespace() {
    need!(is_root(), "needs root for a procfs without a pid namespace");
    let namespaces = serde_json::json!([{ "type": "mount" }, { "type": "uts" }]);
    let run = |options: &[&str]| {
        let runtime = Runtime::under_test();
        let bundle = Bundle::running("orphan").with("/linux/namespaces", namespaces.clone());
        runtime.run_with(&bundle, options).succeeds()
    };
    // The parent of the container's process adopts the orphan: the runtime.
    assert_eq!(run(&[]), "adopted by the runtime\nreaped\n");
    assert_eq!(run(&["--no-subreaper"]), "adopted by another\n");
}

// CVE-2019-5736: until it executes its program, a container's process runs the husk binary.
#[test]
fn container_cannot_write_the_runtimes_binary() {
    need!(is_root(), "needs root, the only user who could write it");
    let runtime = Runtime::under_test();
    runtime.create(&Bundle::running("wait")).succeeds();
    let state: serde_json::Value = serde_json::from_str(&runtime.call("state", &["c"]).succeeds()).unwrap();
    let process = Path::new("/proc").join(state["pid"].to_string());
    let executable = process.join("exe");
    let binary = executable.metadata().unwrap().ino();
    let mappings = fs::read_dir(process.join("map_files")).unwrap().map(|entry| entry.unwrap().path());
    let mut mappings: Vec<_> = mappings.filter(|path| path.metadata().unwrap().ino() == binary).collect();
    assert!(!mappings.is_empty());
    mappings.push(executable);
    for path in mappings {
        // With O_TRUNC the kernel checks the mount first. ETXTBSY ("Text file busy") protects every running binary and
        // keeps this test harmless, but that protection ends with the process.
        let refused = fs::OpenOptions::new().write(true).truncate(true).open(&path).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem, "{}", path.display());
    }
}

// A runtime on a mount that cannot be shown read-only, such as a file in memory, is copied and sealed.
#[test]
fn runtime_that_is_only_in_memory_is_sealed() {
    need!(is_root() && is_husk(), "needs root, the only user who could write it");
    let memory = rustix::fs::memfd_create("husk", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let path = |fd: &dyn std::os::fd::AsRawFd| format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd());
    std::fs::write(path(&memory), std::fs::read(env!("CARGO_BIN_EXE_husk")).unwrap()).unwrap();
    // A file that is open for writing cannot be executed.
    let program = std::fs::File::open(path(&memory)).unwrap();
    drop(memory);
    let runtime = Runtime::of(path(&program));
    runtime.create(&Bundle::running("wait")).succeeds();
    let state: serde_json::Value = serde_json::from_str(&runtime.call("state", &["c"]).succeeds()).unwrap();
    assert_sealed(&state["pid"]);
}

// A user is root in their own container, so a binary that they built or installed belongs to root there. The kernel
// lets only root inspect a parked process, so this test inspects the runtime. The runtime is dumpable again once the
// program has begun, and a hook holds it there.
#[test]
fn runtime_owned_by_the_user_is_sealed() {
    need!(!is_root() && is_husk(), "needs an ordinary user");
    let directory = tempfile::tempdir().unwrap();
    let own = directory.path().join("husk");
    let copied = std::process::Command::new("cp").arg(env!("CARGO_BIN_EXE_husk")).arg(&own).status();
    assert!(copied.unwrap().success());
    let fifo = directory.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let hook = json!([{ "path": guest(), "args": ["guest", "cat", fifo] }]);
    let bundle = Bundle::running("exit 0").with("/hooks", json!({ "poststart": hook }));
    let runtime = Runtime::of(&own);
    let mut run = runtime.running(&bundle);
    // This blocks until the hook reads. The hook ends when `hold` is closed.
    let hold = fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    assert_sealed(run.id());
    drop(hold);
    assert!(run.wait().unwrap().success());
}

/// Asserts that a process runs a binary in memory that can be neither written to nor unsealed.
fn assert_sealed(pid: impl std::fmt::Display) {
    let executable = fs::File::open(format!("/proc/{pid}/exe")).unwrap();
    let seals = rustix::fs::fcntl_get_seals(executable).unwrap();
    assert!(seals.contains(rustix::fs::SealFlags::WRITE | rustix::fs::SealFlags::SEAL), "{seals:?}");
}

#[test]
fn one_of_two_concurrent_starts_succeeds() {
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("wait");
    runtime.create(&bundle).succeeds();
    let started = std::thread::scope(|scope| {
        let start = || runtime.call("start", &["c"]).0.status.success();
        [scope.spawn(start), scope.spawn(start)].map(|thread| thread.join().unwrap())
    });
    assert_eq!(started.into_iter().filter(|started| *started).count(), 1);
}

#[test]
fn run_forwards_signals() {
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("until HUP");
    let mut running = runtime.running(&bundle);
    let mut said = String::new();
    BufReader::new(running.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "begun\n");
    let runtime_process = rustix::process::Pid::from_child(&running);
    rustix::process::kill_process(runtime_process, rustix::process::Signal::HUP).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(42));
    assert!(runtime.is_empty());
}

// The container has no pid namespace: the first process of one ignores signals that it has no handler for.
#[test]
fn signal_before_the_program_starts_is_not_lost() {
    need!(is_root(), "needs root to run a container without a pid namespace");
    let mut bundle = Bundle::running("hang");
    let namespaces = bundle.config["linux"]["namespaces"].as_array_mut().unwrap();
    namespaces.retain(|namespace| namespace["type"] != "pid");
    let fifo = bundle.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let hook = json!([{ "path": guest(), "args": ["guest", "cat", fifo] }]);
    let bundle = bundle.with("/hooks", json!({ "createRuntime": hook }));
    let runtime = Runtime::under_test();
    let mut run = runtime.running(&bundle);
    // This blocks until the hook, which runs before the program, reads. The hook ends when `hold` is closed.
    let hold = fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    let process = rustix::process::Pid::from_child(&run);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    drop(hold);
    assert_eq!(run.wait().unwrap().code(), Some(128 + 15));
    assert!(runtime.is_empty());
}

#[test]
fn containers_are_listed() {
    let runtime = Runtime::under_test();
    runtime.call("list", &["--format", "json"]).prints("null");
    let bundle = Bundle::running("wait");
    runtime.create(&bundle).succeeds();
    runtime.call("list", &["-q"]).prints("c");
    let listed: serde_json::Value =
        serde_json::from_str(&runtime.call("list", &["-f", "json"]).succeeds()).unwrap();
    assert_eq!((&listed[0]["id"], &listed[0]["status"]), (&"c".into(), &"created".into()));
    assert_ne!(listed[0]["owner"], "");
    let table = runtime.call("list", &[]).succeeds();
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["ID", "PID", "STATUS", "BUNDLE", "CREATED", "OWNER"]);
    assert_eq!((lines[1][0], lines[1][2]), ("c", "created"));
}

#[test]
fn unreadable_container_hides_no_other() {
    let runtime = Runtime::under_test();
    runtime.create(&Bundle::running("wait")).succeeds();
    std::fs::create_dir(runtime.root().join("broken")).unwrap();
    std::fs::write(runtime.root().join("broken/state.json"), "{").unwrap();
    runtime.call("list", &["-q"]).prints("c");
    need!(is_husk(), "the message is husk's");
    runtime.call("delete", &["broken"]).fails(1, "state of the container cannot be read");
    runtime.call("delete", &["--force", "broken"]).succeeds();
    runtime.call("list", &["-q"]).prints("c");
}

#[test]
fn unwritable_pid_file_leaves_no_process() {
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("wait");
    let error = runtime.create_with(&bundle, &["--pid-file", "/no/such/directory/pid"]);
    need!(is_husk(), "the message is husk's");
    error.fails(1, "write /no/such/directory/pid: no such file or directory");
    assert!(runtime.is_empty());
    let mut processes = std::fs::read_dir("/proc").unwrap().flatten();
    let root = bundle.rootfs();
    let left =
        processes.find(|process| std::fs::read_link(process.path().join("root")).is_ok_and(|at| at == root));
    assert!(left.is_none(), "{left:?}");
}

#[test]
fn pid_file_holds_only_a_number() {
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("wait");
    let file = bundle.path().join("pid");
    runtime.create_with(&bundle, &["--pid-file", file.to_str().unwrap()]).succeeds();
    let pid = std::fs::read_to_string(file).unwrap();
    let state: serde_json::Value = serde_json::from_str(&runtime.call("state", &["c"]).succeeds()).unwrap();
    assert_eq!(pid, state["pid"].to_string());
}

#[test]
fn user_namespace_and_id_maps_need_each_other() {
    need!(is_husk(), "runc's messages name no field");
    let runtime = Runtime::under_test();
    let namespaces = |kinds: &[&str]| -> serde_json::Value {
        kinds.iter().map(|kind| serde_json::json!({ "type": kind })).collect()
    };
    let map = serde_json::json!([{ "containerID": 0, "hostID": 0, "size": 1 }]);
    let bundle = Bundle::running("exit 0")
        .with("/linux/namespaces", namespaces(&["mount", "user"]))
        .with("/linux/uidMappings", serde_json::json!([]));
    runtime.run(&bundle).fails(1, "linux.uidMappings: is missing");
    let bundle = bundle.with("/linux/namespaces", namespaces(&["mount"])).with("/linux/uidMappings", map);
    let wanted = match is_root() {
        true => "linux.uidMappings: needs a new user namespace",
        false => "linux.namespaces: rootless container requires user namespaces",
    };
    runtime.run(&bundle).fails(1, wanted);
    assert!(runtime.is_empty());
}

/// Waits until the container's process has ended.
fn until_stopped(runtime: &Runtime) {
    while runtime.status() != "stopped" {
        std::thread::yield_now();
    }
}
