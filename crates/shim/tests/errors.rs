//! Refused requests and their codes, to which containerd's clients react.

use crate::client::{
    ALREADY_EXISTS, Client, FAILED_PRECONDITION, INVALID_ARGUMENT, NOT_FOUND, SERVICES, Streams,
    UNIMPLEMENTED, exec_of, frame, named, process,
};
use crate::engine::{Engine, is_root, need};
use crate::mounts::layered;
use crate::wire::options::{CheckpointOptions, Options};
use crate::wire::task::{CheckpointRequest, CreateRequest, KillRequest, ResizePtyRequest, UpdateRequest};
use crate::wire::{Any, Empty};
use prost::Message as _;

/// Calls every method that needs a container with this one.
fn codes(client: &mut Client, id: &str, exec: &str) -> Vec<(&'static str, i32)> {
    let mut codes = Vec::new();
    for method in ["Start", "Delete", "State", "Wait", "CloseIO", "Pids", "Pause", "Resume", "Stats"] {
        codes.push((method, client.refused(method, &named(id, exec))));
    }
    let kill = KillRequest { id: id.into(), exec_id: exec.into(), signal: 9, all: false };
    codes.push(("Kill", client.refused("Kill", &kill)));
    let size = ResizePtyRequest { id: id.into(), exec_id: exec.into(), width: 1, height: 1 };
    codes.push(("ResizePty", client.refused("ResizePty", &size)));
    codes.push(("Exec", client.refused("Exec", &exec_of(id, "e", "wait", Streams::none()))));
    let update = UpdateRequest { id: id.into(), resources: None };
    codes.push(("Update", client.refused("Update", &update)));
    let checkpoint = CheckpointRequest { id: id.into(), path: "/missing".into(), options: None };
    codes.push(("Checkpoint", client.refused("Checkpoint", &checkpoint)));
    codes
}

#[test]
fn unknown_container_is_not_found_by_any_method() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let mut client = engine.start(&engine.bundle("c", "wait"));
    for (method, code) in codes(&mut client, "other", "") {
        assert_eq!(code, NOT_FOUND, "{method}");
    }
}

#[test]
fn unknown_exec_is_not_found() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "wait");
    let mut client = engine.start(&bundle);
    client.create(&bundle, Streams::none());
    client.start("c", "");
    for method in ["Start", "Delete", "State", "Wait", "CloseIO"] {
        assert_eq!(client.refused(method, &named("c", "other")), NOT_FOUND, "{method}");
    }
    assert_eq!(client.try_kill("c", "other", 9).unwrap_err().code, NOT_FOUND);
}

#[test]
fn ids_that_exist_are_refused() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = layered(&engine, "c", "wait");
    let mut client = engine.start(&bundle);
    // The second call arrives while the first is being carried out.
    let request = bundle.request(Streams::none());
    let (first, second) = (client.begin("Create", &request), client.begin("Create", &request));
    assert_eq!(client.answer::<Empty>(second).unwrap_err().code, ALREADY_EXISTS);
    client.answer::<crate::wire::task::PidResponse>(first).unwrap();
    assert_eq!(client.try_create(&request).unwrap_err().code, ALREADY_EXISTS);
    // The refused calls have not undone the mounts of the first.
    assert_eq!(bundle.mount_points().len(), 2);
    client.start("c", "");
    let exec = exec_of("c", "e", "wait", Streams::none());
    client.call::<Empty>("Exec", &exec).unwrap();
    assert_eq!(client.refused("Exec", &exec), ALREADY_EXISTS);
    client.start("c", "e");
    assert_eq!(client.refused("Exec", &exec), ALREADY_EXISTS);
    assert_eq!(client.refused("Exec", &exec_of("c", "", "wait", Streams::none())), INVALID_ARGUMENT);
}

#[test]
fn calls_at_the_wrong_time_fail_by_the_containers_state() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "wait");
    let mut client = engine.start(&bundle);
    client.create(&bundle, Streams::none());
    assert_eq!(client.refused("Pause", &named("c", "")), FAILED_PRECONDITION);
    assert_eq!(client.refused("Resume", &named("c", "")), FAILED_PRECONDITION);
    client.start("c", "");
    assert_eq!(client.refused("Start", &named("c", "")), FAILED_PRECONDITION);
    assert_eq!(client.refused("Delete", &named("c", "")), FAILED_PRECONDITION);
    client.exec("c", "late", "exit 0", Streams::none());
    client.exec("c", "e", "wait", Streams::none());
    client.start("c", "e");
    assert_eq!(client.refused("Start", &named("c", "e")), FAILED_PRECONDITION);
    assert_eq!(client.refused("Delete", &named("c", "e")), FAILED_PRECONDITION);
    client.kill("c", "");
    client.wait("c", "");
    assert_eq!(client.try_kill("c", "", 9).unwrap_err().code, NOT_FOUND);
    assert_eq!(client.try_kill("c", "e", 9).unwrap_err().code, NOT_FOUND);
    let exec = exec_of("c", "f", "wait", Streams::none());
    assert_eq!(client.refused("Exec", &exec), FAILED_PRECONDITION);
    for exec in ["", "e", "late"] {
        assert_eq!(client.refused("Start", &named("c", exec)), FAILED_PRECONDITION, "{exec}");
    }
    assert_eq!(client.refused("Pause", &named("c", "")), FAILED_PRECONDITION);
    let update = UpdateRequest { id: "c".into(), resources: None };
    assert_eq!(client.refused("Update", &update), FAILED_PRECONDITION);
    client.delete("c", "");
    assert_eq!(client.refused("Delete", &named("c", "")), NOT_FOUND);
    assert_eq!(client.refused("State", &named("c", "e")), NOT_FOUND);
}

