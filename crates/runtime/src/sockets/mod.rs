//! Sockets with somebody else at the other end: a terminal's receiver, a seccomp agent, an init that says when it is
//! ready.

pub(crate) mod listener;
pub(crate) mod notify;
pub(crate) mod patient;
pub(crate) mod pidfd;
