//! The verbs that change nothing. They look at containers, at bundles, and at this program.

pub(crate) mod events;
pub(crate) mod features;
pub(crate) mod plan;
pub mod ps;
pub(crate) mod state;
pub(crate) mod validate;
pub(crate) mod wait;
