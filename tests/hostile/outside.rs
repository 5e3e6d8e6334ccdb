//! Attacks from outside the container that is being made. A neighbour in the host's pid namespace, and companions of a
//! process that waits for `start`, look for a process that has the runtime's memory.
//!
//! Each must succeed if `prctl(PR_SET_DUMPABLE)` does nothing (`false_answers.rs`).

use super::false_answers::{self, FalseAnswer};
use crate::hermetic::Project;
use crate::util::{Bundle, Runtime, Seen, is_husk, is_root, need, program};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::{Value, json};
use std::env;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Lines, Read as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::process::{Child, ChildStdout, Command};
use std::sync::{Mutex, PoisonError};

/// Returns how often each kind of process is started beside a neighbour.
fn starts() -> usize {
    env::var("SCANS").map_or(200, |count| count.parse().expect("SCANS is a number"))
}

/// The maximum on a kernel that gives false answers, where starts continue until the neighbour finds memory.
const MOST_LOST: usize = 2000;

/// Capabilities of a neighbour, and of containers beside it.
const FEW: [&str; 3] = ["CAP_CHOWN", "CAP_FOWNER", "CAP_SETUID"];

/// Returns an address in husk's program, which is fixed, and the bytes there, as arguments for the guest.
fn mark() -> [String; 2] {
    let mut head = [0; 4096];
    File::open(program()).and_then(|mut file| file.read_exact(&mut head)).expect("husk's binary");
    let word = |at: usize, size: usize| {
        let bytes = head[at..at + size].iter().rev();
        bytes.fold(0_usize, |word, byte| word << 8 | usize::from(*byte))
    };
    // elf(5): the program headers begin at `e_phoff`. The first segment that is loaded from the file's beginning has it
    // in memory at `p_vaddr`.
    let (first, size, count) = (word(32, 8), word(54, 2), word(56, 2));
    let mut headers = (0..count).map(|index| first + index * size);
    let loaded = headers.find(|at| word(*at, 4) == 1 && word(at + 8, 8) == 0).expect("a loaded segment");
    // This includes the entry point, which no other program has at this address.
    let bytes = head[..64].iter().map(|byte| format!("{byte:02x}")).collect();
    [format!("{:x}", word(loaded + 16, 8)), bytes]
}

fn with_capabilities(bundle: Bundle, capabilities: &[&str]) -> Bundle {
    let sets = json!({ "bounding": capabilities, "permitted": capabilities, "effective": capabilities });
    bundle.with("/process/capabilities", sets)
}

/// Returns new namespaces of these kinds.
fn namespaces(kinds: &[&str]) -> Value {
    kinds.iter().map(|kind| json!({ "type": kind })).collect()
}

fn in_user_namespace(bundle: Bundle) -> Bundle {
    let map = json!([{ "containerID": 0, "hostID": 100_000, "size": 65536 }]);
    let bundle = bundle.with("/linux/namespaces", namespaces(&["user", "pid", "ipc", "uts", "mount"]));
    fs::set_permissions(bundle.path(), fs::Permissions::from_mode(0o755))
        .expect("the permissions of the bundle");
    chown(bundle.rootfs(), Some(100_000), Some(100_000)).expect("a root file system");
    bundle.with("/linux/uidMappings", map.clone()).with("/linux/gidMappings", map)
}

/// Pins this thread and its children to one processor; undone on drop.
struct Pinned(CpuSet);

impl Pinned {
    fn to(index: usize) -> Self {
        let before = sched_getaffinity(None).expect("the processors");
        let mut one = CpuSet::new();
        let nth = (0..CpuSet::MAX_CPU).filter(|cpu| before.is_set(*cpu)).cycle().nth(index);
        one.set(nth.expect("a processor"));
        sched_setaffinity(None, &one).expect("one of the processors");
        Self(before)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        sched_setaffinity(None, &self.0).expect("the processors");
    }
}

/// A container in the host's pid namespace that looks for the runtime's memory.
struct Neighbour {
    /// The bundle, which must exist while the neighbour lives.
    _bundle: Bundle,
    runtime: Runtime,
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// Its findings.
    obtained: Vec<String>,
}

