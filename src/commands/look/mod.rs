//! Verbs that only read and print state.

pub(super) mod events;
pub(super) mod features;
pub(super) mod list;
pub(super) mod ps;
pub(super) mod state;
mod usage;
