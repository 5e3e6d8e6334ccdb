//! Plans mounts that test machines cannot make.

#[expect(dead_code, reason = "machines of other tests")]
mod machines;

use bumpalo::Bump;
use husk_plan::{Error, Invocation, create};
use machines::v2_root;
use serde_json::{Value, json};
use std::path::Path;

#[test]
fn ptmx_of_the_host_is_not_removed() {
    let plan = |root: &str| {
        let config = json!({
            "ociVersion": "1.3.0",
            "root": { "path": root },
            "process": { "user": { "uid": 0, "gid": 0 }, "args": ["/guest"], "cwd": "/" },
            "linux": { "namespaces": [{ "type": "mount" }] }
        });
        let (container, _) = husk_bundle::parse(config.to_string().as_bytes(), Path::new("/bundle")).unwrap();
        create(&container, &v2_root(&container), &Invocation::default(), &Bump::new()).unwrap().to_string()
    };
    assert!(plan("rootfs").contains("unlink"), "{}", plan("rootfs"));
    assert!(!plan("/").contains("unlink"), "{}", plan("/"));
}

/// Returns the steps that come from the mount, in the plan of a container with this mount and these namespaces.
fn lines(mount: &Value, namespaces: &[&str]) -> Vec<String> {
    let plan = plan(mount, namespaces).unwrap();
    let lines = plan.lines().filter(|line| line.contains("mounts[0]"));
    lines.map(|line| line.split_whitespace().skip(3).collect::<Vec<_>>().join(" ")).collect()
}

fn plan(mount: &Value, namespaces: &[&str]) -> Result<String, Error> {
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
    Ok(create(&container, &v2_root(&container), &Invocation::default(), &memory)?.to_string())
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
fn cgroup_v2_without_a_cgroup_namespace_is_the_hosts_mount() {
    let mount = json!({ "destination": "/cg", "type": "cgroup", "options": ["ro", "nsdelegate"] });
    let found = lines(&mount, &["mount"]);
    assert!(found.iter().any(|line| line.contains("/sys/fs/cgroup")), "{found:#?}");
    assert!(!found.iter().any(|line| line.starts_with("fs")), "{found:#?}");
}

fn overlay(options: &[&str]) -> Value {
    json!({ "destination": "/o", "type": "overlay", "source": "overlay", "options": options })
}

#[test]
fn options_too_long_for_fsconfig_go_to_mount() {
    let long = format!("/{}", "x".repeat(260));
    for option in [format!(r"lowerdir=/a\:b:{long}:/c\\d::/data"), format!("upperdir={long}/y")] {
        let found = lines(&overlay(&["sync", &option, "async", "metacopy=on"]), &["mount"]);
        let mount =
            found.iter().find(|line| line.starts_with("mount ")).unwrap_or_else(|| panic!("{found:#?}"));
        // A listing shows a backslash as two.
        let wanted = format!("{},metacopy=on", option.replace('\\', r"\\"));
        assert!(mount.contains(&wanted), "{mount} {wanted}");
    }
    // Options that fit are given to fsconfig(2).
    let found = lines(&overlay(&["lowerdir=/a:/b"]), &["mount"]);
    assert!(found.iter().any(|line| line.ends_with("lowerdir=/a:/b")), "{found:#?}");
}

#[test]
fn layers_longer_than_a_page_are_added_one_by_one() {
    let long: String = (10..42).map(|number| format!("/{number}{}:", "x".repeat(125))).collect();
    let found = lines(&overlay(&[&format!(r"lowerdir=/a\:b:{long}/c\\d::/data")]), &["mount"]);
    let layers: Vec<_> = found.iter().filter(|line| line.contains("dir+=")).collect();
    assert_eq!(layers.len(), 35, "{found:#?}");
    for (layer, wanted) in [(0, "lowerdir+=/a:b"), (33, r"lowerdir+=/c\\d"), (34, "datadir+=/data")] {
        assert!(layers[layer].ends_with(wanted), "{} {wanted}", layers[layer]);
    }
}

#[test]
fn options_longer_than_a_page_are_an_error() {
    let long = format!("/{}", "x".repeat(4090));
    let cases = [
        ("upperdir", "the options have 4100 bytes in total; the kernel accepts at most 4095"),
        ("lowerdir", "lowerdir+: the value has 4091 bytes; the kernel accepts at most 255"),
    ];
    for (option, wanted) in cases {
        let error = plan(&overlay(&[&format!("{option}={long}")]), &["mount"]).unwrap_err().to_string();
        assert_eq!(error, format!("mounts[0] /o: {wanted}"));
    }
    let tmpfs =
        json!({ "destination": "/t", "type": "tmpfs", "options": [format!("mpol={}", "x".repeat(256))] });
    let error = plan(&tmpfs, &["mount"]).unwrap_err().to_string();
    assert_eq!(error, "mounts[0] /t: mpol: the value has 256 bytes; the kernel accepts at most 255");
}

// A new mount there would set the flags of the host's hierarchy.
#[test]
fn type_cgroup2_without_a_cgroup_namespace_is_the_hosts_mount() {
    let mount = json!({ "destination": "/cg", "type": "cgroup2", "options": ["ro", "nsdelegate"] });
    let found = lines(&mount, &["mount"]);
    assert!(found.iter().any(|line| line.contains("/sys/fs/cgroup")), "{found:#?}");
    assert!(!found.iter().any(|line| line.starts_with("fs")), "{found:#?}");
    let found = lines(&mount, &["mount", "cgroup"]);
    assert!(
        found.iter().any(|line| line.starts_with("fsopen") || line.contains("fsopen cgroup2")),
        "{found:#?}"
    );
}
