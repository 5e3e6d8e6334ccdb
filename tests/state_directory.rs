//! The directory in which containers are recorded, if the command line does not name one.

use crate::util::{Bundle, Runtime, is_husk, is_root, need};
use std::fs;
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::Command;

// Rootless podman calls its runtime in this way: as root of a user namespace, with almost no environment.
#[test]
fn root_in_a_user_namespace_has_its_own_store() {
    need!(is_husk(), "other runtimes do not report the path of their store");
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user"]);
        command
    };
    need!(unshare().arg("true").status().is_ok_and(|end| end.success()), "no user namespace can be made");
    let runtime = Runtime::under_test();
    let own = format!("root: {}", runtime.root().join("husk").display());
    for (user, place) in [(None, &*own), (Some("somebody"), &own), (Some("root"), "root: /run/husk")] {
        let mut command = unshare();
        command.arg(runtime.command("list").get_program()).args(["--debug", "list"]);
        command.env_remove("USER").env("XDG_RUNTIME_DIR", runtime.root());
        command.envs(user.map(|user| ("USER", user)));
        let output = command.output().expect("unshare");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(place), "{user:?}: {said}");
    }
}

// Runs a program as this user, or as the current user if that is not root.
fn as_user(uid: u32) -> Command {
    let mut command = Command::new("setpriv");
    if is_root() {
        let id = uid.to_string();
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
    }
    command
}

#[test]
fn user_without_runtime_directory_has_one_in_tmp_that_no_other_user_can_take() {
    need!(is_husk(), "runc has no such directory");
    need!(is_root(), "another user's directory needs a second user");
    // Nobody has these ids.
    let (uid, other) = (61_234, 61_235);
    let place = PathBuf::from(format!("/tmp/husk-{uid}"));
    let list = || {
        let mut command = as_user(uid);
        command.args([env!("CARGO_BIN_EXE_husk"), "--debug", "list"]).env_remove("XDG_RUNTIME_DIR");
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (listed, said) = list();
    assert!(listed && said.contains(&format!("root: {}", place.display())), "{said}");
    fs::create_dir(&place).unwrap();
    chown(&place, Some(other), Some(other)).unwrap();
    let (listed, said) = list();
    fs::remove_dir(&place).unwrap();
    assert!(!listed && said.contains(&format!("belongs to user {other}")), "{said}");
}

#[test]
fn runtime_directory_that_cannot_be_made_is_named_once() {
    need!(is_husk(), "the message is husk's");
    let mut command = as_user(1000);
    let bundle = Bundle::running("exit 0");
    bundle.write();
    command.arg(env!("CARGO_BIN_EXE_husk")).args(["run", "--bundle"]).arg(bundle.path()).arg("c");
    let output = command.env("XDG_RUNTIME_DIR", "/no/such/place").output().unwrap();
    let wanted = "husk: $XDG_RUNTIME_DIR: mkdir /no/such/place/husk: permission denied\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), wanted);
}
