//! The interfaces of cargo and libtest: running in place of a test binary, its arguments, and the output of a test's
//! process.

pub(crate) mod arguments;
pub(crate) mod cargo;
pub(crate) mod output;