impl Neighbour {
    fn with(capabilities: &[&str]) -> Self {
        let [address, bytes] = mark();
        let bundle = with_capabilities(Bundle::running(&format!("scan {address} {bytes}")), capabilities);
        let bundle = bundle.with("/linux/namespaces", namespaces(&["ipc", "uts", "mount"]));
        let runtime = Runtime::under_test();
        let mut process = runtime.running(&bundle);
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "begun");
        Self { _bundle: bundle, runtime, process, lines, obtained: Vec::new() }
    }

    /// Returns everything it has found so far. First starts a process that it can access, and waits until it has found
    /// it, which proves that it works.
    fn obtained(mut self) -> Vec<String> {
        let name = format!("one of {} to be seen", self.process.id());
        let shown = Bundle::running("wait");
        let shown = shown.with("/process/env", json!([format!("SCANNED_FOR={name}")]));
        let shown =
            with_capabilities(shown.with("/linux/namespaces", namespaces(&["ipc", "uts", "mount"])), &[]);
        let runtime = Runtime::under_test();
        let mut process = runtime.running(&shown);
        loop {
            let line = self.lines.next().expect("output of the neighbour").unwrap();
            if line == format!("environment of {name}") {
                break;
            }
            self.note(line);
        }
        runtime.call("delete", &["--force", "c"]).succeeds();
        process.wait().unwrap();
        self.runtime.call("delete", &["--force", "c"]).succeeds();
        while let Some(line) = self.lines.next() {
            self.note(line.unwrap());
        }
        self.process.wait().unwrap();
        self.obtained
    }

    /// Keeps findings about the runtime. Ignores an incomplete variable of the process above.
    fn note(&mut self, line: String) {
        if !line.starts_with("environment of one") {
            self.obtained.push(line);
        }
    }
}

/// Serializes the tests: on a kernel that gives false answers, the neighbour of another test would find memory.
static ALONE: Mutex<()> = Mutex::new(());

/// Starts a process of some kind with commands that the caller runs.
type Start = Box<dyn Fn(&dyn Fn(Command) -> Seen)>;

/// Returns the kinds of processes that share the runtime's memory during their start.
fn kinds(capabilities: &'static [&'static str]) -> Vec<(&'static str, Start)> {
    let run = move |bundle: Bundle| -> Start {
        let bundle = with_capabilities(bundle, capabilities);
        bundle.write();
        Box::new(move |go| {
            let runtime = Runtime::under_test();
            let mut command = runtime.command("run");
            command.arg("--bundle").arg(bundle.path()).arg("c");
            go(command).succeeds();
        })
    };
    let create = move |bundle: Bundle| -> Start {
        let bundle = with_capabilities(bundle, capabilities);
        bundle.write();
        Box::new(move |go| {
            let runtime = Runtime::under_test();
            let mut command = runtime.command("create");
            command.arg("--bundle").arg(bundle.path()).arg("c");
            go(command).succeeds();
            let mut command = runtime.command("start");
            command.arg("c");
            go(command).succeeds();
        })
    };
    let exec = move |bundle: Bundle| -> Start {
        let bundle = with_capabilities(bundle, capabilities);
        let runtime = Runtime::started(&bundle);
        Box::new(move |go| {
            let _kept = &bundle;
            let mut command = runtime.command("exec");
            command.args(["c", "/guest", "exit", "0"]);
            go(command).succeeds();
        })
    };
    let guest = || Bundle::running("exit 0");
    let mapped = || {
        let map = json!([{ "containerID": 0, "hostID": 200_000, "size": 65536 }]);
        let guest = guest();
        let source = guest.rootfs();
        guest.mounting(json!({ "destination": "/mapped", "source": source, "options": ["bind"],
            "uidMappings": map, "gidMappings": map }))
    };
    let hooked = || {
        guest().with(
            "/hooks",
            json!({ "startContainer": [{ "path": "/guest", "args": ["guest", "exit", "0"] }] }),
        )
    };
    vec![
        ("run", run(guest())),
        ("run in a user namespace", run(in_user_namespace(guest()))),
        ("run with an idmapped mount", run(mapped())),
        ("run with a hook", run(hooked())),
        ("create", create(guest())),
        ("create in a user namespace", create(in_user_namespace(guest()))),
        ("exec", exec(Bundle::running("hang"))),
        ("exec in a user namespace", exec(in_user_namespace(Bundle::running("hang")))),
        ("test", Box::new(|go| drop(go(Project::new().command(&[], &["true"])).succeeds()))),
        ("test with a service", Box::new(|go| drop(go(served().command(&[], &["true"])).succeeds()))),
    ]
}

