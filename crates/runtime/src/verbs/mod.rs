//! The verbs that change a container, one per file.

pub mod checkpoint;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod end_creator;
pub mod exec;
pub(crate) mod kill;
pub(crate) mod pause;
pub mod restore;
pub(crate) mod run;
pub(crate) mod start;
pub(crate) mod update;

pub use checkpoint::checkpoint;
pub use exec::exec;
pub use restore::restore;
