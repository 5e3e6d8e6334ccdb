//! Sockets to other programs: receivers of terminals and pidfds, seccomp agents, and service managers.

pub(crate) mod listener;
pub(crate) mod notify;
pub(crate) mod patient;
pub(crate) mod pidfd;
