//! Bundles that are missing, truncated, enormous or hostile. Each causes an immediate error that says what is wrong,
//! and leaves nothing behind.

use crate::util::{Bundle, Runtime, Seen, is_husk, is_root, need};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// Writes these bytes as the bundle's configuration and runs the bundle.
fn run_bytes(runtime: &Runtime, bundle: &Bundle, bytes: &[u8]) -> Seen {
    fs::write(bundle.path().join("config.json"), bytes).unwrap();
    run(runtime, bundle.path())
}

fn run(runtime: &Runtime, bundle: &Path) -> Seen {
    runtime.call("run", &["--bundle", bundle.to_str().unwrap(), "c"])
}

/// Asserts an orderly failure: exit code 1, a message of one line, no panic, and no container left.
#[track_caller]
fn fails_well(runtime: &Runtime, seen: &Seen, wanted: &str) {
    seen.fails(1, wanted);
    let stderr = String::from_utf8_lossy(&seen.0.stderr);
    assert!(!stderr.contains("panicked"), "{stderr}");
    if is_husk() {
        assert_eq!(stderr.lines().filter(|line| !line.contains("warning")).count(), 1, "{stderr}");
    }
    assert!(runtime.is_empty());
}

#[test]
fn unreadable_configuration_is_an_error() {
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("exit 0");
    fails_well(&runtime, &run(&runtime, bundle.path()), "config.json");
    fails_well(&runtime, &run(&runtime, &bundle.path().join("not/there")), "");
    fs::create_dir(bundle.path().join("config.json")).unwrap();
    fails_well(&runtime, &run(&runtime, bundle.path()), "");
    fs::remove_dir(bundle.path().join("config.json")).unwrap();
    let bytes = bundle.config.to_string();
    if !is_root() {
        fs::write(bundle.path().join("config.json"), &bytes).unwrap();
        fs::set_permissions(bundle.path().join("config.json"), PermissionsExt::from_mode(0o0)).unwrap();
        fails_well(&runtime, &run(&runtime, bundle.path()), "ermission denied");
        fs::remove_file(bundle.path().join("config.json")).unwrap();
    }
    for end in [0, 1, bytes.len() / 2, bytes.len() - 1] {
        fails_well(&runtime, &run_bytes(&runtime, &bundle, &bytes.as_bytes()[..end]), "");
    }
    fails_well(&runtime, &run_bytes(&runtime, &bundle, b"{\"root\":\"\xff\xfe\"}"), "");
    fails_well(&runtime, &run_bytes(&runtime, &bundle, b"null"), "config");
}

