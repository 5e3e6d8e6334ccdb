//! `per = "run"` in husk.toml: a service that all husks of a run share. A shell stands for cargo, which starts a husk for
//! each test binary; scripts answer like test binaries.

use crate::hermetic::{Project, has_sandboxes};
use crate::hermetic_services::{have_ended, lines, named, server};
use crate::util::{Seen, guest, need};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

/// A project whose tests share a server.
struct Shared {
    place: Project,
    port: u16,
}

impl Shared {
    /// Each test of this file has a port of its own, by which its server is found.
    fn new(port: u16, keys: &str) -> Self {
        let place = Project::new();
        let toml = format!("{}per = \"run\"\n{keys}", server("web", port));
        fs::write(place.path("here/husk.toml"), toml.replace("GUEST", guest().to_str().unwrap())).unwrap();
        fs::create_dir(place.path("here/deps")).unwrap();
        Self { place, port }
    }

    /// Writes a test binary with the tests `one` and `two`, each of which is this script.
    fn binary(&self, name: &str, script: &str) {
        let script = script.replace("ask", &format!("{} ask {}", guest().display(), self.port));
        let text = format!(
            "#!/bin/sh\ncase \"$*\" in\n*--list*--ignored*) ;;\n*--list*) echo 'one: test'; echo 'two: test';;\n\
             *) {script};;\nesac\n"
        );
        let path = self.place.path(&format!("here/deps/{name}-0123456789abcdef"));
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Returns a shell, in which `$husk OPTIONS $(at NAME)` runs a test binary.
    fn shell(&self, script: &str) -> Command {
        let husk = format!(
            "husk='{} test --runner --explain off --json {} --read {}'\n\
             at() {{ echo {}/here/deps/$1-0123456789abcdef; }}\n",
            env!("CARGO_BIN_EXE_husk"),
            self.place.path("lines.json"),
            guest().parent().unwrap().display(),
            self.place.path("")
        );
        let mut command = Command::new("sh");
        command.args(["-c", &(husk + script)]).current_dir(self.place.path("here"));
        command.env("HOME", self.place.path("home")).env("XDG_CACHE_HOME", self.place.path("cache"));
        command
            .env("CARGO_PKG_NAME", "project")
            .env("CARGO_MANIFEST_DIR", self.place.path("here"))
            .stdin(Stdio::null());
        for variable in ["HUSK_TEST_SHARD", "HUSK_TEST_JSON", "HUSK_TEST_DURATIONS", "NEXTEST_RUN_ID"] {
            command.env_remove(variable);
        }
        command
    }

    fn run(&self, script: &str) -> Seen {
        Seen(self.shell(script).output().unwrap())
    }

    /// Returns the running servers, of which each has a parent with the same words.
    fn servers(&self) -> Vec<OwnedFd> {
        named(&format!("{}\0serve\0{}", guest().display(), self.port))
    }

    /// Returns the output of all tests.
    fn outputs(&self) -> Vec<String> {
        let lines = lines(&self.place.path("lines.json"));
        lines.iter().map(|line| line["output"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Returns what the server has counted for each test.
    fn counts(&self) -> BTreeSet<String> {
        let count = |output: String| {
            let line = output.lines().find(|line| line.starts_with("count ")).expect("a count").to_owned();
            line.trim_start_matches("count ").to_owned()
        };
        self.outputs().into_iter().map(count).collect()
    }
}

fn numbers(most: usize) -> BTreeSet<String> {
    (1..=most).map(|number| number.to_string()).collect()
}

/// The tests fail, so that their output is reported.
const COUNTS: &str = "echo count $(ask count); exit 1";

#[test]
fn husks_of_a_run_share_a_service_that_ends_with_the_run() {
    need!(has_sandboxes(), "needs user namespaces");
    for (round, separator) in ["; ", "& "].into_iter().enumerate() {
        let shared = Shared::new(7310 + u16::try_from(round).unwrap(), "");
        ["web", "db"].iter().for_each(|name| shared.binary(name, COUNTS));
        let mut shell =
            shared.shell(&format!("$husk $(at web){separator}$husk $(at db); wait; echo over; read line"));
        let mut shell =
            shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        read_until(&mut shell, "over");
        let servers = shared.servers();
        assert!(!servers.is_empty());
        drop(shell.stdin.take());
        shell.wait().unwrap();
        have_ended(&servers);
        assert_eq!(shared.counts(), numbers(4));
        // Another run has another one.
        fs::remove_file(shared.place.path("lines.json")).unwrap();
        shared.run("$husk $(at web)");
        assert_eq!(shared.counts(), numbers(2));
    }
}

/// Reads lines until one is this.
fn read_until(child: &mut Child, wanted: &str) {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == wanted));
}

#[test]
fn shared_service_outlives_a_killed_husk_and_ends_with_a_killed_run() {
    need!(has_sandboxes(), "needs user namespaces");
    let shared = Shared::new(7320, "");
    shared.binary("web", "ask count; exec sleep 1000 7320");
    shared.binary("db", COUNTS);
    let script = "$husk $(at web) & echo $!; read line; $husk $(at db); echo over; read line";
    let mut shell = shared.shell(script);
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines().map(Result::unwrap);
    let husk = lines.next().unwrap().parse().unwrap();
    sleeping(7320);
    kill_process(Pid::from_raw(husk).unwrap(), Signal::KILL).unwrap();
    std::io::Write::write_all(shell.stdin.as_mut().unwrap(), b"go on\n").unwrap();
    assert!(lines.any(|line| line == "over"));
    assert_eq!(shared.counts(), ["3", "4"].map(str::to_owned).into());
    let servers = shared.servers();
    assert!(!servers.is_empty());
    shell.kill().unwrap();
    shell.wait().unwrap();
    have_ended(&servers);
}

#[test]
fn shards_and_retries_share_the_service_of_their_run() {
    need!(has_sandboxes(), "needs user namespaces");
    let shared = Shared::new(7330, "");
    shared.binary("web", COUNTS);
    shared.run("$husk --shard 1/2 $(at web); $husk --shard 2/2 $(at web)");
    let tests = lines(&shared.place.path("lines.json")).into_iter().filter(|line| line["test"].is_string());
    let tests: Vec<_> = tests.map(|line| line["output"].as_str().unwrap().to_owned()).collect();
    assert!(tests.len() == 2 && tests[0].contains("count 1") && tests[1].contains("count 2"), "{tests:?}");
    fs::remove_file(shared.place.path("lines.json")).unwrap();
    // It succeeds once the server has counted three.
    shared.binary("web", "test $(ask count) -gt 3");
    shared.run("$husk --retries 3 $(at web) --test-threads=1").succeeds();
}

#[test]
fn shared_service_is_reported_to_each_test_that_fails() {
    need!(has_sandboxes(), "needs user namespaces");
    let shared = Shared::new(7340, "");
    shared.binary("web", "ask count; exit 1");
    shared.binary("db", "ask exit 3; exit 1");
    shared.binary("last", "exit 1");
    shared
        .run("$husk $(at web) --test-threads=1; $husk $(at db) --test-threads=1; $husk $(at last)")
        .fails(101, "");
    let outputs = shared.outputs();
    assert!(outputs[..2].iter().all(|output| output.contains("asked count")), "{outputs:?}");
    // A test does not get what was written before it ran.
    assert!(!outputs[1].contains("asked count\nasked count\n"), "{outputs:?}");
    for output in &outputs[2..] {
        assert!(output.contains("service web, which ended: exit status: 3"), "{outputs:?}");
    }
}

#[test]
fn shared_service_that_is_never_ready_fails_all_tests_that_need_it() {
    need!(has_sandboxes(), "needs user namespaces");
    let shared = Shared::new(7350, "");
    let toml = "[[service]]\nname = \"web\"\ncommand = [\"sh\", \"-c\", \"echo no; exit 4\"]\nready = { port = 1 }\nper = \"run\"\n";
    fs::write(shared.place.path("here/husk.toml"), toml).unwrap();
    ["web", "db"].iter().for_each(|name| shared.binary(name, "true"));
    shared.run("$husk $(at web); $husk $(at db)").fails(101, "");
    let outputs = shared.outputs();
    assert_eq!(outputs.len(), 4);
    for output in outputs {
        assert!(output.contains("web, which ended before it was ready: exit status: 4"), "{output}");
    }
    // One that cannot be started at all.
    fs::write(shared.place.path("here/husk.toml"), toml.replace("\"sh\"", "\"/no/such\"")).unwrap();
    fs::remove_file(shared.place.path("lines.json")).unwrap();
    shared.run("$husk $(at web)").fails(101, "");
    let text = fs::read_to_string(shared.place.path("lines.json")).unwrap();
    assert_eq!(text.matches("which could not be run: service web: /no/such: ").count(), 2, "{text}");
}

#[test]
fn loss_of_the_process_that_keeps_a_service_is_reported() {
    need!(has_sandboxes(), "needs user namespaces");
    let shared = Shared::new(7360, "");
    shared.binary("web", "ask count; exit 1");
    let mut shell =
        shared.shell("$husk $(at web); echo over; read line; $husk $(at web); echo over; read line");
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "over"));
    let servers = shared.servers();
    let kept = keepers(&shared);
    assert_eq!(kept.len(), 1);
    pidfd_send_signal(&kept[0], Signal::KILL).unwrap();
    have_ended(&kept);
    have_ended(&servers);
    // The next husk starts another one.
    std::io::Write::write_all(shell.stdin.as_mut().unwrap(), b"go on\n").unwrap();
    assert!(lines.any(|line| line == "over"));
    assert_eq!(shared.outputs().iter().filter(|output| output.contains("asked count")).count(), 4);
    drop(shell.stdin.take());
    shell.wait().unwrap();
    // While a test runs.
    shared.binary("web", "ask count; exec sleep 1000 7360");
    fs::remove_file(shared.place.path("lines.json")).unwrap();
    let mut shell =
        shared.shell("$husk $(at web)").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let tests = sleeping(7360);
    let kept = keepers(&shared);
    pidfd_send_signal(&kept[0], Signal::KILL).unwrap();
    have_ended(&kept);
    tests.iter().for_each(|test| pidfd_send_signal(test, Signal::KILL).unwrap());
    shell.wait().unwrap();
    let outputs = shared.outputs();
    assert!(
        outputs[0].contains("web, which ended: the process that kept it for the run is gone"),
        "{outputs:?}"
    );
}

