//! Plans a container with arbitrary mount options and id maps. A fuzzer of config.json as a whole seldom reaches these
//! values.

#![no_main]

#[path = "../../crates/plan/tests/machines/mod.rs"]
mod machines;

use bumpalo::Bump;
use husk_plan::{Invocation, create};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use std::path::Path;

fuzz_target!(|given: (u8, &str, &str, Vec<(u32, u32, u32)>)| {
    let (kind, destination, options, ids) = given;
    let kind = ["bind", "tmpfs", "proc", "overlay", "cgroup", "mqueue"][usize::from(kind % 6)];
    let options: Vec<&str> = options.split(',').collect();
    let maps: Vec<Value> = ids
        .iter()
        .map(|(inside, outside, count)| json!({"containerID": inside, "hostID": outside, "size": count}))
        .collect();
    let mut mount =
        json!({"type": kind, "source": "s", "destination": format!("/{destination}"), "options": options});
    if ids.len() % 2 == 1 {
        mount["uidMappings"] = maps.clone().into();
        mount["gidMappings"] = maps.clone().into();
    }
    let config = json!({
        "ociVersion": "1.3.0", "root": {"path": "r"}, "process": {"cwd": "/", "args": ["a"]}, "mounts": [mount],
        "linux": {"namespaces": [{"type": "mount"}, {"type": "user"}], "uidMappings": maps, "gidMappings": maps},
    });
    let Ok((container, _)) = husk_bundle::parse(config.to_string().as_bytes(), Path::new("/bundle")) else {
        return;
    };
    for host in [machines::v1_root, machines::v2_root, machines::v2_rootless] {
        let memory = Bump::new();
        match create(&container, &host(&container), &Invocation::default(), &memory) {
            Ok(plan) => assert_eq!(plan.to_string().lines().count(), plan.steps.len()),
            Err(error) => assert!(!error.origin().field().is_empty()),
        }
    }
});
