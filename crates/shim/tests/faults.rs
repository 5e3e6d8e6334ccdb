//! Deaths: of containerd, of the shim, of clients. The shim itself lives on as small as it was.

use crate::client::{Client, FAILED_PRECONDITION, NOT_FOUND, Streams, named};
use crate::engine::{Engine, input, is_root, need, pidfd, program, until_ended, whole_life};
use crate::events::LIFE;
use crate::mounts::layered;
use crate::wire::Empty;
use crate::wire::task::Status;
use serde_json::json;
use std::fs;
use std::io::Write as _;

#[test]
fn events_wait_until_containerd_is_back() {
    need!(is_root(), "needs root");
    let mut engine = Engine::new();
    let bundle = engine.bundle("c", "wait");
    let mut client = engine.start(&bundle);
    client.create(&bundle, Streams::none());
    client.start("c", "");
    engine.events.expect(&["create", "start"]);
    engine.events.die();
    client.exec("c", "e", "exit 3", Streams::none());
    client.start("c", "e");
    assert_eq!(client.wait("c", "e"), 3);
    client.kill("c", "");
    client.wait("c", "");
    client.delete("c", "");
    engine.events.revive();
    let events = engine.events.expect(&["exec-added", "exec-started", "exit", "exit", "delete"]);
    assert_eq!((events[2].exit().0, events[3].exit().0), ("e".to_owned(), "c".to_owned()));
}

#[test]
fn shim_that_shuts_down_tells_the_last_events_first() {
    need!(is_root(), "needs root");
    let mut engine = Engine::new();
    let bundle = engine.bundle("c", "exit 0");
    let mut client = engine.start(&bundle);
    engine.events.die();
    assert_eq!(whole_life(&mut client, &bundle, Streams::none()), 0);
    client.shutdown();
    engine.events.revive();
    engine.events.expect(&LIFE);
    engine.until_shims_ended();
}

#[test]
fn last_requests_of_a_client_are_carried_out() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "exit 0");
    let mut client = engine.start(&bundle);
    client.create(&bundle, Streams::none());
    client.start("c", "");
    client.wait("c", "");
    client.begin("Delete", &named("c", ""));
    client.begin("Connect", &named("c", ""));
    drop(client);
    engine.events.expect(&LIFE);
}

#[test]
fn client_that_leaves_while_it_waits_harms_nothing() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "wait");
    let mut client = engine.start(&bundle);
    client.create(&bundle, Streams::none());
    client.start("c", "");
    client.begin("Wait", &named("c", ""));
    drop(client);
    let mut client = Client::connect(&engine.start_shim(&bundle));
    assert_eq!(client.state("c", "").status, i32::from(Status::Running));
    client.kill("c", "");
    assert_eq!(client.wait("c", ""), 137);
    assert_eq!(client.delete("c", "").exit_status, 137);
}

#[test]
fn client_that_leaves_during_create_leaves_a_container() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "exit 9");
    let mut client = engine.start(&bundle);
    client.begin("Create", &bundle.request(Streams::none()));
    drop(client);
    engine.events.expect(&["create"]);
    let mut client = Client::connect(&engine.start_shim(&bundle));
    client.start("c", "");
    assert_eq!(client.wait("c", ""), 9);
}

#[test]
fn delete_removes_everything_of_a_shim_that_was_killed() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = layered(&engine, "c", "wait");
    let mut client = engine.start(&bundle);
    let pid = client.create(&bundle, Streams::none());
    client.start("c", "");
    client.exec("c", "e", "wait", Streams::none());
    let processes = [pidfd(pid), pidfd(client.start("c", "e"))];
    assert!(!bundle.cgroups().is_empty() && !bundle.mount_points().is_empty());
    engine.kill_shims();
    let deleted = engine.delete(&bundle);
    assert_eq!((deleted.pid, deleted.exit_status), (pid, 137));
    assert!(deleted.exited_at.is_some_and(|time| time.seconds > 0));
    processes.iter().for_each(until_ended);
    assert_eq!((bundle.cgroups().len(), engine.sockets()), (0, 0));
    assert_eq!(bundle.mount_points(), [""; 0]);
    assert!(engine.has_no_container());
    // containerd may call it again.
    assert_eq!(engine.delete(&bundle).exit_status, 137);
}

#[test]
fn delete_succeeds_if_the_shim_made_no_container() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "wait");
    engine.start(&bundle);
    engine.kill_shims();
    let deleted = engine.delete(&bundle);
    assert_eq!((deleted.pid, deleted.exit_status, engine.sockets()), (0, 137, 0));
}

