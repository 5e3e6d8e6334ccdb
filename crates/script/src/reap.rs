//! The first process of a pid namespace, when the program is the second: it is there so that the program is
//! not the first, for whom signals without a handler do nothing and whom every orphan falls to.
//!
//! It stays in the parent's memory and does nothing but wait. Nobody in the namespace can kill it (the kernel
//! keeps signals from the first process there). It must have a capability that the program will not have, or else
//! be undumpable, or who is in the namespace could look through it into that memory (security/commoncap.c,
//! `cap_ptrace_access_check`).

use crate::registers::{Registers, close_others};
use crate::report::{self, Request};
use crate::sys::clone::{InChild, Waiter};
use crate::sys::process::{Ended, exit_group, kill, kill_group, wait4_any_nohang};
use crate::sys::signal::{Signal, SignalSet, rt_sigwait};
use crate::sys::{Errno, Fd, Pid, Result, clone, file};
use crate::{Journal, SETUP_FAILED, Script, go_on};
use core::sync::atomic::Ordering;

/// Goes on in the second process, and returns in the first only if it cannot wait for the second. Signals are
/// blocked, so that none of them is lost on a process that has no handlers.
pub(crate) fn clone_and_reap(child: &InChild, script: &Script<'_>) -> Result {
    match clone::fork_on(child)? {
        Some(program) => wait_for(child, script, program),
        None => Ok(()),
    }
}

/// The same without a copy of the memory. Returns only if there is no second process.
pub(crate) fn vfork_and_reap(child: &InChild, script: &Script<'_>, registers: &mut Registers) -> Errno {
    let next = usize::try_from(script.journal.step()).map_or(usize::MAX, |step| step.saturating_add(1));
    let in_use = script.journal.in_use_too();
    in_use.store(1, Ordering::Release);
    let errno = clone::vfork(child, in_use, script, || go_on(child, script, next, registers));
    in_use.store(0, Ordering::Release);
    errno
}

impl Waiter for Script<'_> {
    /// Where the first process goes on when the second has become its program.
    fn go_on(&self, child: &InChild, program: Option<Pid>) -> ! {
        let waited = program.ok_or(Errno::CHILD).and_then(|program| wait_for(child, self, program));
        waited.unwrap_or_else(|errno| self.journal.fail(errno));
        exit_group(SETUP_FAILED)
    }
}

/// Waits for the program, and for what becomes its child, and ends with it.
fn wait_for(child: &InChild, script: &Script<'_>, program: Pid) -> Result {
    // Who reads what the program writes must not have to wait for us.
    close_others(child, Fd::STDIN, None, script.channel)?;
    loop {
        match reap(child, Some(program), script.journal)? {
            Left::Program | Left::Nobody => break,
            Left::Stopped if script.channel.is_some() => report::request(script.channel, Request::Stopped)?,
            Left::Stopped => {}
            Left::Some => match rt_sigwait(SignalSet::FULL)? {
                Signal::CHLD => {}
                signal => pass_on(program, signal)?,
            },
        }
    }
    // Without a channel nobody wants to know.
    if let Some(channel) = script.channel {
        if reap(child, None, script.journal)? == Left::Some {
            report::request(script.channel, Request::Leftovers)?;
        }
        // By the kernel it is closed only when that has taken down what is mounted, for which it waits.
        file::close(child, channel);
    }
    // What is left ends now: it is killed by the kernel, which waits for it.
    exit_group(0)
}

/// What a look at the children found.
#[derive(PartialEq, Eq)]
enum Left {
    /// The program has ended.
    Program,
    /// The program has stopped.
    Stopped,
    /// Nobody is left.
    Nobody,
    /// Somebody runs.
    Some,
}

/// Takes the status of every child that has ended, until it is the program's.
fn reap(child: &InChild, program: Option<Pid>, journal: &Journal) -> Result<Left> {
    loop {
        match wait4_any_nohang(child) {
            Ok(Some(ended)) if ended.has_stopped() => {
                if Some(ended.pid) == program {
                    return Ok(Left::Stopped);
                }
            }
            Ok(Some(Ended { pid, status, usage })) if Some(pid) == program => {
                journal.end(status, usage);
                return Ok(Left::Program);
            }
            Ok(Some(_)) => {}
            Ok(None) => return Ok(Left::Some),
            Err(Errno::CHILD) => return Ok(Left::Nobody),
            Err(errno) => return Err(errno),
        }
    }
}

/// To all that would get it from a terminal. Before it leads a group of its own the program gets it alone; if
/// it has ended it is about to be waited for.
fn pass_on(program: Pid, signal: Signal) -> Result {
    match kill_group(program, signal) {
        Err(Errno::SRCH) => match kill(program, signal) {
            Err(Errno::SRCH) => Ok(()),
            passed => passed,
        },
        passed => passed,
    }
}
