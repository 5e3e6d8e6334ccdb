//! Runs the soak for a short while. `make soak` runs it for longer.

use crate::util::{guest, is_root, need};
use std::process::Command;

#[test]
fn many_containers_leave_nothing_behind() {
    need!(is_root(), "needs root to create cgroups");
    let seen = Command::new(guest().with_file_name("soak")).args(["64", "8", "64", "16"]).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&seen.stdout), String::from_utf8_lossy(&seen.stderr));
    assert!(seen.status.success(), "{out}\n{err}");
}
