//! Messages of `husk test`.

use super::List;
use crate::util::Bundle;
use serde_json::json;
use std::fs;

pub(super) fn sandboxes(list: &mut List) {
    programs(list);
    bundles(list);
    reports(list);
    shards(list);
    settings(list);
}

/// Programs that do not begin, and programs that husk ends.
fn programs(list: &mut List) {
    fs::write(list.path("file"), "").unwrap();
    let left = "sleep 4242 & while ! tr '\\0' ' ' </proc/$!/cmdline | grep -q '^sleep'; do :; done; exit 3";
    for words in [
        &["test", "/no/such"] as &[&str],
        &["test", "no-such"],
        &["test", "/etc/passwd"],
        &["test", "--rootfs", "no-such", "true"],
        &["test", "--rootfs", "file", "true"],
        &["test", "--write", "no-such", "true"],
        &["test", "--overlay", "file", "true"],
        &["test", "--hide", "no-such", "true"],
        &["test", "--read", "no-such", "true"],
        &["test", "--timeout", "100ms", "sh", "-c", "kill -STOP $$"],
        &["test", "--", "sh", "-c", "exit 7"],
        &["test", "--", "sh", "-c", "kill -KILL $$"],
        &["test", "--", "sh", "-c", left],
    ] {
        list.add(words);
    }
}

/// Tests that several machines share.
fn shards(list: &mut List) {
    for words in [
        &["test", "--shard", "3/2", "true"] as &[&str],
        &["test", "--merge"],
        &["test", "--merge", "no-such"],
        &["test", "--durations", "no-such", "true"],
        &["test", "--durations", "file", "--json", "file", "true"],
        &["test", "--job", "github", "true"],
        &["test", "--job", "kubernetes", "cargo", "test"],
        &["test", "--job", "gitlab", "--shards", "1", "cargo", "test"],
    ] {
        list.add(words);
    }
}

fn bundles(list: &mut List) {
    list.add(&["test", "--bundle", "no-such"]);
    list.add(&["test", "--bundle", "file"]);
    let bundle = Bundle::running("exit 0");
    list.write(&bundle);
    list.explain("a bundle with linux.cgroupsPath");
    list.add(&["test", "--bundle", "{bundle}"]);
    let bundle = bundle.with("/process/cwd", json!("here"));
    bundle.write();
    list.explain("a bundle whose process.cwd is relative");
    list.add(&["test", "--bundle", "{bundle}"]);
}

/// Reports that cannot be written.
fn reports(list: &mut List) {
    // A test binary that certainly exists.
    list.name(&std::env::current_exe().unwrap(), "{tests}");
    fs::create_dir(list.path("directory")).unwrap();
    fs::write(list.path("foreign"), "<testsuites/>").unwrap();
    let run = ["test", "--runner"];
    let tests = ["{tests}", "--exact", "no-such-test"];
    for options in [
        &["--json", "directory"] as &[&str],
        &["--json", "/dev/fd/99"],
        &["--json", "directory/lines", "--write", "directory"],
        &["--junit", "foreign"],
        &["--html", "foreign"],
    ] {
        list.add(&[&run[..], options, &tests].concat());
    }
}

/// Errors in husk.toml.
fn settings(list: &mut List) {
    list.add(&["test", "--config", "no-such", "true"]);
    for text in [
        "a = ",
        "timout = 3",
        "runner = true",
        "net = \"all\"",
        "timeout = \"long\"",
        "strict = 1",
        "net = [\"none\"]",
        "write = [{}]",
        "override = 1",
        "[[override]]\nnet = \"none\"",
        "[[override]]\ntest = \"a\"\njunit = \"b\"",
        "net = \"none\"\nnet = \"host\"",
        "# sizes\n\tmemory = \"12 apples\" # a comment",
        "pids = -1",
        "pids = 99999999999999999999",
        "files = 1.5",
        "timeout = 2026-01-01",
        "write = [\"a\", 1, true]",
        "test = \"a\"",
        "binary = \"a\"",
        "[override]\ntest = \"a\"",
        "[limits]\npids = 1",
        "[[override]]\ntest = []",
        "[[override]]\ntest = \"\"",
        "[[override]]\ntests = \"a\"",
        "[[override]]\ntest = \"a\"\njunits = \"b\"",
        "[[override]]\ntest = \"a\"\nbinaries = \"b\"",
        "[[override]]\ntest = \"a\"\n\n[[override]]\ntest = \"größe\"\nnett = \"b\"",
        "[[override]]\ntest = \"a\"\nplan = true",
    ] {
        fs::write(list.path("husk.toml"), text).unwrap();
        list.explain(&format!("husk.toml is {text:?}"));
        list.add(&["test", "--config", "husk.toml", "true"]);
    }
    fs::remove_file(list.path("husk.toml")).unwrap();
}

/// Configurations of cargo.
pub(super) fn init(list: &mut List) {
    list.add(&["test", "init", "--dance"]);
    fs::write(list.path("Cargo.toml"), "[workspace]\n").unwrap();
    list.add(&["test", "init"]);
    list.add_printed(&["test", "init", "--yes"]);
    list.add_printed(&["test", "init", "--yes"]);
    for text in ["[target]\nx86_64-unknown-linux-gnu.runner = \"qemu\"", "target = {}", "a = "] {
        fs::write(list.path(".cargo/config.toml"), text).unwrap();
        list.explain(&format!(".cargo/config.toml is {text:?}"));
        list.add(&["test", "init", "--yes"]);
    }
}
