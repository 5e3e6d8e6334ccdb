//! A finding of `doctor` about one topic.

use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub topic: &'static str,
    pub verdict: Verdict,
    pub text: String,
    /// How to fix it, if it needs fixing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Everything works.
    Ok,
    /// Some containers will lack something.
    Warning,
    /// The caller cannot run containers.
    Problem,
}
