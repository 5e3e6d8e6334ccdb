//! The verbs that change nothing. They inspect containers, bundles and this program.

pub(crate) mod events;
pub(crate) mod features;
pub(crate) mod plan;
pub mod ps;
pub(crate) mod state;
pub(crate) mod validate;
pub(crate) mod wait;
