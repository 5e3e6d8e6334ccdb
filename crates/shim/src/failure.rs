//! Errors as containerd's clients see them: a code of gRPC and a message.

use crate::wire::ttrpc::Status;
use serde::{Deserialize, Serialize};

/// The codes that containerd's errors map to (github.com/containerd/errdefs).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Code {
    Unknown = 2,
    InvalidArgument = 3,
    NotFound = 5,
    AlreadyExists = 6,
    FailedPrecondition = 9,
    Unimplemented = 12,
    Unavailable = 14,
}

/// The error of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        Self { code: failure.code as i32, message: failure.message }
    }
}
