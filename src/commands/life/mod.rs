//! Verbs that change a container or wait for one.

pub(super) mod checkpoint;
pub(super) mod create;
pub(super) mod delete;
pub(super) mod exec;
pub(super) mod kill;
pub(super) mod pause;
pub(super) mod restore;
pub(super) mod run;
pub(super) mod start;
pub(super) mod update;
pub(super) mod wait;
