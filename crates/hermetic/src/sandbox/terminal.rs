//! The caller's terminal, lent to the program as a shell lends it to a job.
//!
//! The program stays in the caller's session: another could not have this terminal, and with a new one in between
//! somebody would have to copy every key, and would take those that are for others. It leads a process group of its
//! own there, which no signal leaves; what could type into the terminal its filter refuses.

use crate::plan::layers::Streams;
use husk_script::sys::tolerate;
use rustix::process::{Signal, getpgrp, kill_current_process_group};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};
use std::cell::Cell;

/// The caller's terminal.
pub(crate) struct Terminal {
    before: Termios,
    is_foreground: Cell<bool>,
}

impl Terminal {
    /// Standard input, if it is the terminal of our session. It is lent from the beginning if we are in front of
    /// it, else when the program reads from it. Nor is it if standard output goes elsewhere: it may be a pager that
    /// reads the keys.
    pub(crate) fn of_caller() -> Option<Self> {
        let before = tcgetattr(stdin()).ok().filter(|_| tcgetpgrp(stdin()).is_ok())?;
        Some(Self { before, is_foreground: Cell::new(is_ours() && isatty(stdout())) })
    }

    /// What the program's standard streams are.
    pub(crate) fn streams(&self) -> Streams {
        if self.is_foreground.get() { Streams::ForegroundTerminal } else { Streams::Terminal }
    }

    /// The program has stopped: so do we, and all others of the caller's job, until somebody continues us. Then
    /// the terminal is the program's again, if it is ours.
    ///
    /// A program that has not got it stops when it reads; if it is ours, a terminal is all that it needs.
    pub(crate) fn stop(&self, program: Option<u32>) {
        let was_foreground = self.take_back();
        if was_foreground || !is_ours() {
            tolerate(kill_current_process_group(Signal::TSTP), "a member may always signal its group");
        }
        let program = program.and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(program) = program.filter(|_| is_ours()) {
            self.is_foreground.set(tcsetpgrp(stdin(), program).is_ok());
        }
    }

    /// Ends the loan; as it was is how the terminal is again. Whether it was lent until now.
    pub(crate) fn end(self) -> bool {
        let was_foreground = self.take_back();
        if was_foreground {
            tolerate(tcsetattr(stdin(), OptionalActions::Now, &self.before), "the terminal may be gone");
        }
        was_foreground
    }

    /// Our group comes to the front again, if it was the program's. We hold SIGTTOU back, which is for those who do
    /// so unasked.
    fn take_back(&self) -> bool {
        // Tolerated: a terminal that is gone is nobody's.
        self.is_foreground.replace(false) && tcsetpgrp(stdin(), getpgrp()).is_ok()
    }
}

fn is_ours() -> bool {
    tcgetpgrp(stdin()).is_ok_and(|front| front == getpgrp())
}