// runc waits until the fifo has a writer, and reads the other files without a limit.
#[test]
fn fifo_as_configuration_is_refused_at_once() {
    need!(is_husk(), "runc blocks");
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("exit 0");
    let config = bundle.path().join("config.json");
    rustix::fs::mknodat(rustix::fs::CWD, &config, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    fails_well(&runtime, &run(&runtime, bundle.path()), "config.json: is not a regular file");
    fs::remove_file(&config).unwrap();
    symlink("/dev/zero", &config).unwrap();
    fails_well(&runtime, &run(&runtime, bundle.path()), "config.json: is not a regular file");
    fs::remove_file(&config).unwrap();
    fs::File::create(&config).unwrap().set_len(1 << 30).unwrap();
    fails_well(&runtime, &run(&runtime, bundle.path()), "config.json: is longer than 67108864 bytes");
}

#[test]
fn deep_nesting_is_an_error() {
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("exit 0");
    let deep = format!("{{\"annotations\":{}{}}}", "{\"a\":".repeat(1_000_000), "}".repeat(1_000_000));
    fails_well(&runtime, &run_bytes(&runtime, &bundle, deep.as_bytes()), "");
}

#[test]
fn numbers_out_of_range_are_errors() {
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("exit 0");
    for (pointer, number) in [
        ("/process/user/uid", "-1"),
        ("/process/user/uid", "4294967296"),
        ("/process/user/gid", "1e400"),
        ("/process/oomScoreAdj", "99999999999"),
        ("/process/rlimits", "[{\"type\":\"RLIMIT_NOFILE\",\"soft\":18446744073709551616,\"hard\":1}]"),
    ] {
        // Inserts the number as text: no Rust integer or float can hold the largest of them.
        let text = bundle_text(&bundle, pointer, number);
        fails_well(&runtime, &run_bytes(&runtime, &bundle, text.as_bytes()), "");
    }
}

fn bundle_text(bundle: &Bundle, pointer: &str, raw: &str) -> String {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let mut config = bundle.config.clone();
    config.pointer_mut(parent).unwrap()[key] = json!("PLACE");
    config.to_string().replace("\"PLACE\"", raw)
}

#[test]
fn container_id_cannot_be_a_path() {
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("exit 0");
    bundle.write();
    let path = bundle.path().to_str().unwrap();
    let outside = runtime.root().with_file_name("husk-outside");
    for id in ["..", ".", "", "../husk-outside", "a/b", "/a", "a b", "ä", "a\n"] {
        for verb in ["run", "create"] {
            let seen = runtime.call(verb, &["--bundle", path, "--", id]);
            assert_eq!(seen.0.status.code(), Some(1), "{id:?}");
            assert!(runtime.is_empty(), "{id:?}");
        }
        for verb in ["start", "state", "kill", "delete"] {
            assert_eq!(runtime.call(verb, &["--", id]).0.status.code(), Some(1), "{verb} {id:?}");
        }
    }
    assert!(!outside.exists());
    // An id longer than a file name can be (255 bytes).
    let seen = runtime.call("create", &["--bundle", path, &"a".repeat(300)]);
    fails_well(&runtime, &seen, "");
}

#[test]
fn bundle_may_be_a_symlink() {
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("exit 7");
    bundle.write();
    let links = tempfile::tempdir().unwrap();
    let link = links.path().join("link");
    symlink(bundle.path(), &link).unwrap();
    assert_eq!(run(&runtime, &link).0.status.code(), Some(7));
    fs::remove_file(&link).unwrap();
    symlink(&link, &link).unwrap();
    fails_well(&runtime, &run(&runtime, &link), "");
}

#[test]
fn hundred_thousand_entries_can_be_planned() {
    need!(is_husk(), "runc has no plan");
    const MANY: usize = 100_000;
    let runtime = Runtime::under_test();
    let planned = |bundle: &Bundle| {
        bundle.write();
        let seen = runtime.call("plan", &[bundle.path().to_str().unwrap()]);
        seen.succeeds().lines().count()
    };
    let mounts: Vec<_> = (0..MANY)
        .map(|number| json!({ "destination": format!("/m/{number}"), "type": "tmpfs", "source": "tmpfs" }))
        .collect();
    assert!(planned(&Bundle::running("exit 0").with("/mounts", mounts.into())) > 3 * MANY);
    let variables: Vec<_> = (0..MANY).map(|number| format!("V{number}=")).collect();
    assert!(planned(&Bundle::running("exit 0").with("/process/env", json!(variables))) > 10);
    let masked: Vec<_> = (0..MANY).map(|number| format!("/m/{number}")).collect();
    assert!(planned(&Bundle::running("exit 0").with("/linux/maskedPaths", json!(masked))) > MANY);
    let sysctl: serde_json::Map<_, _> =
        (0..MANY).map(|number| (format!("net.a{number}"), json!("1"))).collect();
    assert!(planned(&Bundle::running("exit 0").with("/linux/sysctl", sysctl.into())) > MANY);
}

#[test]
fn environment_too_large_for_exec_is_an_error() {
    let runtime = Runtime::under_test();
    let long: Vec<_> = (0..100).map(|number| format!("V{number}={}", "x".repeat(100_000))).collect();
    let bundle = Bundle::running("exit 0").with("/process/env", json!(long));
    bundle.write();
    let seen = run(&runtime, bundle.path());
    // In runc the execve fails in the init process, whose exit code 255 `run` then returns as the program's.
    seen.fails(if is_husk() { 1 } else { 255 }, "rgument list too long");
    assert!(runtime.is_empty());
}

/// Collects the JSON pointer of every value in a tree.
fn pointers(value: &Value, pointer: &str, found: &mut Vec<String>) {
    let below: Vec<(String, &Value)> = match value {
        Value::Object(members) => members.iter().map(|(key, member)| (key.clone(), member)).collect(),
        Value::Array(elements) => {
            elements.iter().enumerate().map(|(index, element)| (index.to_string(), element)).collect()
        }
        _ => Vec::new(),
    };
    for (key, member) in below {
        let pointer = format!("{pointer}/{key}");
        pointers(member, &pointer, found);
        found.push(pointer);
    }
}

// crates/bundle/tests/hostile.rs covers every value with every wrong type. This test checks that the runtime reports
// the error.
#[test]
fn value_of_the_wrong_type_is_an_error_with_its_field() {
    need!(is_husk(), "runc's messages name no field");
    let runtime = Runtime::under_test();
    let base = Bundle::running("exit 0").config;
    let mut found = Vec::new();
    pointers(&base, "", &mut found);
    assert!(found.len() > 30);
    for pointer in found {
        let mut bundle = Bundle::running("exit 0");
        let place = bundle.config.pointer_mut(&pointer).unwrap();
        *place = if place.is_boolean() { json!(["other"]) } else { json!(true) };
        bundle.write();
        let seen = run(&runtime, bundle.path());
        let field = pointer[1..].split('/').fold(String::new(), |field, part| match part.parse::<usize>() {
            Ok(index) => format!("{field}[{index}]"),
            Err(_) if field.is_empty() => part.to_owned(),
            Err(_) => format!("{field}.{part}"),
        });
        fails_well(&runtime, &seen, &format!("husk: {field}"));
    }
}

#[test]
fn create_and_run_refuse_a_container_without_a_process() {
    let runtime = Runtime::under_test();
    let mut bundle = Bundle::running("exit 0");
    bundle.config.as_object_mut().unwrap().remove("process");
    // runc's message is "process property must not be empty".
    let wanted = if is_husk() { "process: must not be empty" } else { "must not be empty" };
    fails_well(&runtime, &runtime.create(&bundle), wanted);
    fails_well(&runtime, &runtime.run(&bundle), wanted);
}