#[test]
fn arguments_that_mean_nothing_are_refused() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "wait");
    let mut client = engine.start(&bundle);
    let request = bundle.request(Streams::none());
    let with = |options| CreateRequest { options: Some(options), ..request.clone() };
    let other = Any { type_url: "example.Options".into(), value: vec![] };
    assert_eq!(client.try_create(&with(other)).unwrap_err().code, INVALID_ARGUMENT);
    let broken = Any { type_url: Options::TYPE.into(), value: vec![0xff] };
    assert_eq!(client.try_create(&with(broken)).unwrap_err().code, INVALID_ARGUMENT);
    let program = Options { binary_name: "crun".into(), ..bundle.options.clone() };
    let refusal = client.try_create(&with(Any::new(Options::TYPE, &program))).unwrap_err();
    assert_eq!(refusal.code, INVALID_ARGUMENT);
    assert!(refusal.message.contains("BinaryName"), "{refusal:?}");
    let id = CreateRequest { id: "..".into(), ..request };
    assert_eq!(client.try_create(&id).unwrap_err().code, INVALID_ARGUMENT);

    client.create(&bundle, Streams::none());
    client.start("c", "");
    assert_eq!(client.try_kill("c", "", 1000).unwrap_err().code, INVALID_ARGUMENT);
    let mut exec = exec_of("c", "e", "wait", Streams::none());
    exec.spec.as_mut().unwrap().value = b"{".to_vec();
    assert_eq!(client.refused("Exec", &exec), INVALID_ARGUMENT);
    exec.spec = None;
    assert_eq!(client.refused("Exec", &exec), INVALID_ARGUMENT);
    let update =
        UpdateRequest { id: "c".into(), resources: Some(Any { type_url: String::new(), value: vec![0xff] }) };
    assert_eq!(client.refused("Update", &update), INVALID_ARGUMENT);
    let checkpoint = CheckpointRequest {
        id: "c".into(),
        path: engine.text("image"),
        options: Some(Any::new("example.Options", &CheckpointOptions::default())),
    };
    assert_eq!(client.refused("Checkpoint", &checkpoint), INVALID_ARGUMENT);
    // Nothing of this has harmed the container.
    client.kill("c", "");
    assert_eq!(client.wait("c", ""), 137);
}

#[test]
fn process_may_be_of_a_user_that_json_describes_wrongly() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "wait");
    let mut client = engine.start(&bundle);
    client.create(&bundle, Streams::none());
    client.start("c", "");
    let mut exec = exec_of("c", "e", "", Streams::none());
    let mut wrong = process("exit 0");
    wrong["user"] = "root".into();
    exec.spec.as_mut().unwrap().value = wrong.to_string().into_bytes();
    client.call::<Empty>("Exec", &exec).unwrap();
    assert_eq!(client.refused("Start", &named("c", "e")), INVALID_ARGUMENT);
}

#[test]
fn unknown_services_and_methods_are_not_implemented() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let mut client = engine.start(&engine.bundle("c", "wait"));
    for (service, method) in [(SERVICES[0], "Nonsense"), ("containerd.task.v1.Task", "State"), ("", "")] {
        let stream = client.send(service, method, Vec::new()).unwrap();
        assert_eq!(client.answer::<Empty>(stream).unwrap_err().code, UNIMPLEMENTED, "{service}/{method}");
    }
}

#[test]
fn requests_that_do_not_decode_are_invalid() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let mut client = engine.start(&engine.bundle("c", "wait"));
    for method in ["Create", "Exec", "State", "Kill", "Update"] {
        let stream = client.send(SERVICES[1], method, vec![0xff; 16]).unwrap();
        assert_eq!(client.answer::<Empty>(stream).unwrap_err().code, INVALID_ARGUMENT, "{method}");
    }
    client.send_raw(&frame(999, &[0xff; 16])).unwrap();
    assert_eq!(client.answer::<Empty>(999).unwrap_err().code, INVALID_ARGUMENT);
    let empty = crate::wire::ttrpc::Request::default();
    client.send_raw(&frame(1001, &empty.encode_to_vec())).unwrap();
    assert_eq!(client.answer::<Empty>(1001).unwrap_err().code, UNIMPLEMENTED);
}

#[test]
fn message_that_is_too_long_closes_its_connection_only() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "exit 0");
    let mut client = engine.start(&bundle);
    let bad = Client::connect(&engine.start_shim(&bundle));
    bad.send_raw(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 1, 0]).unwrap();
    bad.until_closed();
    let half = Client::connect(&engine.start_shim(&bundle));
    half.send_raw(&[0, 0, 1, 0, 0, 0]).unwrap();
    drop(half);
    assert!(client.shim_pid() > 0);
}

#[test]
fn messages_that_are_not_requests_are_passed_over() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let mut client = engine.start(&engine.bundle("c", "exit 0"));
    // A response, a message of data, and an unknown kind.
    for kind in [2, 3, 99] {
        client.send_raw(&[0, 0, 0, 1, 0, 0, 0, 7, kind, 0, 0]).unwrap();
    }
    assert!(client.shim_pid() > 0);
}
