//! What the tests of this crate share.
//!
//! [`observe`] is how most of them read: a command is started, its program is held just after exec,
//! and the kernel is asked through `/proc` what it is. [`guest`] is for what must happen in a
//! process of its own.

// Each test file is a program of its own and uses some of this.
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

/// Has the test ended that calls it, and said where it hangs, if it does not end by itself.
pub(crate) fn watch() {
    husk_deadline::watch(&[]);
}

/// Ends the test, which cannot be made here for this reason.
macro_rules! skip {
    ($($reason:tt)*) => {{
        $crate::support::tell_skipped(format_args!($($reason)*));
        return;
    }};
}
pub(crate) use skip;

/// Ends the test, unless we are root with root's privileges over the whole host.
macro_rules! needs_root {
    () => {
        if !$crate::support::is_root() {
            $crate::support::skip!("needs root");
        }
    };
}
pub(crate) use needs_root;

/// Ends the test, unless we may make namespaces and be root there.
macro_rules! needs_namespaces {
    () => {
        if !$crate::support::has_namespaces() {
            $crate::support::skip!("needs user namespaces");
        }
    };
}
pub(crate) use needs_namespaces;

/// To the real standard error: what the print macros write is kept back from tests that pass.
pub(crate) fn tell_skipped(reason: Arguments<'_>) {
    let test = thread::current();
    let test = test.name().unwrap_or("test");
    let line = format!("skipped: {reason} ({test})\n");
    std::io::stderr().write_all(line.as_bytes()).expect("standard error");
}

/// Returns when a process or thread, by its directory in `/proc`, sleeps in a system call.
pub(crate) fn until_asleep(directory: &str) {
    loop {
        let stat = fs::read_to_string(format!("{directory}/stat")).expect("its state");
        assert!(!stat.contains(") Z "), "it has ended");
        if stat.contains(") S ") {
            return;
        }
        thread::yield_now();
    }
}

/// Whether we are root, in no user namespace, and have the capabilities that the tests use.
pub(crate) fn is_root() -> bool {
    watch();
    const SETGID_SETUID_SYS_ADMIN: u64 = 1 << 6 | 1 << 7 | 1 << 21;
    let read = |path| fs::read_to_string(path).expect("a file about ourselves");
    let status = read("/proc/self/status");
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:\t")).expect("ours");
    let capabilities = u64::from_str_radix(capabilities, 16).expect("a number");
    geteuid().is_root()
        && read("/proc/self/uid_map").trim_end().ends_with("4294967295")
        && capabilities & SETGID_SETUID_SYS_ADMIN == SETGID_SETUID_SYS_ADMIN
}

/// Whether a child may be root in namespaces of its own. Some hosts forbid it to all but root, some
/// allow the namespace and no privilege in it.
pub(crate) fn has_namespaces() -> bool {
    watch();
    let mut command = Command::new("true");
    let namespaces = Namespaces::UTS | Namespaces::MOUNT | Namespaces::NET;
    own_root(&mut command).new_namespaces(namespaces).hostname("probe").status().is_ok()
}

/// Makes the program root in a user namespace of its own, whoever we are.
pub(crate) fn own_root(command: &mut Command) -> &mut Command {
    watch();
    let own = |outside| [IdMap { inside: 0, outside, count: 1 }];
    command
        .new_namespaces(Namespaces::USER)
        .uid_map(&own(geteuid().as_raw()))
        .gid_map(&own(getegid().as_raw()))
}

/// The program that has the roles.
pub(crate) const GUEST: &str = env!("CARGO_BIN_EXE_husk-spawn-guest");

/// Starts a role of `guest.rs`, in a process of its own.
pub(crate) fn guest(role: &str) -> Command {
    watch();
    let mut command = Command::new(GUEST);
    command.arg(role);
    command
}
