//! How husk ends.

use clap::error::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

/// An end that is worth a number.
pub(crate) enum Exit {
    /// 0: done.
    Success,
    /// 1: an error, which has been printed.
    Failed,
    /// What the container's program ended with; 128 and the signal that killed it.
    Program(ExitStatus),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Success => Self::SUCCESS,
            Exit::Failed => Self::FAILURE,
            Exit::Program(status) => {
                let killed = status.signal().map(|signal| 128 + signal);
                let code = status.code().or(killed).and_then(|code| u8::try_from(code).ok());
                code.map_or(Self::FAILURE, Self::from)
            }
        }
    }
}

/// 3 for an unknown command, as runc has it, and 1 for anything else that cannot be understood.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    // Tolerated: if nobody reads it, the code still says it.
    error.print().unwrap_or(());
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        ErrorKind::InvalidSubcommand => ExitCode::from(3),
        _ => ExitCode::FAILURE,
    }
}
