//! Limits, statistics, pauses and lists of processes.

use crate::client::{FAILED_PRECONDITION, Streams, exec_of, named};
use crate::engine::{Engine, has_controller, has_freezer, is_root, is_version_2, need};
use crate::wire::events::{TaskOom, TaskPaused, TaskResumed};
use crate::wire::options::ProcessDetails;
use crate::wire::task::{PidsResponse, StatsResponse, Status, UpdateRequest};
use crate::wire::{Any, Empty};
use prost::Message;
use serde_json::json;
use std::fs;

#[test]
fn processes_are_listed_with_the_ids_of_execs() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "wait");
    let mut client = engine.start(&bundle);
    let first = client.create(&bundle, Streams::none());
    client.start("c", "");
    client.exec("c", "e", "wait", Streams::none());
    let added = client.start("c", "e");
    let listed: PidsResponse = client.call("Pids", &named("c", "")).unwrap();
    let mut listed: Vec<_> = listed
        .processes
        .into_iter()
        .map(|process| {
            let exec = process.info.map(|any| {
                assert_eq!(any.type_url, ProcessDetails::TYPE);
                ProcessDetails::decode(&*any.value).unwrap().exec_id
            });
            (process.pid, exec)
        })
        .collect();
    listed.sort();
    let mut expected = [(first, None), (added, Some("e".to_owned()))];
    expected.sort();
    assert_eq!(listed, expected);
}

#[test]
fn paused_container_stands_still_until_it_is_resumed() {
    need!(is_root(), "needs root");
    need!(has_freezer(), "needs the freezer");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "wait");
    let mut client = engine.start(&bundle);
    client.create(&bundle, Streams::none());
    client.start("c", "");
    client.call::<Empty>("Pause", &named("c", "")).unwrap();
    assert_eq!(client.state("c", "").status, i32::from(Status::Paused));
    assert_eq!(client.refused("Pause", &named("c", "")), FAILED_PRECONDITION);
    assert_eq!(client.refused("Exec", &exec_of("c", "e", "wait", Streams::none())), FAILED_PRECONDITION);
    client.call::<Empty>("Resume", &named("c", "")).unwrap();
    assert_eq!(client.state("c", "").status, i32::from(Status::Running));
    assert_eq!(client.refused("Resume", &named("c", "")), FAILED_PRECONDITION);
    let events = engine.events.expect(&["create", "start", "paused", "resumed"]);
    assert_eq!(events[2].message::<TaskPaused>("TaskPaused").container_id, "c");
    assert_eq!(events[3].message::<TaskResumed>("TaskResumed").container_id, "c");
}

#[test]
fn paused_container_can_be_killed() {
    need!(is_root(), "needs root");
    need!(has_freezer(), "needs the freezer");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "wait");
    let mut client = engine.start(&bundle);
    client.create(&bundle, Streams::none());
    client.start("c", "");
    client.call::<Empty>("Pause", &named("c", "")).unwrap();
    client.kill("c", "");
    assert_eq!(client.wait("c", ""), 137);
    client.delete("c", "");
    assert_eq!(bundle.cgroups().len(), 0);
}

#[test]
fn update_changes_a_limit() {
    need!(is_root(), "needs root");
    need!(has_controller("pids"), "needs the controller pids");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "wait").with("/linux/resources", json!({ "pids": { "limit": 20 } }));
    let mut client = engine.start(&bundle);
    client.create(&bundle, Streams::none());
    client.start("c", "");
    let limit = || {
        let mut files = bundle.cgroups().into_iter().map(|directory| directory.join("pids.max"));
        fs::read_to_string(files.find(|file| file.exists()).unwrap()).unwrap().trim().to_owned()
    };
    assert_eq!(limit(), "20");
    let resources = Any {
        type_url: "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources".to_owned(),
        value: json!({ "pids": { "limit": 7 } }).to_string().into_bytes(),
    };
    let request = UpdateRequest { id: "c".to_owned(), resources: Some(resources) };
    client.call::<Empty>("Update", &request).unwrap();
    assert_eq!(limit(), "7");
}

/// The numbers of processes in `Metrics` of version 1.
#[derive(Clone, PartialEq, Message)]
struct Metrics1 {
    #[prost(message, optional, tag = "2")]
    pids: Option<Numbers>,
}

/// The numbers of processes in `Metrics` of version 2.
#[derive(Clone, PartialEq, Message)]
struct Metrics2 {
    #[prost(message, optional, tag = "1")]
    pids: Option<Numbers>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
struct Numbers {
    #[prost(uint64, tag = "1")]
    current: u64,
    #[prost(uint64, tag = "2")]
    limit: u64,
}

#[test]
fn statistics_are_metrics_of_the_hosts_cgroup_version() {
    need!(is_root(), "needs root");
    need!(has_controller("pids"), "needs the controller pids");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "wait").with("/linux/resources", json!({ "pids": { "limit": 20 } }));
    let mut client = engine.start(&bundle);
    client.create(&bundle, Streams::none());
    client.start("c", "");
    client.exec("c", "e", "wait", Streams::none());
    client.start("c", "e");
    let stats = client.call::<StatsResponse>("Stats", &named("c", "")).unwrap().stats.unwrap();
    let pids = if is_version_2() {
        assert_eq!(stats.type_url, "io.containerd.cgroups.v2.Metrics");
        Metrics2::decode(&*stats.value).unwrap().pids
    } else {
        assert_eq!(stats.type_url, "io.containerd.cgroups.v1.Metrics");
        Metrics1::decode(&*stats.value).unwrap().pids
    };
    assert_eq!(pids, Some(Numbers { current: 2, limit: 20 }));
}

#[test]
fn lack_of_memory_is_told() {
    need!(is_root(), "needs root");
    need!(has_controller("memory"), "needs the controller memory");
    let engine = Engine::new();
    let memory = json!({ "memory": { "limit": 32 << 20, "swap": 32 << 20 } });
    let bundle = engine.bundle("c", "eat").with("/linux/resources", memory);
    let mut client = engine.start(&bundle);
    client.create(&bundle, Streams::none());
    client.start("c", "");
    assert_eq!(client.wait("c", ""), 137);
    // The kernel decides when it is told, which may be before the start.
    let events: Vec<_> = (0..4).map(|_| engine.events.next()).collect();
    let (lacks, others): (Vec<_>, Vec<_>) = events.iter().partition(|event| event.topic == "/tasks/oom");
    assert_eq!(lacks[0].message::<TaskOom>("TaskOOM").container_id, "c");
    let topics: Vec<_> = others.iter().map(|event| &*event.topic).collect();
    assert_eq!(topics, ["/tasks/create", "/tasks/start", "/tasks/exit"]);
    client.delete("c", "");
}
