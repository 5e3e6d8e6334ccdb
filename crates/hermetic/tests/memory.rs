//! Checks that the memory of a process does not grow with the number of sandboxes it runs. The only test in this file,
//! because it measures the whole process.

#![expect(clippy::unwrap_used, reason = "a test")]

use husk_hermetic::{Isolation, Profile, run};
use std::fs;

/// Returns how much memory this process has requested from the kernel, in KiB.
fn kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn memory_of_a_sandbox_is_reused() {
    husk_deadline::watch(&[]);
    let profile = Profile { args: vec!["true".into()], ..Profile::default() };
    let runs = |count: u32| (0..count).try_for_each(|_| run(&profile, Isolation::Possible).map(drop));
    // Skips the test where sandboxes are unavailable.
    if runs(20).is_err() {
        return;
    }
    let before = kib();
    runs(200).unwrap();
    let more = kib().saturating_sub(before);
    assert!(more < 512, "{more} KiB for 200 sandboxes");
}
