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
    let test = std::thread::current();
    let test = test.name().unwrap_or("test");
    writeln!(std::io::stderr(), "skipped: {reason} ({test})").expect("standard error");
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
