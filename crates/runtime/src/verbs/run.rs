//! `run`: creates and starts a container, and supervises it until it ends unless it is detached.

use crate::cgroups::ChildCgroup;
use crate::cgroups::resctrl;
use crate::child::hooks;
use crate::child::launch::{Launched, launch};
use crate::child::serve::ChildReady;
use crate::child::supervise::{Orphans, Signals, supervise};
use crate::child::terminal::{Console, Stay};
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::sockets::notify::{self, ListenUntil, Proxy};
use crate::sockets::pidfd::Watcher;
use crate::store::Store;
use crate::store::record::Record;
use crate::verbs::create::{self, CreateRequest, Creation};
use husk_bundle::container::NamespaceKind;
use husk_bundle::{Container, Field, Warning};
use husk_plan::ProgramStart;
use husk_script::sys::tolerate;
use log::{Level, log_enabled};
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::thread::{self, JoinHandle};

/// How a container is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunMode {
    /// `run` waits until the container's process ends.
    Foreground(Foreground),
    /// `run` returns once the program has begun.
    Detached,
}

impl RunMode {
    pub(crate) fn stay(self) -> Stay {
        if self == Self::Detached { Stay::Detached } else { Stay::Foreground }
    }
}

/// How a container is supervised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreground {
    /// The action when the container ends.
    pub afterwards: AfterExit,
    /// The processes that are waited for besides the container's first one.
    pub orphans: Orphans,
}

/// The action on a container that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterExit {
    /// It is deleted.
    Delete,
    /// It is kept, and its status is `stopped`.
    Keep,
}

/// The state of the program when its verb returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executed {
    /// The verb waited for the program, which has ended.
    Ended(ExitStatus),
    /// The verb was detached, and the program's process has this pid.
    Detached(u32),
}

/// Creates a container and starts it. In the foreground it passes signals on, copies the terminal's input and output,
/// waits for the end, deletes the container and returns its exit status. Calls `warn` before the program begins, with
/// the parts of the configuration that are carried out differently than written. Calls it again with hooks that failed
/// after the container's end.
///
/// # Errors
///
/// As for `create` and `start`. Nothing is then left of the container.
pub fn run(
    store: &Store,
    request: &CreateRequest,
    how: RunMode,
    mut warn: impl FnMut(&[Warning]),
) -> Result<Executed, Error> {
    let timings = &request.timings;
    timings.begin("load config.json");
    let (mut container, warnings) = husk_bundle::load(&request.bundle, request.config.as_deref())?;
    warn(&warnings);
    // Holds signals back before anything is made that a signal could leave behind, and before anything waits for
    // another program.
    let (signals, interrupt) = hold_signals(how, &container)?;
    let mut console = Console::of(request.console_socket.as_deref(), &container, how.stay(), &interrupt)?;
    let (option, annotation) = (request.pidfd_socket.as_deref(), container.pidfd_receiver.as_deref());
    let watcher = Watcher::of(option, annotation, &interrupt)?;
    timings.begin("reserve the name");
    // If `creation` is dropped without being committed, it removes the container.
    let creation = Creation::begin(store, &request.id)?;
    let mut record = create::record(request, &container);
    let offered = notify::offer(&creation.entry, &mut container, &mut warn)
        .and_then(|()| Proxy::open(&creation.entry, &mut warn));
    let mut proxy = offered.map_err(|error| creation.entry.explain(error))?;
    timings.begin("make the cgroup");
    let launched = create::make_home(&container, request, &creation, &mut record, &mut warn)
        .and_then(|home| launch(&container, &request.invocation(ProgramStart::AtOnce)?, home, timings));
    let mut launched = launched.map_err(|error| creation.entry.explain(error))?;
    let begun = begin(&mut launched, &container, &mut console, request, &creation, &mut record, &interrupt);
    let begun = begun.and_then(|()| watcher.tell(&launched.child, &interrupt));
    warn(&launched.home.as_mut().map(ChildCgroup::take_warnings).unwrap_or_default());
    let ended = begun.and_then(|()| match &signals {
        None => launched.wait_for_exec(&interrupt).map(|()| Executed::Detached(launched.child.id())),
        Some(signals) => {
            // From here on a deleter ends the container's process instead of this one.
            creation.entry.release()?;
            let listening = listen(proxy.take(), &launched)?;
            let ended = supervise(&mut launched.child, signals, console.relay());
            let ended = ended.map_err(|error| launched.explain(error))?;
            warn(&told(listening.map_or(Ok(()), |thread| thread.join().unwrap_or(Ok(())))));
            Ok(Executed::Ended(ended))
        }
    });
    let ended = ended.map_err(|error| creation.entry.explain(error));
    match (&ended, how) {
        (Ok(_), RunMode::Detached) => {
            let pid = launched.child.id();
            warn(&told(
                proxy.map_or(Ok(()), |proxy| proxy.run(launched.child.as_fd(), pid, ListenUntil::Ready)),
            ));
            launched.child.let_go();
            creation.commit();
        }
        (
            Ok(Executed::Ended(status)),
            RunMode::Foreground(Foreground { afterwards: AfterExit::Keep, .. }),
        ) => {
            record.ended = Some(status.into_raw());
            tolerate(creation.entry.write(&record), "'wait' then says that it does not know");
            creation.commit();
        }
        _ => {
            // Ends the process first; after an error it may still run.
            drop(launched);
            // From here on another signal ends a detached `run`, even while hooks run.
            drop(interrupt);
            creation.end(&record, warn);
        }
    }
    if how == RunMode::Detached { ended } else { as_ended_by_signal(ended) }
}