#[test]
fn hook_that_hangs_holds_up_its_container_only() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let (path, mut hook) = engine.output("hook");
    let program = program().to_str().unwrap().to_owned();
    let hooks = json!({ "createRuntime": [{ "path": program, "args": ["inside", "hang", path] }] });
    let bundle = layered(&engine, "c", "wait").with("/hooks", hooks);
    let mut client = engine.start(&bundle);
    client.begin("Create", &bundle.request(Streams::none()));
    assert_eq!(hook.line(), "begun");
    let other = engine.bundle("other", "exit 8");
    assert_eq!(whole_life(&mut client, &other, Streams::none()), 8);
    assert_eq!(client.refused("State", &named("c", "")), NOT_FOUND);
    // The shim dies in the midst of `Create`.
    assert_eq!(bundle.mount_points().len(), 2);
    engine.kill_shims();
    assert_eq!(engine.delete(&bundle).exit_status, 137);
    assert_eq!(hook.until_end(), "");
    assert_eq!(bundle.mount_points(), [""; 0]);
    assert_eq!((bundle.cgroups().len(), engine.has_no_container()), (0, true));
}

/// Kills the process of the only verb that runs.
fn kill_verb(client: &mut Client) {
    let shim = client.shim_pid();
    let children = fs::read_to_string(format!("/proc/{shim}/task/{shim}/children")).unwrap();
    let is_verb = |pid: &&str| fs::read(format!("/proc/{pid}/cmdline")).unwrap().ends_with(b"\0verb\0");
    let verb = pidfd(children.split_whitespace().find(is_verb).unwrap().parse().unwrap());
    rustix::process::pidfd_send_signal(&verb, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn create_that_is_killed_leaves_nothing() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let (path, mut hook) = engine.output("hook");
    let program = program().to_str().unwrap().to_owned();
    let hooks = json!({ "createRuntime": [{ "path": program, "args": ["inside", "hang", path] }] });
    let bundle = layered(&engine, "c", "exit 6").with("/hooks", hooks);
    let mut client = engine.start(&bundle);
    let creating = client.begin("Create", &bundle.request(Streams::none()));
    assert_eq!(hook.line(), "begun");
    kill_verb(&mut client);
    let refusal = client.answer::<Empty>(creating).unwrap_err();
    assert!(refusal.message.contains("killed by signal 9"), "{refusal:?}");
    assert_eq!(bundle.mount_points(), [""; 0]);
    assert_eq!((bundle.cgroups().len(), engine.has_no_container()), (0, true));
    let bundle = bundle.with("/hooks", json!({}));
    assert_eq!(whole_life(&mut client, &bundle, Streams::none()), 6);
}

#[test]
fn container_that_cannot_be_deleted_can_still_be_killed() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let (path, mut hook) = engine.output("hook");
    let program = program().to_str().unwrap().to_owned();
    let hooks = json!({ "poststart": [{ "path": program, "args": ["inside", "hang", path] }] });
    let bundle = engine.bundle("c", "wait").with("/hooks", hooks);
    let mut client = engine.start(&bundle);
    client.create(&bundle, Streams::none());
    let starting = client.begin("Start", &named("c", ""));
    assert_eq!(hook.line(), "begun");
    kill_verb(&mut client);
    client.answer::<Empty>(starting).unwrap_err();
    // The program runs, so it is not deleted.
    assert_eq!(client.refused("Delete", &named("c", "")), FAILED_PRECONDITION);
    client.kill("c", "");
    assert_eq!(client.wait("c", ""), 137);
    client.delete("c", "");
    assert!(engine.has_no_container());
}

#[test]
fn shim_without_descriptors_accepts_clients_when_it_has_some_again() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "exit 0");
    let mut client = engine.start(&bundle);
    let shim = rustix::process::Pid::from_raw(client.shim_pid().cast_signed()).unwrap();
    let lowest = rustix::process::Rlimit {
        current: Some(3),
        ..rustix::process::getrlimit(rustix::process::Resource::Nofile)
    };
    let set = |limit| rustix::process::prlimit(Some(shim), rustix::process::Resource::Nofile, limit).unwrap();
    let before = set(lowest);
    let mut second = Client::connect(&engine.start_shim(&bundle));
    // The shim has tried to accept it when it has answered twice.
    for _ in 0..2 {
        client.shim_pid();
    }
    set(before);
    assert_eq!(second.shim_pid(), client.shim_pid());
}

