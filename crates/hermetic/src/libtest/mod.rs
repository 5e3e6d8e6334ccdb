//! What cargo and libtest say, and what they are asked: how a test binary is run in place of cargo, which arguments it
//! takes, and what a test's process writes.

pub(crate) mod cargo;
pub(crate) mod request;
pub(crate) mod said;
