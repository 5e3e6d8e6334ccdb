//! std's slow path: with a closure to run in the child it has to fork.
//!
//! # Safety
//!
//! The closure runs between fork and exec. It does nothing.

#![allow(unsafe_code, clippy::allow_attributes, reason = "pre_exec is an unsafe function")]

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Has the command start its child by fork.
pub(super) fn by_fork(command: &mut Command) {
    // SAFETY: a closure that does nothing does nothing that is forbidden after fork.
    unsafe { command.pre_exec(|| Ok(())) };
}
