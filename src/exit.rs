//! The exit codes of husk.

use husk_runtime::Executed;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// An outcome with its own exit code.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Exit {
    /// 0: success.
    Success,
    /// 1: an error, which has been printed, including unusable arguments.
    Failed,
    /// 3: an unknown command, as in runc.
    UnknownCommand,
    /// 255: an `exec` that started no process. All other codes are those of the process.
    NoProcess,
    /// 101: a test failed, as in libtest.
    Tests,
    /// 124: a limit ended the program, as in timeout(1).
    Limit,
    /// 125: a `test` that could not create its sandbox.
    NoSandbox,
    /// 126: the program cannot be run.
    NoProgram,
    /// 127: the program does not exist.
    NotFound,
    /// The exit status of the container's program; 128 plus the number of the signal that killed it.
    Program(ExitStatus),
}

impl From<Exit> for u8 {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Success => 0,
            Exit::Failed => 1,
            Exit::UnknownCommand => 3,
            Exit::NoProcess => 255,
            Exit::Tests => 101,
            Exit::Limit => 124,
            Exit::NoSandbox => 125,
            Exit::NoProgram => 126,
            Exit::NotFound => 127,
            Exit::Program(status) => number(status).unwrap_or(1),
        }
    }
}

impl From<Executed> for Exit {
    fn from(executed: Executed) -> Self {
        match executed {
            Executed::Ended(status) => Self::Program(status),
            Executed::Detached(_) => Self::Success,
        }
    }
}

/// Returns a program's exit code, or 128 plus its signal.
pub(crate) fn number(status: ExitStatus) -> Option<u8> {
    let killed = status.signal().map(|signal| 128 + signal);
    status.code().or(killed).and_then(|number| u8::try_from(number).ok())
}
