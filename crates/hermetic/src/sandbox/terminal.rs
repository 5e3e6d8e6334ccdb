//! Job control on the caller's terminal: the program gets it as a job gets it from a shell.
//!
//! The program stays in the caller's session. Another session could not have this terminal. With a new terminal in
//! between we would have to copy every key, including keys that are meant for others. In the caller's session the
//! program leads a process group, so its signals to the group stay inside. The seccomp filter refuses calls that type
//! into the terminal.

use crate::plan::layers::Streams;
use husk_script::sys::tolerate;
use rustix::process::{Signal, getpgrp, kill_current_process_group};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};
use std::cell::Cell;

/// The caller's terminal, with its settings from before the program started.
pub(crate) struct CallerTerminal {
    before: Termios,
    is_foreground: Cell<bool>,
}

impl CallerTerminal {
    /// Returns standard input if it is our session's terminal. The program starts in the foreground if we are there and
    /// standard output is a terminal. Otherwise it gets the foreground when it reads, because a pager on standard
    /// output may be reading the keys.
    pub(crate) fn of_caller() -> Option<Self> {
        let before = tcgetattr(stdin()).ok().filter(|_| tcgetpgrp(stdin()).is_ok())?;
        Some(Self { before, is_foreground: Cell::new(is_ours() && isatty(stdout())) })
    }

    /// Returns the program's standard streams.
    pub(crate) fn streams(&self) -> Streams {
        if self.is_foreground.get() { Streams::ForegroundTerminal } else { Streams::Terminal }
    }

    /// Stops our whole job because the program has stopped. Once we are continued, the program gets the foreground if
    /// we have it.
    ///
    /// A background program stops when it reads. If we are in the foreground, we need not stop: it only needs the
    /// terminal.
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

    /// Takes the foreground back and restores the terminal's settings. Returns whether the program had the foreground.
    pub(crate) fn end(self) -> bool {
        let was_foreground = self.take_back();
        if was_foreground {
            tolerate(tcsetattr(stdin(), OptionalActions::Now, &self.before), "the terminal may be gone");
        }
        was_foreground
    }

    /// Puts our group into the foreground if the program's was there. Blocking SIGTTOU makes this possible from the
    /// background.
    fn take_back(&self) -> bool {
        // An error is ignored: the terminal may be gone.
        self.is_foreground.replace(false) && tcsetpgrp(stdin(), getpgrp()).is_ok()
    }
}

fn is_ours() -> bool {
    tcgetpgrp(stdin()).is_ok_and(|front| front == getpgrp())
}
