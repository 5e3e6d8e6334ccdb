//! `features`: what the runtime tells engines that it supports.

use crate::util::{Runtime, is_husk, need};
use serde_json::{Value, json};
use std::process::Command;

/// Returns the features of the runtime under test, parsed and as text.
fn said() -> (Value, String) {
    let text = Runtime::under_test().typed(&["features"]).succeeds();
    (serde_json::from_str(&text).unwrap(), text)
}

fn names<'a>(features: &'a Value, pointer: &str) -> Vec<&'a str> {
    let list = features.pointer(pointer).and_then(Value::as_array);
    list.unwrap_or_else(|| panic!("no {pointer}")).iter().map(|name| name.as_str().unwrap()).collect()
}

// The form is that of schema/features-schema.json in runtime-spec.
#[test]
fn features_follow_the_specification() {
    let (features, text) = said();
    assert!(text.starts_with("{\n    \"") && text.ends_with("}\n"), "{text}");
    assert_eq!((&features["ociVersionMin"], &features["ociVersionMax"]), (&json!("1.0.0"), &json!("1.3.0")));
    let lists = [
        "/hooks",
        "/mountOptions",
        "/potentiallyUnsafeConfigAnnotations",
        "/linux/namespaces",
        "/linux/capabilities",
        "/linux/seccomp/actions",
        "/linux/seccomp/operators",
        "/linux/seccomp/archs",
        "/linux/seccomp/knownFlags",
        "/linux/seccomp/supportedFlags",
        "/linux/memoryPolicy/modes",
        "/linux/memoryPolicy/flags",
    ];
    for pointer in lists {
        let mut names = names(&features, pointer);
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all, "{pointer}: {names:?}");
        assert_ne!(all, 0, "{pointer}");
    }
    for (kind, keys) in [
        ("cgroup", &["v1", "v2", "systemd", "systemdUser", "rdma"] as &[&str]),
        ("seccomp", &["enabled"]),
        ("apparmor", &["enabled"]),
        ("selinux", &["enabled"]),
        ("intelRdt", &["enabled", "schemata", "monitoring"]),
        ("netDevices", &["enabled"]),
    ] {
        for key in keys {
            assert_eq!(features["linux"][kind][key], true, "{kind}.{key}");
        }
    }
    assert_eq!(features["linux"]["mountExtensions"]["idmap"]["enabled"], true);
    let annotations = features["annotations"].as_object().unwrap();
    assert!(annotations.values().all(Value::is_string), "{annotations:?}");
}

// Engines that know runc expect everything that runc supports.
#[test]
fn features_include_those_of_runc() {
    let output = Command::new("runc").arg("features").output();
    need!(output.is_ok(), "needs runc for the comparison");
    let runcs: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    let (ours, _) = said();
    let mut missing = Vec::new();
    compare("", &runcs, &ours, &mut missing);
    // husk is not a version of runc and does not use libseccomp. The annotations that a runtime obeys are its own: runc
    // has one that names the bundle.
    missing.retain(|name| !name.contains("nnotations"));
    // Older versions of runc follow an older specification, and accept two options for which the kernel has no flag.
    let of_old = ["/ociVersionMax", "/mountOptions acl", "/mountOptions noacl"];
    missing.retain(|name| !of_old.contains(&name.as_str()));
    assert_eq!(missing, Vec::<String>::new());
}

/// Collects names and keys of `wanted` that are missing in `found`.
fn compare(place: &str, wanted: &Value, found: &Value, missing: &mut Vec<String>) {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            for (key, wanted) in wanted {
                let place = format!("{place}/{key}");
                compare(&place, wanted, found.get(key).unwrap_or(&Value::Null), missing);
            }
        }
        (Value::Array(wanted), Value::Array(found)) => {
            let lost = wanted.iter().filter(|name| !found.contains(name));
            missing.extend(lost.map(|name| format!("{place} {}", name.as_str().unwrap_or_default())));
        }
        (wanted, found) if wanted == found => {}
        _ => missing.push(place.to_owned()),
    }
}

#[test]
fn features_need_no_store_and_create_none() {
    need!(is_husk(), "runc creates its store");
    let runtime = Runtime::under_test();
    let there = runtime.root().join("there");
    runtime.typed(&["--root", there.to_str().unwrap(), "features"]).succeeds();
    assert!(!there.exists());
    runtime.typed(&["features", "too-much"]).fails(1, "too-much");
}
