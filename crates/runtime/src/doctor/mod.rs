//! `doctor`: whether this machine can run containers, and what to do about it.
//!
//! `Facts` are what was found, most of it by trying in a process of its own; `judge` makes findings of
//! them and looks at nothing. Nothing here changes the machine.

mod attempts;
mod facts;
mod finding;
mod judge;

use facts::Facts;
use judge::judge;

pub use finding::{Finding, Verdict};

/// Looks at the machine, as who asks sees it.
#[must_use]
pub fn examine() -> Vec<Finding> {
    judge(&Facts::gather())
}
