//! How husk ends.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

/// An end that is worth a number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Exit {
    /// 0: done.
    Success,
    /// 1: an error, which has been printed; arguments that cannot be understood are one.
    Failed,
    /// 3: an unknown command, as runc has it.
    UnknownCommand,
    /// 255: an `exec` that came to no process. Anything else is the code of one.
    NoProcess,
    /// What the container's program ended with; 128 and the signal that killed it.
    Program(ExitStatus),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Success => Self::SUCCESS,
            Exit::Failed => Self::FAILURE,
            Exit::UnknownCommand => Self::from(3),
            Exit::NoProcess => Self::from(255),
            Exit::Program(status) => number(status).map_or(Self::FAILURE, Self::from),
        }
    }
}

/// The number that says how a program ended: its code, or 128 and its signal.
pub(crate) fn number(status: ExitStatus) -> Option<u8> {
    let killed = status.signal().map(|signal| 128 + signal);
    status.code().or(killed).and_then(|number| u8::try_from(number).ok())
}
