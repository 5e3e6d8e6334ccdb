//! How husk ends.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

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
    /// 101: a test that failed, as libtest has it.
    Tests,
    /// 124: a program that a limit ended, as timeout(1) has it.
    Limit,
    /// 125: a `test` that came to no sandbox.
    NoSandbox,
    /// 126: a program that cannot be run.
    NoProgram,
    /// 127: a program that is not there.
    NotFound,
    /// What the container's program ended with; 128 and the signal that killed it.
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

/// The number that says how a program ended: its code, or 128 and its signal.
pub(crate) fn number(status: ExitStatus) -> Option<u8> {
    let killed = status.signal().map(|signal| 128 + signal);
    status.code().or(killed).and_then(|number| u8::try_from(number).ok())
}
