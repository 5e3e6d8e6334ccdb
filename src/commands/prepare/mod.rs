//! Verbs for use before a container exists: bundles, this machine, engines, shells and the manual.

pub(super) mod bundle;
pub(super) mod completion;
pub(super) mod doctor;
pub(super) mod man;
pub(super) mod plan;
pub(super) mod register;
pub(super) mod spec;
pub(super) mod validate;
