//! Containers from `Create` to `Delete`, and processes that `Exec` adds.

use crate::client::{SERVICES, Streams, named};
use crate::engine::{Engine, is_root, need, whole_life};
use crate::events::LIFE;
use crate::wire::events::{TaskCreate, TaskDelete, TaskExecAdded, TaskExecStarted, TaskExit, TaskStart};
use crate::wire::task::{Status, WaitResponse};
use serde_json::json;

#[test]
fn container_lives_from_create_to_shutdown() {
    need!(is_root(), "needs root");
    for service in SERVICES {
        let engine = Engine::new();
        let bundle = engine.bundle("c", "print out err");
        let mut client = engine.start(&bundle);
        client.service = service;
        let ((out, mut stdout), (err, mut stderr)) = (engine.output("out"), engine.output("err"));
        let pid = client.create(&bundle, Streams::to(&out).with_errors(&err));
        assert_eq!(client.state("c", "").status, i32::from(Status::Created));
        let waiting = client.begin("Wait", &named("c", ""));
        assert_eq!(client.start("c", ""), pid);
        assert_eq!(client.answer::<WaitResponse>(waiting).unwrap().exit_status, 0);
        assert_eq!((stdout.until_end(), stderr.until_end()), ("out".to_owned(), "err".to_owned()));
        let state = client.state("c", "");
        assert_eq!((state.status, state.pid), (i32::from(Status::Stopped), pid));
        let deleted = client.delete("c", "");
        assert_eq!((deleted.pid, deleted.exit_status), (pid, 0));
        client.shutdown();
        engine.until_shims_ended();

        let events = engine.events.expect(&LIFE);
        let created: TaskCreate = events[0].message("TaskCreate");
        assert_eq!((&*created.container_id, created.pid), ("c", pid));
        assert_eq!(created.bundle, engine.text("c"));
        assert_eq!(created.io.unwrap().stdout, out);
        let started: TaskStart = events[1].message("TaskStart");
        assert_eq!((&*started.container_id, started.pid), ("c", pid));
        let exit: TaskExit = events[2].message("TaskExit");
        assert_eq!((&*exit.container_id, &*exit.id, exit.pid, exit.exit_status), ("c", "c", pid, 0));
        let gone: TaskDelete = events[3].message("TaskDelete");
        assert_eq!((&*gone.container_id, gone.pid, gone.exit_status), ("c", pid, 0));
        assert_eq!((gone.exited_at, deleted.exited_at), (exit.exited_at, exit.exited_at));
        assert!(engine.events.is_empty());
        assert_eq!((engine.sockets(), bundle.cgroups().len()), (0, 0));
        assert!(engine.has_no_container());
    }
}

#[test]
fn exit_status_is_the_programs_or_tells_the_signal() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "exit 77");
    let mut client = engine.start(&bundle);
    assert_eq!(whole_life(&mut client, &bundle, Streams::none()), 77);
    let killed = engine.bundle("k", "wait");
    client.create(&killed, Streams::none());
    client.start("k", "");
    client.kill("k", "");
    assert_eq!(client.wait("k", ""), 137);
    assert_eq!(client.delete("k", "").exit_status, 137);
}

#[test]
fn exit_is_told_after_the_start_however_early_it_is() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let mut client = None;
    for number in 0..50_u8 {
        let bundle = engine.bundle(&format!("c{number}"), &format!("exit {number}"));
        let bundle = bundle.with("/annotations/io.kubernetes.cri.sandbox-id", json!("pod"));
        let client = client.get_or_insert_with(|| engine.start(&bundle));
        assert_eq!(whole_life(client, &bundle, Streams::none()), u32::from(number));
        let events = engine.events.expect(&LIFE);
        assert_eq!(events[2].exit(), (bundle.id.clone(), u32::from(number)));
    }
}

#[test]
fn container_that_was_never_started_is_deleted() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "exit 0");
    let mut client = engine.start(&bundle);
    let pid = client.create(&bundle, Streams::none());
    assert_eq!(client.delete("c", "").pid, pid);
    client.shutdown();
    engine.until_shims_ended();
    assert!(engine.has_no_container());
    assert_eq!(bundle.cgroups().len(), 0);
}

