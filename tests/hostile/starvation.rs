//! Tests with a shortage of what the runtime itself needs: descriptors, memory, processes, or space in its store. It
//! must report an error, leave nothing behind, and work as soon as there is enough.

use super::faults::left;
use crate::util::{Bundle, Runtime, Seen, is_root, need};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::json;
use std::ffi::CString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

/// Runs a command under a `ulimit`.
fn limited(limit: &str, most: u32, command: &Command) -> Seen {
    // Without redirections: for them the shell needs descriptors itself, and fails if few are allowed.
    let script = format!("{limit} {most}; exec \"$@\"");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, "sh"]).arg(command.get_program()).args(command.get_args());
    Runtime::under_test().detached(shell)
}

/// Asserts that it exited and printed an error without panicking.
#[track_caller]
pub(crate) fn fails_in_words(seen: &Seen) {
    let err = String::from_utf8_lossy(&seen.0.stderr);
    assert!(seen.0.status.code().is_some(), "{}: {err}", seen.0.status);
    assert!(!err.trim().is_empty() && !err.contains("panicked"), "{err}");
}

#[test]
fn few_descriptors_are_an_error_and_leave_nothing() {
    for verb in ["run", "create"] {
        let bundle = Bundle::running("exit 0");
        bundle.write();
        let runtime = Runtime::under_test();
        let mut command = runtime.command(verb);
        command.arg("--bundle").arg(bundle.path()).arg("c");
        let enough = (4..200).find(|most| {
            let seen = limited("ulimit -n", *most, &command);
            let is_enough = seen.0.status.success();
            if !is_enough {
                fails_in_words(&seen);
                assert!(
                    runtime.is_empty(),
                    "{verb} with {most}: {}",
                    String::from_utf8_lossy(&seen.0.stderr)
                );
            }
            is_enough
        });
        assert!(enough.is_some_and(|enough| enough > 4), "{verb}: {enough:?}");
        runtime.call("delete", &["--force", "c"]).succeeds();
        assert_eq!(left(&runtime, &bundle), [""; 0]);
    }
}

/// A file system for the runtime's store, mounted until it is dropped.
struct Room<'a>(&'a Runtime);

impl<'a> Room<'a> {
    fn new(runtime: &'a Runtime, options: &str, flags: MountFlags) -> Self {
        // A store that all users may write to is refused.
        let options = CString::new(format!("mode=700,{options}").trim_end_matches(',')).unwrap();
        mount("tmpfs", runtime.root(), "tmpfs", flags, Some(&*options)).unwrap();
        Self(runtime)
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        unmount(self.0.root(), UnmountFlags::DETACH).unwrap();
    }
}

#[test]
fn full_store_is_an_error_and_leaves_nothing() {
    need!(is_root(), "needs root to mount");
    // Each file that is not empty takes whole pages; the file system's root takes an inode.
    let rooms = [
        "nr_inodes=1",
        "nr_inodes=2",
        "nr_inodes=3",
        "nr_inodes=4",
        "size=4k",
        "size=8k",
        "size=12k",
        "size=1m",
    ];
    for verb in ["run", "create"] {
        let mut outcomes = Vec::new();
        for options in rooms {
            let bundle = Bundle::running("exit 0");
            bundle.write();
            let runtime = Runtime::under_test();
            let room = Room::new(&runtime, options, MountFlags::empty());
            let mut command = runtime.command(verb);
            command.arg("--bundle").arg(bundle.path()).arg("c");
            let seen = runtime.detached(command);
            outcomes.push(seen.0.status.success());
            if !seen.0.status.success() {
                fails_in_words(&seen);
                assert!(
                    runtime.is_empty(),
                    "{verb} with {options}: {}",
                    String::from_utf8_lossy(&seen.0.stderr)
                );
            }
            runtime.call("list", &[]).succeeds();
            runtime.call("delete", &["--force", "c"]).succeeds();
            assert_eq!(left(&runtime, &bundle), [""; 0]);
            drop(room);
        }
        assert!(outcomes.contains(&false) && outcomes.last() == Some(&true), "{verb}: {outcomes:?}");
    }
}

#[test]
fn read_only_store_is_an_error_and_leaves_nothing() {
    need!(is_root(), "needs root to mount");
    let bundle = Bundle::running("exit 0");
    let runtime = Runtime::under_test();
    let _room = Room::new(&runtime, "", MountFlags::RDONLY);
    for seen in [runtime.run(&bundle), runtime.create(&bundle)] {
        fails_in_words(&seen);
        seen.says("ead-only file system");
    }
    runtime.call("list", &[]).succeeds();
    assert_eq!(left(&runtime, &bundle), [""; 0]);
}

#[test]
fn little_memory_is_an_error_and_leaves_nothing() {
    let bundle = Bundle::running("exit 0");
    bundle.write();
    let runtime = Runtime::under_test();
    let mut command = runtime.command("run");
    command.arg("--bundle").arg(bundle.path()).arg("c");
    let mut outcomes = Vec::new();
    // Kilobytes of address space, from too few to enough.
    for kilobytes in [1_000, 20_000, 21_000, 22_000, 24_000, 28_000, 40_000, 4_000_000] {
        let seen = limited("ulimit -v", kilobytes, &command);
        outcomes.push(seen.0.status.success());
        let err = String::from_utf8_lossy(&seen.0.stderr);
        assert!(seen.0.status.success() || !err.contains("panicked at crates"), "{kilobytes}: {err}");
        // A failed allocation aborts the runtime. The next verb deletes what it had begun.
        runtime.call("list", &[]).succeeds();
        runtime.call("delete", &["--force", "c"]).succeeds();
        assert_eq!(left(&runtime, &bundle), [""; 0]);
    }
    assert!(!outcomes[0] && outcomes[outcomes.len() - 1], "{outcomes:?}");
}

#[test]
fn process_limit_of_the_caller_is_reported() {
    need!(is_root(), "needs root to become a user without processes");
    let user = "setpriv --reuid 54321 --regid 54321 --clear-groups";
    let bundle = Bundle::running("exit 0");
    let map = json!([{ "containerID": 0, "hostID": 54321, "size": 1 }]);
    let mut namespaces = bundle.config["linux"]["namespaces"].clone();
    namespaces.as_array_mut().unwrap().push(json!({ "type": "user" }));
    let mut bundle = bundle
        .with("/linux/namespaces", namespaces)
        .with("/linux/uidMappings", map.clone())
        .with("/linux/gidMappings", map);
    bundle.config["linux"].as_object_mut().unwrap().remove("cgroupsPath");
    bundle.write();
    let runtime = Runtime::under_test();
    for path in [bundle.path(), &bundle.rootfs(), runtime.root()] {
        fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
    }
    let mut command = runtime.command("run");
    command.arg("--bundle").arg(bundle.path()).arg("c");
    let limited = |most: u32| {
        let mut words = Command::new("sh");
        let script = format!("exec {user} sh -c 'ulimit -p {most}; exec \"$@\"' sh \"$@\"");
        words.args(["-c", &script, "sh"]).arg(command.get_program()).args(command.get_args());
        runtime.detached(words)
    };
    let enough = limited(100);
    need!(enough.0.status.success(), "needs a program that other users may run");
    for most in [1, 2] {
        let seen = limited(most);
        if !seen.0.status.success() {
            fails_in_words(&seen);
        }
        runtime.call("delete", &["--force", "c"]).succeeds();
        assert_eq!(left(&runtime, &bundle), [""; 0]);
    }
    assert!(!limited(1).0.status.success());
}
