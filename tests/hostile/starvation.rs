//! Too little of what a runtime needs itself: descriptors, and room where it writes down what there is. It says so, leaves
//! nothing behind, and works as soon as there is enough.

use super::faults::left;
use crate::util::{Bundle, Runtime, Seen, is_root, need};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::process::Command;

/// The runtime's verb with as many descriptors as these.
fn with_descriptors(most: u32, command: &Command) -> Seen {
    let script = format!("ulimit -n {most}; exec \"$@\" </dev/null");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, "sh"]).arg(command.get_program()).args(command.get_args());
    Runtime::under_test().detached(shell)
}

/// It failed, and said why.
#[track_caller]
fn fails_in_words(seen: &Seen) {
    let err = String::from_utf8_lossy(&seen.0.stderr);
    assert!(seen.0.status.code().is_some(), "{}: {err}", seen.0.status);
    assert!(!err.trim().is_empty() && !err.contains("panicked"), "{err}");
}

#[test]
fn few_descriptors_are_an_error_that_leaves_nothing() {
    for verb in ["run", "create"] {
        let bundle = Bundle::running("exit 0");
        bundle.write();
        let runtime = Runtime::under_test();
        let mut command = runtime.command(verb);
        command.arg("--bundle").arg(bundle.path()).arg("c");
        let enough = (4..200).find(|most| {
            let seen = with_descriptors(*most, &command);
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

/// A file system for what the runtime writes down, until it is dropped.
struct Room<'a>(&'a Runtime);

impl<'a> Room<'a> {
    fn new(runtime: &'a Runtime, options: &str, flags: MountFlags) -> Self {
        let options = CString::new(options).unwrap();
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
fn a_full_store_is_an_error_that_leaves_nothing() {
    need!(is_root(), "needs root to mount");
    // Bytes of a page are taken for each file that has any; the file system's own root is an inode.
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
fn a_store_that_cannot_be_written_is_an_error_that_leaves_nothing() {
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