#[test]
fn created_container_that_is_killed_is_told_to_end() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "wait");
    let mut client = engine.start(&bundle);
    client.create(&bundle, Streams::none());
    client.kill("c", "");
    assert_eq!(client.wait("c", ""), 137);
    client.delete("c", "");
    assert_eq!(engine.events.expect(&["create", "exit", "delete"])[1].exit(), ("c".to_owned(), 137));
}

#[test]
fn exec_has_streams_events_and_a_status_of_its_own() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "wait");
    let mut client = engine.start(&bundle);
    client.create(&bundle, Streams::none());
    client.start("c", "");
    let (out, mut stdout) = engine.output("out");
    client.exec("c", "e", "print hello err", Streams::to(&out));
    let state = client.state("c", "e");
    assert_eq!((state.status, &*state.exec_id, &*state.stdout), (i32::from(Status::Created), "e", &*out));
    let waiting = client.begin("Wait", &named("c", "e"));
    let pid = client.start("c", "e");
    assert_eq!(client.answer::<WaitResponse>(waiting).unwrap().exit_status, 0);
    assert_eq!(stdout.until_end(), "hello");
    let deleted = client.delete("c", "e");
    assert_eq!((deleted.pid, deleted.exit_status), (pid, 0));

    let events = engine.events.expect(&["create", "start", "exec-added", "exec-started", "exit"]);
    let added: TaskExecAdded = events[2].message("TaskExecAdded");
    assert_eq!((&*added.container_id, &*added.exec_id), ("c", "e"));
    let started: TaskExecStarted = events[3].message("TaskExecStarted");
    assert_eq!((&*started.container_id, &*started.exec_id, started.pid), ("c", "e", pid));
    let exit: TaskExit = events[4].message("TaskExit");
    assert_eq!((&*exit.container_id, &*exit.id, exit.pid), ("c", "e", pid));
}

#[test]
fn exec_that_ends_at_once_is_told_after_its_start() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "wait");
    let mut client = engine.start(&bundle);
    client.create(&bundle, Streams::none());
    client.start("c", "");
    engine.events.expect(&["create", "start"]);
    for number in 0..50_u8 {
        let exec = format!("e{number}");
        client.exec("c", &exec, &format!("exit {number}"), Streams::none());
        client.start("c", &exec);
        assert_eq!(client.wait("c", &exec), u32::from(number));
        assert_eq!(client.delete("c", &exec).exit_status, u32::from(number));
        let events = engine.events.expect(&["exec-added", "exec-started", "exit"]);
        assert_eq!(events[2].exit(), (exec, u32::from(number)));
    }
}

#[test]
fn exec_is_killed_alone() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "wait");
    let mut client = engine.start(&bundle);
    client.create(&bundle, Streams::none());
    client.start("c", "");
    client.exec("c", "e", "wait", Streams::none());
    client.start("c", "e");
    client.kill("c", "e");
    assert_eq!(client.wait("c", "e"), 137);
    assert_eq!(client.state("c", "").status, i32::from(Status::Running));
}

#[test]
fn exec_that_cannot_start_ends_and_leaves_the_container_running() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "wait");
    let mut client = engine.start(&bundle);
    client.create(&bundle, Streams::none());
    client.start("c", "");
    let mut exec = crate::client::exec_of("c", "e", "", Streams::none());
    let mut process = crate::client::process("");
    process["args"] = json!(["/missing"]);
    exec.spec.as_mut().unwrap().value = process.to_string().into_bytes();
    client.call::<crate::wire::Empty>("Exec", &exec).unwrap();
    let refusal = client.call::<crate::wire::Empty>("Start", &named("c", "e")).unwrap_err();
    assert!(refusal.message.contains("OCI runtime exec failed"), "{refusal:?}");
    assert!(refusal.message.contains("/missing"), "{refusal:?}");
    client.delete("c", "e");
    client.exec("c", "e", "exit 5", Streams::none());
    client.start("c", "e");
    assert_eq!(client.wait("c", "e"), 5);
    engine.events.expect(&["create", "start", "exec-added", "exec-added", "exec-started", "exit"]);
}