/// Returns a project whose tests have a service. Its sandboxes join a network, so their first processes have a copy of
/// the runtime's memory.
fn served() -> Project {
    let place = Project::new();
    let toml = "[[service]]\nname = \"it\"\ncommand = [\"sh\", \"-c\", \"echo up; exec sleep 1000\"]\nready = { log = \"up\" }\n";
    fs::write(place.path("here/husk.toml"), toml).unwrap();
    place
}

/// Starts it many times beside a neighbour. Returns what the neighbour found.
fn beside(
    capabilities: &'static [&'static str],
    start: &Start,
    false_answers: &[FalseAnswer],
) -> Vec<String> {
    let neighbour = {
        let _pinned = Pinned::to(1);
        Neighbour::with(capabilities)
    };
    let _pinned = Pinned::to(0);
    let go = |mut command: Command| {
        command.env("SCANNED_FOR", "the runtime");
        if false_answers.is_empty() {
            Runtime::under_test().detached(command)
        } else {
            false_answers::run(&command, false_answers)
        }
    };
    for _ in 0..starts() {
        start(&go);
    }
    neighbour.obtained()
}

#[test]
fn weaker_process_on_the_host_cannot_open_memory_of_the_runtime() {
    need!(is_husk() && is_root(), "needs root to start less privileged processes");
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for capabilities in [&[][..], &FEW] {
        for (kind, start) in kinds(capabilities) {
            eprintln!("{kind} beside {capabilities:?}");
            let obtained = beside(capabilities, &start, &[]);
            assert!(obtained.is_empty(), "{kind} beside a neighbour with {capabilities:?}: {obtained:?}");
        }
    }
}

#[test]
fn weaker_process_on_the_host_opens_memory_that_stays_dumpable() {
    need!(is_husk() && is_root(), "needs root to start less privileged processes");
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for (kind, start) in kinds(&[]) {
        eprintln!("{kind} without the defence");
        let mut tries = 0;
        while !beside(&[], &start, &[FalseAnswer::StaysDumpable])
            .iter()
            .any(|line| line.starts_with("memory"))
        {
            tries += starts();
            assert!(tries < MOST_LOST, "{kind}: nothing was obtained in {tries} starts");
        }
    }
}

/// Returns a bundle that runs the guest with these words.
type MakeBundle = fn(&str) -> Bundle;

/// Returns what two companions find, in a container with these capabilities. One joins a process that waits for
/// `start`, the other is a hook of a process that is about to start.
fn companions(
    bundle: impl Fn(&str) -> Bundle,
    capabilities: &[&str],
    false_answers: &[FalseAnswer],
) -> [Seen; 2] {
    let [address, bytes] = mark();
    let looks = ["/guest", "scan", "first", &address, &bytes];
    let go = |mut command: Command| {
        command.env("SCANNED_FOR", "the runtime");
        if false_answers.is_empty() {
            Runtime::under_test().detached(command)
        } else {
            false_answers::run(&command, false_answers)
        }
    };
    let runtime = Runtime::under_test();
    let waiting = with_capabilities(bundle("exit 0"), capabilities);
    waiting.write();
    let mut command = runtime.command("create");
    command.arg("--bundle").arg(waiting.path()).arg("c");
    go(command).succeeds();
    let exec = runtime.call("exec", &[&["c"][..], &looks].concat());
    runtime.call("delete", &["--force", "c"]).succeeds();

    let hook = json!([{ "path": "/guest", "args": looks }]);
    let hooked =
        with_capabilities(bundle("exit 0"), capabilities).with("/hooks", json!({ "startContainer": hook }));
    hooked.write();
    let mut command = runtime.command("run");
    command.arg("--bundle").arg(hooked.path()).arg("c");
    [exec, go(command)]
}