/// Turns a signal that interrupted the verb into the program's exit status. In the foreground signals are meant for the
/// program, even before it has begun.
pub(crate) fn as_ended_by_signal(ended: Result<Executed, Error>) -> Result<Executed, Error> {
    match ended {
        Err(Error::Interrupted(signal)) => Ok(Executed::Ended(ExitStatus::from_raw(signal))),
        ended => ended,
    }
}

/// Records the process, writes its pid, lets the program begin, and runs the poststart hooks.
fn begin(
    launched: &mut Launched<'_>,
    container: &Container,
    console: &mut Console,
    request: &CreateRequest,
    creation: &Creation,
    record: &mut Record,
    interrupt: &Interrupt,
) -> Result<(), Error> {
    let timings = &request.timings;
    timings.begin("write it down");
    // Writes the record while the child is at work, which costs no time. If others may keep the child waiting, the
    // record says that the container is being created.
    if create::waits_for_others(container, console) {
        create::record_on_its_way(launched, creation, record)?;
    } else {
        record.process = Some(create::process(&launched.child)?);
        creation.entry.write(record)?;
    }
    let announced = record.cgroup.is_some();
    // A child that failed earlier requests nothing; waiting for it returns the error.
    if launched.serve(container, record, console, interrupt)? == ChildReady::Ready {
        // The steps may have continued in another process, and the cgroup may be a systemd unit that exists only now.
        let is_known =
            record.process.is_some_and(|process| process.pid.unsigned_abs() == launched.child.id());
        if !is_known || record.cgroup.is_some() != announced {
            record.process = Some(create::process(&launched.child)?);
            record.creating = None;
            creation.entry.write(record)?;
        }
        create::write_pid(request.pid_file.as_deref(), launched.child.id())?;
        resctrl::join(container, launched.child.id(), record, &creation.entry)?;
        launched.go_on()?;
    }
    if timings.are_wanted() || log_enabled!(Level::Debug) {
        timings.begin("wait for exec");
        launched.wait_for_exec(interrupt)?;
        timings.end();
        timings.add(&launched.plan, &launched.child.times());
    }
    if !record.poststart.is_empty() {
        launched.wait_for_exec(interrupt)?;
        hooks::poststart(record, "running", Some(launched.child.id()), Some(interrupt))?;
    }
    Ok(())
}

/// Forwards the container's readiness messages in a thread, for as long as its process lives.
fn listen(proxy: Option<Proxy>, launched: &Launched) -> Result<Option<JoinHandle<Result<(), Error>>>, Error> {
    let Some(proxy) = proxy else { return Ok(None) };
    let process = launched.child.as_fd().try_clone_to_owned();
    let process = process.map_err(|reason| Error::kernel("watch the container", reason))?;
    // Names this process as the main one, because it ends when the container does.
    Ok(Some(thread::spawn(move || proxy.run(process.as_fd(), std::process::id(), ListenUntil::End))))
}

/// Turns a failure to forward readiness into a warning: the container runs anyway.
fn told(told: Result<(), Error>) -> Vec<Warning> {
    let warning = |error: Error| Warning::new(Field::new("NOTIFY_SOCKET"), error.to_string());
    told.err().map(warning).into_iter().collect()
}

/// Holds signals, in the foreground for the container. Called before anything is made that a signal could leave behind,
/// and before anything waits for another program.
pub(crate) fn hold_signals(
    how: RunMode,
    container: &Container,
) -> Result<(Option<Signals>, Interrupt), Error> {
    let RunMode::Foreground(foreground) = how else { return Ok((None, Interrupt::hold()?)) };
    // In a pid namespace, orphans belong to its first process and end with it.
    let has_pids = container.namespaces.iter().any(|namespace| namespace.kind == NamespaceKind::Pid);
    let orphans = if has_pids { Orphans::Others } else { foreground.orphans };
    Ok((Some(Signals::hold(orphans)?), Interrupt::held()))
}
