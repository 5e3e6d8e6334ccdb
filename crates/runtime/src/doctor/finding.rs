//! What the doctor has to say about one topic.

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
