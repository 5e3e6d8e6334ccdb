//! Shared by the tests of this crate.
//!
//! Most tests use [`observe`]: it starts a command and holds its program just after exec, and the test reads
//! its state from `/proc`. [`guest`] is for tests that need a process of their own.

// Each test file is a separate program and uses only part of this.
#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    clippy::allow_attributes,
    reason = "shared by several programs"
)]

mod cgroup;
mod dir;
mod held;
mod observed;
pub(crate) mod program;
mod terminal;

pub(crate) use cgroup::Cgroup;
pub(crate) use dir::Dir;
pub(crate) use held::Held;
pub(crate) use observed::{Observed, observe};
pub(crate) use terminal::Terminal;

use husk_spawn::{Command, IdMap, Namespaces};
use rustix::process::{getegid, geteuid};
use std::fmt::Arguments;
use std::io::Write as _;
use std::{fs, thread};

/// Aborts a test that hangs, and reports where it hangs.
pub(crate) fn watch() {
    husk_deadline::watch(&[]);
}

/// Skips the test, giving the reason why it cannot run here.
macro_rules! skip {
    ($($reason:tt)*) => {{
        $crate::support::tell_skipped(format_args!($($reason)*));
        return;
    }};
}
pub(crate) use skip;

/// Skips the test unless it runs as root with full privileges over the host.
macro_rules! needs_root {
    () => {
        if !$crate::support::is_root() {
            $crate::support::skip!("needs root");
        }
    };
}
pub(crate) use needs_root;

/// Skips the test unless it may create namespaces and be root in them.
macro_rules! needs_namespaces {
    () => {
        if !$crate::support::has_namespaces() {
            $crate::support::skip!("needs user namespaces");
        }
    };
}
pub(crate) use needs_namespaces;

/// Skips the test on Linux before 6.2, where exec does not enter a time namespace.
macro_rules! needs_time_at_exec {
    () => {
        if !$crate::support::is_linux(6, 2) {
            $crate::support::skip!("needs Linux 6.2, where exec enters a time namespace");
        }
    };
}
pub(crate) use needs_time_at_exec;

/// Writes to the real standard error. The test harness hides what the print macros write in tests that pass.
pub(crate) fn tell_skipped(reason: Arguments<'_>) {
    let test = thread::current();
    let test = test.name().unwrap_or("test");
    let line = format!("skipped: {reason} ({test})\n");
    std::io::stderr().write_all(line.as_bytes()).expect("standard error");
}

/// Returns when a process or thread, given by its directory in `/proc`, sleeps in a system call.
pub(crate) fn until_asleep(directory: &str) {
    loop {
        let stat = fs::read_to_string(format!("{directory}/stat")).expect("its state");
        assert!(!stat.contains(") Z "), "the process has ended");
        if stat.contains(") S ") {
            return;
        }
        thread::yield_now();
    }
}

/// Whether this process is root, in the initial user namespace, with the capabilities that the tests use.
pub(crate) fn is_root() -> bool {
    watch();
    const SETGID_SETUID_SYS_ADMIN: u64 = 1 << 6 | 1 << 7 | 1 << 21;
    let read = |path| fs::read_to_string(path).expect("a file of /proc/self");
    let status = read("/proc/self/status");
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:\t")).expect("capabilities");
    let capabilities = u64::from_str_radix(capabilities, 16).expect("a number");
    geteuid().is_root()
        && read("/proc/self/uid_map").trim_end().ends_with("4294967295")
        && capabilities & SETGID_SETUID_SYS_ADMIN == SETGID_SETUID_SYS_ADMIN
}

/// Whether a child may be root in its own namespaces. Some hosts allow this only to root; some allow the
/// namespace but no privileges in it.
pub(crate) fn has_namespaces() -> bool {
    watch();
    let mut command = Command::new("true");
    let namespaces = Namespaces::UTS | Namespaces::MOUNT | Namespaces::NET;
    own_root(&mut command).new_namespaces(namespaces).hostname("probe").status().is_ok()
}

/// Whether the kernel has at least this version.
pub(crate) fn is_linux(major: u32, minor: u32) -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel's version");
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
    (numbers.next(), numbers.next()) >= (Some(major), Some(minor))
}

/// Makes the program root in a new user namespace, whoever runs the tests.
pub(crate) fn own_root(command: &mut Command) -> &mut Command {
    watch();
    let own = |outside| [IdMap { inside: 0, outside, count: 1 }];
    command
        .new_namespaces(Namespaces::USER)
        .uid_map(&own(geteuid().as_raw()))
        .gid_map(&own(getegid().as_raw()))
}

/// The program that plays the roles of `guest.rs`.
pub(crate) const GUEST: &str = env!("CARGO_BIN_EXE_husk-spawn-guest");

/// Starts a role of `guest.rs` as a separate process.
pub(crate) fn guest(role: &str) -> Command {
    watch();
    let mut command = Command::new(GUEST);
    command.arg(role);
    command
}
