//! `run`: a container from its beginning to its end, in the foreground.

use crate::create::{self, Creation, Request, explain, launch};
use crate::error::Error;
use crate::serve::{Arrival, serve};
use crate::store::Store;
use husk_bundle::Warning;
use husk_plan::Start;
use husk_spawn::sys::Errno;
use husk_spawn::sys::signal::{rt_sigaction_default, rt_sigprocmask, rt_sigwait};
use husk_spawn::{Child, Signal, SignalSet};
use std::process::ExitStatus;

/// Creates a container, starts it, passes signals on to it, waits for its end and deletes it. `warn`
/// hears what is carried out otherwise than written, before the program begins.
///
/// # Errors
///
/// As `create` and `start`.
pub fn run(store: &Store, request: &Request, warn: impl FnOnce(&[Warning])) -> Result<ExitStatus, Error> {
    let timings = &request.timings;
    timings.begin("load config.json");
    let (container, warnings) = husk_bundle::load(&request.bundle)?;
    warn(&warnings);
    timings.begin("reserve the name");
    // Never committed: when it is dropped, at the end or on the way, nothing of it is left.
    let creation = Creation::begin(store, &request.id)?;
    let mut record = create::record(request, &container);
    creation.entry.write(&record)?;
    let signals = hold_signals()?;
    let mut launched = launch(&container, &request.call(Start::AtOnce)?, timings)?;
    timings.begin("write it down");
    record.process = create::process(&launched.child);
    creation.entry.write(&record)?;
    create::write_pid(request, &launched.child)?;
    // A child that failed before asks nothing; the wait says at what.
    if serve(&mut launched.child, &container, &record)? == Arrival::Ready {
        launched.child.go_on()?;
    }
    if timings.are_wanted() {
        timings.begin("wait for exec");
        launched.child.wait_for_exec().map_err(|error| explain(error, &launched.plan))?;
        timings.end();
        timings.add(&mut launched);
    }
    supervise(&mut launched.child, signals).map_err(|error| explain(error, &launched.plan))
}

/// What is not the container's: news of sockets, the size of a terminal that it does not have, and
/// faults, which are of our own making.
const OURS: [Signal; 8] = [
    Signal::URG,
    Signal::WINCH,
    Signal::SEGV,
    Signal::BUS,
    Signal::FPE,
    Signal::ILL,
    Signal::TRAP,
    Signal::SYS,
];

/// Keeps back all signals that are the container's, and the one that tells of its end, before there is
/// a container, so that none is lost in its first instant.
fn hold_signals() -> Result<SignalSet, Error> {
    let set = OURS.into_iter().fold(SignalSet::FULL, SignalSet::without);
    // If our caller ignores the ends of children, the kernel tells us of none.
    rt_sigaction_default(Signal::CHLD)
        .and_then(|()| rt_sigprocmask(set))
        .map_err(|errno| Error::kernel("hold signals", errno))?;
    Ok(set)
}

/// Passes signals on until the container's process ends.
fn supervise(child: &mut Child, signals: SignalSet) -> Result<ExitStatus, husk_spawn::Error> {
    loop {
        match rt_sigwait(signals) {
            Ok(Signal::CHLD) => {
                if let Some(status) = child.try_wait()? {
                    return Ok(status);
                }
            }
            Ok(signal) => child.signal(signal)?,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(husk_spawn::Error::new("wait for signals", errno)),
        }
    }
}