#[test]
fn end_of_a_container_is_told_after_those_of_its_execs() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "wait");
    let mut client = engine.start(&bundle);
    client.create(&bundle, Streams::none());
    client.start("c", "");
    for exec in ["e1", "e2", "e3"] {
        client.exec("c", exec, "wait", Streams::none());
        client.start("c", exec);
    }
    let waiting = client.begin("Wait", &named("c", ""));
    client.kill("c", "");
    assert_eq!(client.answer::<WaitResponse>(waiting).unwrap().exit_status, 137);
    let added = ["exec-added", "exec-started"].repeat(3);
    engine.events.expect(&[&["create", "start"], &*added].concat());
    let ends = engine.events.expect(&["exit"; 4]);
    let mut ends: Vec<_> = ends.iter().map(|event| event.exit().0).collect();
    assert_eq!(ends.pop().unwrap(), "c");
    ends.sort();
    assert_eq!(ends, ["e1", "e2", "e3"]);
    client.delete("c", "");
}

#[test]
fn processes_of_a_container_without_a_pid_namespace_end_with_its_first() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let namespaces = json!(["ipc", "uts", "mount", "network"].map(|kind| json!({ "type": kind })));
    let bundle = engine.bundle("c", "leave").with("/linux/namespaces", namespaces);
    let mut client = engine.start(&bundle);
    let (out, mut stdout) = engine.output("out");
    let stdin = engine.fifo("in");
    client.create(&bundle, Streams::to(&out).with_input(&stdin));
    client.start("c", "");
    client.exec("c", "e", "wait", Streams::none());
    client.start("c", "e");
    let left = crate::engine::pidfd(stdout.line().parse().unwrap());
    // The program ends at the end of its input.
    client.close_input("c", "");
    assert_eq!(client.wait("c", ""), 0);
    crate::engine::until_ended(&left);
    assert_eq!(client.delete("c", "").exit_status, 0);
    engine.events.expect(&["create", "start", "exec-added", "exec-started"]);
    let events = engine.events.expect(&["exit", "exit", "delete"]);
    assert_eq!((events[0].exit(), events[1].exit()), (("e".to_owned(), 137), ("c".to_owned(), 0)));
}

#[test]
fn program_that_does_not_exist_fails_create_and_leaves_nothing() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "").with("/process/args", json!(["/missing"]));
    let mut client = engine.start(&bundle);
    let refusal = client.try_create(&bundle.request(Streams::none())).unwrap_err();
    assert!(refusal.message.starts_with("OCI runtime create failed: "), "{refusal:?}");
    assert!(refusal.message.contains("/missing"), "{refusal:?}");
    assert_eq!(client.refused("State", &named("c", "")), crate::client::NOT_FOUND);
    assert_eq!((bundle.cgroups().len(), engine.has_no_container()), (0, true));
    // The id is free.
    let bundle = bundle.with("/process/args", json!(["/inside", "exit", "3"]));
    assert_eq!(whole_life(&mut client, &bundle, Streams::none()), 3);
    engine.events.expect(&LIFE);
}

#[test]
fn hook_that_fails_fails_start_and_the_end_is_told() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let hooks = json!({ "startContainer": [{ "path": "/inside", "args": ["inside", "exit", "1"] }] });
    let bundle = engine.bundle("c", "exit 0").with("/hooks", hooks);
    let mut client = engine.start(&bundle);
    client.create(&bundle, Streams::none());
    let refusal = client.call::<crate::wire::Empty>("Start", &named("c", "")).unwrap_err();
    assert!(refusal.message.starts_with("OCI runtime start failed: "), "{refusal:?}");
    client.wait("c", "");
    client.delete("c", "");
    engine.events.expect(&["create", "exit", "delete"]);
    assert_eq!(bundle.cgroups().len(), 0);
}
