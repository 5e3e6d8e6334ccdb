//! Runs the first process of a pid namespace when the program is the second. If the program were the first, the kernel
//! would ignore signals for which it has no handler. It would also be the parent of every orphan.
//!
//! This process stays in the parent's memory and only waits. No process in the namespace can kill it, because the
//! kernel keeps signals from the first process there. It must be undumpable or have a capability that the program
//! lacks. Otherwise processes in the namespace could inspect the parent's memory through it (security/commoncap.c,
//! `cap_ptrace_access_check`).

use crate::registers::{Registers, close_others};
use crate::report::{self, Request};
use crate::sys::clone::{InChild, Waiter};
use crate::sys::process::{Ended, exit_group, kill, kill_group, wait4_any_nohang};
use crate::sys::signal::{Signal, SignalSet, rt_sigwait};
use crate::sys::{Errno, Fd, Pid, Result, clone, file};
use crate::{Journal, SETUP_FAILED, Script, Step, go_on};
use core::ffi::CStr;
use core::sync::atomic::Ordering;

/// Returns in the second process, and in the first only if it cannot wait for the second. Signals must be blocked: the
/// first process has no handlers and would lose them.
pub(crate) fn clone_and_reap(child: &InChild, script: &Script<'_>) -> Result {
    match clone::fork_on(child)? {
        Some(program) => wait_for(child, script, program),
        None => Ok(()),
    }
}

/// Like `clone_and_reap`, without a copy of the memory. Returns only if the second process could not be created.
pub(crate) fn vfork_and_reap(child: &InChild, script: &Script<'_>, registers: &mut Registers) -> Errno {
    let next = usize::try_from(script.journal.step()).map_or(usize::MAX, |step| step.saturating_add(1));
    let in_use = script.journal.in_use_too();
    in_use.store(1, Ordering::Release);
    let errno = clone::vfork(child, in_use, script, || go_on(child, script, next, registers));
    in_use.store(0, Ordering::Release);
    errno
}

impl Waiter for Script<'_> {
    /// Continues the first process after the second has execed or exited.
    fn go_on(&self, child: &InChild, program: Option<Pid>) -> ! {
        let waited = program.ok_or(Errno::CHILD).and_then(|program| wait_for(child, self, program));
        waited.unwrap_or_else(|errno| self.journal.fail(errno));
        exit_group(SETUP_FAILED)
    }
}

/// Waits for the program, reaps all other children, and exits when the program has ended.
fn wait_for(child: &InChild, script: &Script<'_>, program: Pid) -> Result {
    // A reader of the program's output sees its end only when this process has closed it too.
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
    let has_failed = script.journal.ended().is_none_or(|(status, _)| status != 0);
    // An error means that there is nothing to report.
    if has_failed && space(script).is_some_and(|path| file::is_full(path) == Ok(true)) {
        script.journal.fill();
    }
    // Without a channel the parent cannot be asked.
    if let Some(channel) = script.channel {
        if reap(child, None, script.journal)? == Left::Some {
            report::request(script.channel, Request::RemainingProcesses)?;
        }
        // At exit the kernel would close it only after it has torn down the mount namespace, and it waits for that.
        file::close(child, channel);
    }
    // The kernel kills the remaining processes and waits for them.
    exit_group(0)
}

/// Returns the directory whose file system the program may fill.
fn space<'a>(script: &Script<'a>) -> Option<&'a CStr> {
    script.steps.iter().find_map(|step| match step {
        Step::CloneAndReap { space } | Step::VforkAndReap { space } => *space,
        _ => None,
    })
}

/// The result of a look at the children.
#[derive(PartialEq, Eq)]
enum Left {
    /// The program has ended.
    Program,
    /// The program has stopped.
    Stopped,
    /// No child is left.
    Nobody,
    /// A child is still running.
    Some,
}

/// Reaps every child that has ended, until it reaps the program.
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

/// Sends the signal to the processes that would get it from a terminal. A program that does not lead its own process
/// group yet gets it alone. A program that has ended is about to be reaped.
fn pass_on(program: Pid, signal: Signal) -> Result {
    match kill_group(program, signal) {
        Err(Errno::SRCH) => match kill(program, signal) {
            Err(Errno::SRCH) => Ok(()),
            passed => passed,
        },
        passed => passed,
    }
}
