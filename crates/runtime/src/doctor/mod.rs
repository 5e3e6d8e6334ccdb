//! `doctor`: reports whether this machine can run containers, and how to fix what is missing.
//!
//! `Facts` holds what was found, most of it by attempts in a separate process. `judge` turns facts into findings and
//! examines nothing itself. Nothing here changes the machine.

mod attempts;
mod facts;
mod finding;
mod judge;

use facts::Facts;
use judge::judge;

pub use finding::{Finding, Verdict};

/// Examines the machine as the caller sees it.
#[must_use]
pub fn examine() -> Vec<Finding> {
    judge(&Facts::gather())
}
