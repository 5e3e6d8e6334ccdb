//! Shims of several containers, and how shims start and end.

use crate::client::{Client, Streams, named};
use crate::engine::{Bundle, Engine, Format, is_root, need, whole_life};
use crate::wire::options::RuntimeInfo;
use crate::wire::task::ConnectResponse;
use prost::Message as _;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::net::UnixListener;
use std::thread;

/// Returns a container of the same pod as all others of the test.
fn in_pod(engine: &Engine, id: &str, words: &str) -> Bundle {
    engine.bundle(id, words).with("/annotations/io.kubernetes.cri.sandbox-id", json!("pod"))
}

#[test]
fn containers_of_a_pod_share_a_shim_that_ends_after_the_last() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let (one, two) = (in_pod(&engine, "one", "wait"), in_pod(&engine, "two", "wait"));
    let mut client = engine.start(&one);
    let mut second = Client::connect(&engine.start_shim(&two));
    assert_eq!(client.shim_pid(), second.shim_pid());
    client.create(&one, Streams::none());
    second.create(&two, Streams::none());
    client.start("one", "");
    second.start("two", "");
    client.kill("one", "");
    client.wait("one", "");
    client.delete("one", "");
    // containerd asks after each container.
    client.shutdown();
    assert!(second.state("two", "").pid > 0);
    assert_eq!(engine.sockets(), 1);
    second.kill("two", "");
    second.wait("two", "");
    second.delete("two", "");
    second.shutdown();
    engine.until_shims_ended();
    assert_eq!(engine.sockets(), 0);
}

#[test]
fn containers_without_a_pod_have_shims_of_their_own() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let (one, two) = (engine.bundle("one", "wait"), engine.bundle("two", "wait"));
    let (mut client, mut second) = (engine.start(&one), engine.start(&two));
    assert_ne!(client.shim_pid(), second.shim_pid());
    assert_eq!(engine.sockets(), 2);
    client.create(&one, Streams::none());
    assert_eq!(second.refused("State", &named("one", "")), crate::client::NOT_FOUND);
}

#[test]
fn containers_of_a_pod_that_start_at_once_share_a_shim() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundles: Vec<_> = (0..8).map(|number| in_pod(&engine, &format!("c{number}"), "wait")).collect();
    // The first of the commands to claim the socket starts the shim.
    let started: Vec<_> = bundles
        .iter()
        .map(|bundle| {
            let command = engine.command(&bundle.id, "start", &engine.input(bundle));
            thread::spawn(move || command.output().expect("the shim"))
        })
        .collect();
    for start in started {
        let output = start.join().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(engine.sockets(), 1);
    let pids: Vec<_> = bundles.iter().map(|bundle| engine.start(bundle).shim_pid()).collect();
    assert!(pids.iter().all(|pid| *pid == pids[0]), "{pids:?}");
}

#[test]
fn every_version_of_containerd_is_answered_in_its_format() {
    need!(is_root(), "needs root");
    for format in [Format::Address, Format::Json, Format::Parameters] {
        let engine = Engine::speaking(format);
        let bundle = engine.bundle("c", "exit 6");
        let mut client = engine.start(&bundle);
        assert_eq!(whole_life(&mut client, &bundle, Streams::none()), 6);
        assert_eq!(engine.sockets(), 1);
        client.shutdown();
        engine.until_shims_ended();
        // Its own mount namespace shows the shim another directory, which is this one.
        assert_eq!(engine.sockets(), 0, "{format:?}");
    }
}

#[test]
fn socket_of_a_dead_shim_is_replaced() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "exit 6");
    let mut client = engine.start(&bundle);
    let dead = client.shim_pid();
    engine.kill_shims();
    assert_eq!(engine.sockets(), 1);
    let mut client = engine.start(&bundle);
    assert_ne!(client.shim_pid(), dead);
    assert_eq!(whole_life(&mut client, &bundle, Streams::none()), 6);
}

#[test]
fn container_that_starts_while_a_shim_shuts_down_gets_another() {
    need!(is_root(), "needs root");
    let mut engine = Engine::new();
    let bundle = engine.bundle("c", "exit 6");
    let mut client = engine.start(&bundle);
    let first = client.shim_pid();
    // The shim stays until it has told the events.
    engine.events.die();
    assert_eq!(whole_life(&mut client, &bundle, Streams::none()), 6);
    client.shutdown();
    let mut second = engine.start(&bundle);
    assert_ne!(second.shim_pid(), first);
    assert_eq!(whole_life(&mut second, &bundle, Streams::none()), 6);
    client.until_closed();
    // The first shim has not removed the socket of the second.
    assert_eq!(engine.start(&bundle).shim_pid(), second.shim_pid());
}

#[test]
fn delete_leaves_the_socket_of_a_living_shim() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let (one, two) = (in_pod(&engine, "one", "wait"), in_pod(&engine, "two", "wait"));
    let mut client = engine.start(&one);
    engine.start_shim(&two);
    engine.delete(&two);
    assert_eq!(engine.sockets(), 1);
    client.create(&one, Streams::none());
}

#[test]
fn start_that_fails_leaves_no_socket() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "wait");
    let input = engine.input(&bundle);
    fs::remove_file(bundle.path.join("config.json")).unwrap();
    let output = engine.command("c", "start", &input).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
    assert!(error.contains("config.json: No such file or directory"), "{error}");
    assert_eq!(engine.sockets(), 0);
}

#[test]
fn oom_killer_prefers_the_shim_to_containerd() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let mut client = engine.start(&engine.bundle("c", "wait"));
    let score = |process: &str| {
        let score = fs::read_to_string(format!("/proc/{process}/oom_score_adj")).unwrap();
        score.trim().parse::<i32>().unwrap()
    };
    assert_eq!(score(&client.shim_pid().to_string()), (score("self") + 1).min(1000));
}

#[test]
fn connect_names_the_shim_and_the_container() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "wait");
    let mut client = engine.start(&bundle);
    let pid = client.create(&bundle, Streams::none());
    let connected: ConnectResponse = client.call("Connect", &named("c", "")).unwrap();
    assert_eq!((connected.shim_pid, connected.task_pid), (client.shim_pid(), pid));
    let name = fs::read_to_string(format!("/proc/{}/comm", connected.shim_pid)).unwrap();
    assert_eq!(name.trim(), "containerd-shim");
}

#[test]
fn shim_outlives_an_events_service_that_never_was() {
    need!(is_root(), "needs root");
    let mut engine = Engine::new();
    engine.events.die();
    // Connections are refused: the socket exists and nobody listens.
    drop(UnixListener::bind(engine.path("ttrpc")).unwrap());
    let bundle = engine.bundle("c", "exit 6");
    let mut client = engine.start(&bundle);
    assert_eq!(whole_life(&mut client, &bundle, Streams::none()), 6);
}

#[test]
fn information_names_the_runtime_and_its_features() {
    husk_deadline::watch(&[]);
    let shim = env!("CARGO_BIN_EXE_containerd-shim-husk-v1");
    let output = std::process::Command::new(shim).arg("-info").stdin(std::process::Stdio::null()).output();
    let info = RuntimeInfo::decode(&*output.unwrap().stdout).unwrap();
    assert_eq!(info.name, "io.containerd.husk.v1");
    let features: Value = serde_json::from_slice(&info.features.unwrap().value).unwrap();
    assert!(features["ociVersionMax"].is_string(), "{features}");
    let output = std::process::Command::new(shim).arg("-v").output().unwrap();
    assert!(output.stdout.starts_with(b"containerd-shim-husk-v1:\n  Version:  "));
}
