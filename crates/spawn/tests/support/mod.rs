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

use husk_spawn::Command;
use rustix::process::geteuid;
use std::fmt::Arguments;
use std::io::Write as _;
use std::{fs, thread};

/// Ends the test, which cannot be made here for this reason.
macro_rules! skip {
    ($($reason:tt)*) => {{
        $crate::support::tell_skipped(format_args!($($reason)*));
        return;
    }};
}
pub(crate) use skip;

/// To the real standard error: what the print macros write is kept back from tests that pass.
pub(crate) fn tell_skipped(reason: Arguments<'_>) {
    let test = thread::current();
    let test = test.name().unwrap_or("test");
    let line = format!("skipped: {reason} ({test})\n");
    std::io::stderr().write_all(line.as_bytes()).expect("standard error");
}

/// Returns when a process or thread, by its directory in `/proc`, sleeps in a system call.
pub(crate) fn until_asleep(directory: &str) {
    let stat = format!("{directory}/stat");
    while !fs::read_to_string(&stat).expect("its state").contains(") S ") {
        thread::yield_now();
    }
}

/// Whether we may do everything, of what a test that needs root asks.
pub(crate) fn is_root() -> bool {
    geteuid().is_root()
}

/// The program that has the roles.
pub(crate) const GUEST: &str = env!("CARGO_BIN_EXE_husk-spawn-guest");

/// Starts a role of `guest.rs`, in a process of its own.
pub(crate) fn guest(role: &str) -> Command {
    let mut command = Command::new(GUEST);
    command.arg(role);
    command
}