#[test]
fn client_that_reads_nothing_is_dropped_and_others_are_served() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "exit 2");
    let mut client = engine.start(&bundle);
    let mut deaf = Client::connect(&engine.start_shim(&bundle));
    // The error names the method, so each answer is as long as its question.
    let name = "x".repeat(1 << 20);
    let sent = (0..100).take_while(|_| deaf.send("", &name, Vec::new()).is_ok()).count();
    assert!((10..100).contains(&sent), "{sent} answers were kept");
    assert_eq!(whole_life(&mut client, &bundle, Streams::none()), 2);
}

/// The descriptors, threads, children and memory of a shim.
#[derive(Debug, PartialEq, Eq)]
struct Possessions {
    descriptors: Vec<String>,
    threads: usize,
    children: String,
    /// The sizes of its memory areas together.
    bytes: u64,
}

impl Possessions {
    fn of(pid: u32) -> Self {
        let count = |directory: &str| fs::read_dir(format!("/proc/{pid}/{directory}")).unwrap();
        let mut descriptors: Vec<_> = count("fd")
            .map(|entry| {
                let target = fs::read_link(entry.unwrap().path()).unwrap();
                // A socket's number may change.
                target.to_string_lossy().split(':').next().unwrap().to_owned()
            })
            .collect();
        descriptors.sort();
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        let sizes = maps.lines().filter_map(|line| {
            let (from, to) = line.split(' ').next()?.split_once('-')?;
            Some(u64::from_str_radix(to, 16).ok()? - u64::from_str_radix(from, 16).ok()?)
        });
        Self {
            descriptors,
            threads: count("task").count(),
            children: fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap(),
            bytes: sizes.sum(),
        }
    }
}

#[test]
fn shim_keeps_one_thread_and_nothing_of_containers_that_are_gone() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let pod = |id| {
        let bundle = engine.bundle(id, "answer");
        bundle.with("/annotations/io.kubernetes.cri.sandbox-id", json!("pod"))
    };
    let bundles = [pod("c"), pod("t").with("/process/terminal", json!(true))];
    let mut client = engine.start(&bundles[0]);
    let ((out, mut stdout), stdin) = (engine.output("out"), engine.fifo("in"));
    let pid = client.shim_pid();
    let mut before = None;
    for round in 0..40 {
        let bundle = &bundles[round % 2];
        let id = &*bundle.id;
        let streams = Streams::to(&out).with_input(&stdin);
        client.create(bundle, if id == "t" { streams.at_terminal() } else { streams });
        client.start(id, "");
        writeln!(input(&stdin), "text").unwrap();
        while stdout.line() != "0 text" {}
        client.exec(id, "e", "print out err", Streams::to(format!("file://{}", engine.text("log"))));
        client.start(id, "e");
        client.wait(id, "e");
        client.delete(id, "e");
        // This one is still there when its container is deleted.
        client.exec(id, "f", "exit 0", Streams::none());
        client.kill(id, "");
        client.wait(id, "");
        client.delete(id, "");
        engine.events.expect(&["create", "start", "exec-added", "exec-started", "exit", "exec-added"]);
        engine.events.expect(&["exit", "delete"]);
        if round == 9 {
            before = Some(Possessions::of(pid));
        }
    }
    let after = Possessions::of(pid);
    assert_eq!((after.threads, &*after.children), (1, ""));
    assert_eq!(before, Some(after));
    assert!(engine.has_no_container());
    assert!(bundles.iter().all(|bundle| bundle.cgroups().is_empty()));
}

#[test]
fn process_that_sees_the_shim_cannot_look_into_it() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let namespaces = json!(["ipc", "uts", "mount", "network"].map(|kind| json!({ "type": kind })));
    let bundle = engine.bundle("c", "wait").with("/linux/namespaces", namespaces);
    let mut client = engine.start(&bundle);
    client.create(&bundle, Streams::none());
    client.start("c", "");
    let spied_on = |client: &mut Client, exec: &str, pid: u32| {
        let (out, mut stdout) = engine.output(exec);
        client.exec("c", exec, &format!("spy {pid}"), Streams::to(&out));
        client.start("c", exec);
        stdout.until_end()
    };
    let shim = client.shim_pid();
    let found = spied_on(&mut client, "e", shim);
    assert_eq!(found, "mem hidden\nenviron hidden\nmaps hidden\nexe hidden\nroot hidden\n");
    // It sees another process of the container, so it does look.
    let first = client.state("c", "").pid;
    let found = spied_on(&mut client, "f", first);
    assert_eq!(found, "mem seen\nenviron seen\nmaps seen\nexe seen\nroot seen\n");
}
