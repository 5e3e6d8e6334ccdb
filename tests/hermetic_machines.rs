//! `test` on machines that do not let a sandbox be made, or not completely. Such machines are made of
//! namespaces here.

use crate::hermetic::{Place, has_sandboxes};
use crate::util::{Bundle, Runtime, Seen, is_root, need};
use husk_spawn::{IdMap, Namespaces};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::Command;

/// `husk` where an ordinary user finds it too.
fn husk(place: &Place) -> String {
    let copy = place.path("here/husk");
    // By a process of its own: what another test starts meanwhile would else hold it open.
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_husk")).arg(&copy).status().unwrap().success());
    for name in ["", "here", "home"] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(place.path(name), mode).unwrap();
    }
    copy
}

/// A script that is run by root of a user namespace, with its own mounts and processes.
fn as_root_of_a_container(place: &Place, script: &str) -> Seen {
    let mut command = Command::new("unshare");
    command.args(["-rmpf", "--mount-proc", "sh", "-c", script]).current_dir(place.path("here"));
    Seen(command.output().unwrap())
}

#[test]
fn where_parts_of_proc_are_covered_it_is_the_callers() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Place::new();
    let husk = husk(&place);
    let cover = "mount --bind /dev/null /proc/uptime || exit 9";
    let seen = as_root_of_a_container(&place, &format!("{cover}; {husk} test -- sh -c 'echo $$'"));
    seen.prints("2");
    seen.says("husk: warning: /proc is the caller's, whose processes are seen there");
    let refused = as_root_of_a_container(&place, &format!("{cover}; {husk} test --strict -- true"));
    refused.fails(125, "and --strict was asked for");
}

#[test]
fn root_does_without_a_user_namespace() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Place::new();
    let husk = husk(&place);
    let none = "echo 0 > /proc/sys/user/max_user_namespaces || exit 9";
    let script = "grep CapEff /proc/self/status; true 2> /dev/null > file || echo read-only";
    let seen = as_root_of_a_container(&place, &format!("{none}; {husk} test -- sh -c '{script}'"));
    seen.prints("CapEff:\t0000000000000000\nread-only");
    seen.says("there is no user namespace of its own");
    let refused = as_root_of_a_container(&place, &format!("{none}; {husk} test --strict -- true"));
    refused.fails(125, "and --strict was asked for");
}

/// A script that root begins in a user namespace in which there is an ordinary user too.
fn with_two_users(place: &Place, script: &str) -> Seen {
    let map = |id| IdMap { inside: id, outside: id, count: 1 };
    let mut command = husk_spawn::Command::new("sh");
    command.args(["-c", script]).current_dir(place.path("here")).new_namespaces(Namespaces::USER);
    let output = command.uid_map(&[map(0), map(1000)]).gid_map(&[map(0), map(1000)]).output().unwrap();
    Seen(std::process::Output { status: output.status, stdout: output.stdout, stderr: output.stderr })
}

#[test]
fn who_may_make_no_user_namespace_is_told_which_switch_it_is() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(is_root(), "needs root");
    let place = Place::new();
    let husk = husk(&place);
    let user = "setpriv --reuid 1000 --regid 1000 --clear-groups";
    let script = format!("echo 0 > /proc/sys/user/max_user_namespaces; exec {user} {husk} test -- true");
    let seen = with_two_users(&place, &script);
    seen.fails(125, "user namespaces are switched off here; as root: sysctl user.max_user_namespaces=15000");
    seen.says("husk: clone with new");
}

#[test]
fn an_ordinary_user_has_the_same() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(is_root(), "needs root");
    let place = Place::new();
    let husk = husk(&place);
    let home = place.path("home");
    let as_user = |script: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups", &husk, "test"]);
        command.args(["--write", ".", "--pids", "50", "--", "sh", "-c", script]);
        Seen(command.current_dir(place.path("here")).env("HOME", &home).output().unwrap())
    };
    let script = "id -u; true 2> /dev/null > /etc/husk-was-here || echo read-only; echo mine > mine; ls -A ~; ls /proc/1/root/ 2>/dev/null; true";
    as_user(script).prints("1000\nread-only");
    let mine = fs::metadata(Path::new(&place.path("here/mine"))).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&mine), 1000);
    as_user("b() { b | b & b; }; b").fails(2, "Cannot fork");
}

