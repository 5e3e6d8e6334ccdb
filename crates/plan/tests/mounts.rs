//! How mounts are planned that no machine at hand has.

#[expect(dead_code, reason = "machines of other tests")]
mod machines;

use bumpalo::Bump;
use husk_plan::{Call, create};
use machines::v2_root;
use serde_json::{Value, json};
use std::path::Path;

/// The lines of the plan of a container with this mount and these namespaces that come from the mount.
fn lines(mount: &Value, namespaces: &[&str]) -> Vec<String> {
    let namespaces: Vec<_> = namespaces.iter().map(|kind| json!({ "type": kind })).collect();
    let config = json!({
        "ociVersion": "1.3.0",
        "root": { "path": "rootfs" },
        "process": { "user": { "uid": 0, "gid": 0 }, "args": ["/guest"], "cwd": "/" },
        "mounts": [mount],
        "linux": { "namespaces": namespaces }
    });
    let (container, _) = husk_bundle::parse(config.to_string().as_bytes(), Path::new("/bundle")).unwrap();
    let memory = Bump::new();
    let plan = create(&container, &v2_root(&container), &Call::default(), &memory).unwrap().to_string();
    let lines = plan.lines().filter(|line| line.contains("mounts[0]"));
    lines.map(|line| line.split_whitespace().skip(3).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn options_of_cgroup_v2_are_passed_on_in_a_cgroup_namespace() {
    let mount = json!({ "destination": "/cg", "type": "cgroup", "options": ["ro", "nsdelegate", "memory_recursiveprot"] });
    let found = lines(&mount, &["mount", "cgroup"]);
    for option in ["nsdelegate", "memory_recursiveprot"] {
        assert!(found.iter().any(|line| line.starts_with("fsconfig") && line.contains(option)), "{found:#?}");
    }
}

// A new mount there would set the flags of the host's hierarchy.
#[test]
fn cgroup_v2_in_the_hosts_cgroup_namespace_is_the_hosts_mount() {
    let mount = json!({ "destination": "/cg", "type": "cgroup", "options": ["ro", "nsdelegate"] });
    let found = lines(&mount, &["mount"]);
    assert!(found.iter().any(|line| line.contains("/sys/fs/cgroup")), "{found:#?}");
    assert!(!found.iter().any(|line| line.starts_with("fs")), "{found:#?}");
}
