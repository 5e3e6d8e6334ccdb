//! Verbs that only read, and print what they have found.

pub(super) mod events;
pub(super) mod features;
pub(super) mod list;
pub(super) mod ps;
pub(super) mod state;
