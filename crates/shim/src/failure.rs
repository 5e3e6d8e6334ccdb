//! Errors as containerd's clients see them: a code of gRPC and a message.

use crate::wire::ttrpc::Status;
use husk_runtime::Error;
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

impl Failure {
    /// Returns the error of `kill` in the words of containerd-shim-runc-v2, which containerd's clients know. A container
    /// that has ended is not found.
    pub(crate) fn of_kill(error: &Error) -> Self {
        match error {
            Error::State("container not running") => Self::new(Code::NotFound, "process already finished"),
            Error::Missing | Error::Deleted(_) => Self::new(Code::NotFound, "no such container"),
            error => Self::new(code(error), format!("unknown error after kill: {error}")),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(code(&error), error.to_string())
    }
}

fn code(error: &Error) -> Code {
    match error {
        Error::Exists => Code::AlreadyExists,
        Error::Missing | Error::Deleted(_) => Code::NotFound,
        Error::State(_) | Error::NotStopped { .. } => Code::FailedPrecondition,
        Error::Id(_)
        | Error::Bundle(_)
        | Error::Argument { .. }
        | Error::Identity { .. }
        | Error::TerminalMode { .. } => Code::InvalidArgument,
        _ => Code::Unknown,
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        Self { code: failure.code as i32, message: failure.message }
    }
}

#[cfg(test)]
mod tests {
    use super::{Code, Failure};
    use husk_runtime::Error;

    #[test]
    fn errors_of_the_runtime_get_codes() {
        let not_stopped = Error::NotStopped { id: "web-1".into(), status: "running" };
        for (error, code) in [
            (Error::Exists, Code::AlreadyExists),
            (Error::Missing, Code::NotFound),
            (Error::State("container not paused"), Code::FailedPrecondition),
            (not_stopped, Code::FailedPrecondition),
            (Error::Id("/".into()), Code::InvalidArgument),
            (Error::Criu("criu failed".into()), Code::Unknown),
        ] {
            let message = error.to_string();
            assert_eq!(Failure::from(error), Failure::new(code, message));
        }
    }

    #[test]
    fn ended_container_is_not_found_by_kill() {
        let failure = Failure::of_kill(&Error::State("container not running"));
        assert_eq!(failure, Failure::new(Code::NotFound, "process already finished"));
        assert_eq!(Failure::of_kill(&Error::Missing).message, "no such container");
    }
}