#[test]
fn process_in_the_container_opens_nothing_before_exec() {
    need!(is_husk(), "runc exposes other information");
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let users = |words: &str| in_user_namespace(Bundle::running(words));
    // Without root every container has a user namespace.
    let in_users: MakeBundle = if is_root() { users } else { Bundle::running };
    let tracer = &["CAP_SYS_PTRACE"][..];
    let kinds: [(MakeBundle, &[&str]); 4] =
        [(Bundle::running, &[]), (Bundle::running, &FEW), (in_users, &[]), (in_users, tracer)];
    for (bundle, capabilities) in kinds {
        let [exec, hook] = companions(bundle, capabilities, &[]);
        hook.succeeds();
        // A caller without privileges can enter the container only after its program has started.
        if is_root() {
            exec.prints("");
        }
    }
    // In a user namespace the kernel itself makes memory undumpable, when ids change.
    for capabilities in [&[][..], &FEW] {
        let [exec, hook] = companions(Bundle::running, capabilities, &[FalseAnswer::StaysDumpable]);
        hook.fails(1, "memory of the runtime");
        if is_root() {
            exec.fails(3, "");
            assert!(String::from_utf8_lossy(&exec.0.stdout).contains("memory of the runtime"));
        }
    }
}

/// Returns a container that may trace, has no user namespace, and has secrets of others in its configuration.
fn tracing(words: &str) -> Bundle {
    let hook = |who| json!([{ "path": "/bin/true", "env": [format!("SCANNED_FOR={who}")] }]);
    with_capabilities(Bundle::running(words), &["CAP_SYS_PTRACE"]).with(
        "/hooks",
        json!({
            "createRuntime": hook("a hook of the host"),
            "createContainer": hook("a hook before the container"),
            "poststop": hook("a hook at the end")
        }),
    )
}

/// Returns what a tracer reads in a process that waits for `start`, and in one that is about to start.
fn tracers(false_answers: &[FalseAnswer]) -> [Seen; 2] {
    let go = |mut command: Command| {
        command.env("SCANNED_FOR", "the runtime");
        if false_answers.is_empty() {
            Runtime::under_test().detached(command)
        } else {
            false_answers::run(&command, false_answers)
        }
    };
    let runtime = Runtime::under_test();
    let waiting = tracing("exit 0").with("/annotations", json!({ "note": "SCANNED_FOR=an annotation" }));
    waiting.write();
    let mut command = runtime.command("create");
    command.arg("--bundle").arg(waiting.path()).arg("c");
    go(command).succeeds();
    let exec = runtime.call("exec", &["c", "/guest", "scan", "all"]);
    runtime.call("start", &["c"]).succeeds();
    runtime.call("delete", &["--force", "c"]).succeeds();

    // No annotation here: hooks may know annotations.
    let hook = json!([{ "path": "/guest", "args": ["guest", "scan", "all"] }]);
    let hooked = tracing("exit 0").with("/hooks/startContainer", hook);
    hooked.write();
    let mut command = runtime.command("run");
    command.arg("--bundle").arg(hooked.path()).arg("c");
    [exec, go(command)]
}

#[test]
fn tracer_in_the_container_finds_no_secret_of_the_runtime() {
    need!(is_husk() && is_root(), "without root every container has a user namespace");
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let [exec, hook] = tracers(&[]);
    assert_eq!(String::from_utf8_lossy(&exec.0.stdout), "");
    exec.succeeds();
    hook.succeeds();
}

#[test]
fn tracer_in_the_container_finds_secrets_if_memory_is_not_forgotten() {
    need!(is_husk() && is_root(), "without root every container has a user namespace");
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let [exec, hook] = tracers(&[FalseAnswer::ForgetsNothing]);
    exec.fails(3, "");
    let read = String::from_utf8_lossy(&exec.0.stdout);
    for secret in [
        "the runtime",
        "an annotation",
        "a hook of the host",
        "a hook before the container",
        "a hook at the end",
    ] {
        assert!(read.lines().any(|line| line == secret), "{secret}: {read}");
    }
    hook.fails(1, "the runtime");
}
