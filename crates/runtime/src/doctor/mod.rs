//! `doctor`: whether this machine can run containers, and what to do about it.
//!
//! `Facts` are what was found, most of it by trying in a process of its own; `judge` makes findings of
//! them and looks at nothing. Nothing here changes the machine.

mod attempts;
mod facts;
mod judge;

use facts::{Facts, Hierarchies, UserNamespaces};
use judge::judge;

use serde::Serialize;

/// Something that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What.
    pub topic: &'static str,
    /// Whether it is as it should be.
    pub verdict: Verdict,
    /// What was found.
    pub text: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// Whether something is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is.
    Ok,
    /// Some containers will miss something.
    Warning,
    /// There can be no containers for who asks.
    Problem,
}

/// Looks at the machine, as who asks sees it.
#[must_use]
pub fn examine() -> Vec<Finding> {
    judge(&Facts::gather())
}
