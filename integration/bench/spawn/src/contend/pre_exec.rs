//! Takes std's slow path: with a closure to run in the child, std has to fork.
//!
//! # Safety
//!
//! The closure runs between fork and exec. It does nothing.

#![allow(unsafe_code, clippy::allow_attributes, reason = "pre_exec is an unsafe function")]

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes the command start its child with fork.
pub(super) fn by_fork(command: &mut Command) {
    // SAFETY: an empty closure does nothing that is forbidden after fork.
    unsafe { command.pre_exec(|| Ok(())) };
}