/// Whose processes are many at a time, and each set up while others run.
#[test]
fn an_ordinary_users_tests_run_at_the_same_time() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(is_root(), "needs root");
    let place = Place::new();
    let husk = husk(&place);
    // Neither ends before the other has begun.
    fs::create_dir(place.path("here/deps")).unwrap();
    let binary = place.path("here/deps/lab-0123456789abcdef");
    let script = "#!/bin/sh
        case \"$*\" in *--list*--ignored*) ;; *--list*) echo 'one: test'; echo 'two: test' ;;
            one*) echo 1 > there; read x < back ;; two*) read x < there; echo 2 > back ;; esac";
    fs::write(&binary, script).unwrap();
    fs::set_permissions(&binary, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut fifos = Command::new("mkfifo");
    fifos.args(["-m", "666", "there", "back"]).current_dir(place.path("here"));
    assert!(fifos.status().unwrap().success());
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups", &husk, "test", "--write", "."]);
    command.args(["--timeout", "60s", "--runner", "--", &binary, "--test-threads=2"]);
    let seen =
        Seen(command.current_dir(place.path("here")).env("HOME", place.path("home")).output().unwrap());
    assert!(seen.succeeds().contains("2 passed"));
}

/// A container whose program is a sandbox of the guest.
fn with_sandbox(options: &[&str], words: &[&str]) -> Bundle {
    let bundle = Bundle::running("");
    let copied =
        Command::new("cp").arg(env!("CARGO_BIN_EXE_husk")).arg(bundle.rootfs().join("husk")).status();
    assert!(copied.unwrap().success());
    for name in ["tmp", "run", "var"] {
        fs::create_dir(bundle.rootfs().join(name)).unwrap();
    }
    let args = [&["/husk", "test"], options, &["--", "/guest"], words].concat();
    let devices = ["null", "zero", "full", "random", "urandom", "tty"].map(|name| {
        let path = format!("/dev/{name}");
        json!({ "destination": path, "type": "bind", "source": path, "options": ["bind"] })
    });
    let bundle = bundle.with("/process/args", json!(args));
    // Which engines give to root, who could else not be root of a user namespace of its own.
    let sets = ["bounding", "permitted", "effective"].map(|set| (set.to_owned(), json!(["CAP_SETFCAP"])));
    let bundle = bundle.with("/process/capabilities", serde_json::Map::from_iter(sets).into());
    devices.into_iter().fold(bundle, Bundle::mounting)
}

#[test]
fn a_container_has_sandboxes_too() {
    need!(has_sandboxes(), "needs user namespaces");
    let runtime = Runtime::under_test();
    runtime.run(&with_sandbox(&["--strict"], &["write", "/tmp/file"])).prints("");
    runtime.run(&with_sandbox(&["--strict"], &["write", "/file"])).fails(1, "Read-only file system");
    runtime.run(&with_sandbox(&["--strict"], &["status", "CapEff"])).prints("0000000000000000");
    runtime.run(&with_sandbox(&[], &["exit", "7"])).fails(7, "");
    let without = with_sandbox(&[], &["exit", "7"]).with("/process/capabilities", json!({}));
    runtime.run(&without).fails(125, "root takes CAP_SETFCAP for that");
    // As engines have it.
    let masked = |bundle: Bundle| bundle.with("/linux/maskedPaths", json!(["/proc/uptime", "/proc/keys"]));
    let seen = runtime.run(&masked(with_sandbox(&[], &["exit", "7"])));
    seen.fails(7, "husk: warning: /proc is the caller's, whose processes are seen there");
    runtime
        .run(&masked(with_sandbox(&["--strict"], &["exit", "7"])))
        .fails(125, "and --strict was asked for");
}
