//! `husk validate`.

use crate::util::{Bundle, Runtime, is_husk, need};
use serde_json::{Value, json};
use std::fs;

#[test]
fn validate_reports_duplicate_keys() {
    need!(is_husk(), "runc has no validate command");
    let bundle = Bundle::running("exit 0");
    let text = serde_json::to_string_pretty(&bundle.config).unwrap();
    let twice = text.replacen("\"noNewPrivileges\"", "\"noNewPrivileges\": false,\n\"noNewPrivileges\"", 1);
    let line = 1 + twice.lines().position(|line| line.contains("\"noNewPrivileges\": false")).unwrap();
    fs::write(bundle.path().join("config.json"), twice).unwrap();
    Runtime::under_test().typed(&["validate", bundle.path().to_str().unwrap()]).prints(&format!(
        "warning: process.noNewPrivileges: occurs twice, in lines {line} and {}; the last value is used\n\
         0 errors, 1 warning",
        line + 1
    ));
}

#[test]
fn validate_reports_every_problem_at_once() {
    need!(is_husk(), "runc has no validate command");
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("exit 0");
    bundle.write();
    let path = bundle.path().to_str().unwrap().to_owned();
    runtime.typed(&["validate", &path]).prints("0 errors, 0 warnings");
    let missing = json!({ "destination": "/a", "type": "bind", "source": "/not/there" });
    let elsewhere = Bundle::running("exit 0").mounting(missing).with("/root/path", "missing".into());
    elsewhere.write();
    let there = elsewhere.path().display();
    let seen = runtime.typed(&["validate", elsewhere.path().to_str().unwrap()]);
    let wanted = format!(
        "error: root.path: {there}/missing is not a directory\n  unpack an image into this directory\n\
         error: mounts[2].source: /not/there does not exist\n  create it, or change the source\n\
         2 errors, 0 warnings\n"
    );
    assert_eq!((seen.0.status.code(), String::from_utf8(seen.0.stdout).unwrap()), (Some(1), wanted));
    let bundle = bundle
        .with("/process/cwd", "here".into())
        .with("/process/env", json!(["A"]))
        .with("/hostnam", "x".into());
    bundle.write();
    let seen = runtime.typed(&["validate", &path]);
    let wanted = "\
error: process.cwd: \"here\" is not an absolute path
  write an absolute path: \"/here\"
error: process.env[0]: is not of the form NAME=VALUE
  for example: \"PATH=/usr/bin:/bin\"
warning: hostnam: is unknown and ignored; did you mean \"hostname\"?
2 errors, 1 warning
";
    assert_eq!(
        (seen.0.status.code(), String::from_utf8(seen.0.stdout).unwrap()),
        (Some(1), wanted.to_owned())
    );
    // Running the bundle fails with the first of these errors.
    bundle.write();
    runtime.run(&bundle).fails(1, "process.cwd: \"here\" is not an absolute path");
}

#[test]
fn validate_examines_the_machine_beside_fields_with_errors() {
    need!(is_husk(), "runc has no validate command");
    let missing = json!({ "destination": "/a", "type": "bind", "source": "/not/there" });
    let wrong = json!({ "destination": "/b", "type": "tmpfs", "options": "ro" });
    let bundle = Bundle::running("exit 0").mounting(wrong).mounting(missing);
    let bundle = bundle.with("/root/path", "missing".into()).with("/ociVersion", "9.0.0".into());
    bundle.write();
    let seen = Runtime::under_test().typed(&["validate", bundle.path().to_str().unwrap()]);
    let there = bundle.path().display();
    let wanted = format!(
        "error: mounts[2].options: must be an array, not \"ro\"\n  for example: \"options\": [\"nosuid\", \"ro\"]\n\
         error: ociVersion: \"9.0.0\" is not supported; husk implements version 1.3\n  for example: \"ociVersion\": \"1.3.0\"\n\
         error: root.path: {there}/missing is not a directory\n  unpack an image into this directory\n\
         error: mounts[3].source: /not/there does not exist\n  create it, or change the source\n\
         4 errors, 0 warnings\n"
    );
    assert_eq!(String::from_utf8(seen.0.stdout).unwrap(), wanted);
}

#[test]
fn validate_misses_only_a_program_that_nothing_can_bring() {
    need!(is_husk(), "runc has no validate command");
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("exit 0").with("/process/args", json!(["no-such-program"]));
    bundle.write();
    let path = bundle.path().to_str().unwrap().to_owned();
    let text = "\"no-such-program\" does not exist in the root file system";
    runtime.typed(&["validate", &path]).fails(1, "");
    let seen = runtime.typed(&["validate", "--json", &path]);
    let found: Value = serde_json::from_slice(&seen.0.stdout).unwrap();
    assert_eq!(found[0]["field"], "process.args[0]");
    assert_eq!((&found[0]["severity"], &found[0]["text"]), (&"error".into(), &text.into()));
    let tools = json!({ "destination": "/tools", "type": "bind", "source": "/usr", "options": ["rbind"] });
    let bundle = bundle.mounting(tools);
    bundle.write();
    runtime.typed(&["validate", &path]).prints("0 errors, 0 warnings");
}