/// Waits until the two tests of a binary have asked the server, and returns their processes.
fn sleeping(mark: u16) -> Vec<OwnedFd> {
    loop {
        let found = named(&format!("sleep\x001000\x00{mark}"));
        if found.len() == 2 {
            return found;
        }
        std::thread::yield_now();
    }
}

/// Returns the processes that keep the services of a project. Each leads a session; the first processes of its sandboxes
/// have the same words.
fn keepers(shared: &Shared) -> Vec<OwnedFd> {
    let config = fs::canonicalize(shared.place.path("here/husk.toml")).unwrap();
    let begin = format!("/proc/self/exe\0test\0--config\0{}\0--keep-services\0web", config.display());
    let pids =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let is = |pid: &i32| {
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let (words, stat) = (read("cmdline"), read("stat"));
        let session = stat.rsplit_once(") ").and_then(|(_, fields)| fields.split(' ').nth(3)?.parse().ok());
        words.starts_with(&begin) && session == Some(*pid)
    };
    pids.filter(is).filter_map(|pid| pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()).collect()
}

#[test]
fn directory_that_others_may_write_to_shares_no_service() {
    need!(has_sandboxes(), "needs user namespaces");
    let shared = Shared::new(7370, "");
    shared.binary("web", "true");
    shared.run("$husk $(at web)").succeeds();
    let runs = shared.place.path("cache/husk/runs");
    assert_eq!(fs::metadata(&runs).unwrap().permissions().mode() & 0o777, 0o700);
    fs::set_permissions(&runs, fs::Permissions::from_mode(0o777)).unwrap();
    shared.run("$husk $(at web)").fails(125, "is writable by all users");
}

#[test]
fn one_husk_is_a_run_of_its_own_without_cargo() {
    need!(has_sandboxes(), "needs user namespaces");
    let shared = Shared::new(7380, "");
    ["web", "db"].iter().for_each(|name| shared.binary(name, COUNTS));
    shared.run("unset CARGO_PKG_NAME; $husk $(at web); $husk $(at db)");
    assert_eq!(shared.counts(), numbers(2));
    assert!(!std::path::Path::new(&shared.place.path("cache/husk/runs")).exists());
}
