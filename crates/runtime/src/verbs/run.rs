//! `run`: a container is created and started in one go, and watched to its end unless it is let go.

use crate::cgroups::ChildCgroup;
use crate::cgroups::resctrl;
use crate::child::hooks;
use crate::child::launch::{Launched, launch};
use crate::child::serve::Arrival;
use crate::child::supervise::{Orphans, Signals, supervise};
use crate::child::terminal::{Console, Stay};
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::sockets::notify::{self, Proxy, Until};
use crate::sockets::pidfd::Watcher;
use crate::store::Store;
use crate::store::record::Record;
use crate::verbs::create::{self, CreateRequest, Creation};
use husk_bundle::container::NamespaceKind;
use husk_bundle::{Container, Field, Warning};
use husk_plan::Start;
use husk_script::sys::tolerate;
use log::{Level, log_enabled};
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::thread::{self, JoinHandle};

/// How a container is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// We stay until its process ends.
    Foreground(Foreground),
    /// It is left alone once its program has begun.
    Detached,
}

/// How a container is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreground {
    /// What becomes of it in the end.
    pub afterwards: Afterwards,
    /// Who waits for the processes that it leaves behind.
    pub orphans: Orphans,
}

/// What becomes of a container that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Afterwards {
    /// Nothing is left of it.
    Delete,
    /// It is known as stopped.
    Keep,
}

/// Creates a container and starts it. In the foreground it passes signals on, copies what goes over the
/// terminal, waits for the end, deletes the container and returns how it ended. `warn` hears what is carried
/// out otherwise than written, before the program begins, and of hooks that failed after its end.
///
/// # Errors
///
/// As `create` and `start`. Nothing is then left of the container.
pub fn run(
    store: &Store,
    request: &CreateRequest,
    how: Run,
    mut warn: impl FnMut(&[Warning]),
) -> Result<Option<ExitStatus>, Error> {
    let timings = &request.timings;
    timings.begin("load config.json");
    let (mut container, warnings) = husk_bundle::load(&request.bundle, request.config.as_deref())?;
    warn(&warnings);
    // Before there is anything that a signal could have us leave behind, and before anybody keeps us waiting.
    let (signals, interrupt) = match how {
        Run::Detached => (None, Interrupt::hold()?),
        Run::Foreground(foreground) => {
            (Some(Signals::hold(orphans(&container, foreground))?), Interrupt::held())
        }
    };
    let stay = if how == Run::Detached { Stay::Detached } else { Stay::Foreground };
    let mut console = Console::of(request.console_socket.as_deref(), &container, stay, &interrupt)?;
    let (option, annotation) = (request.pidfd_socket.as_deref(), container.pidfd_receiver.as_deref());
    let watcher = Watcher::of(option, annotation, &interrupt)?;
    timings.begin("reserve the name");
    // Unless it is committed nothing is left of it, at the end or on the way.
    let creation = Creation::begin(store, &request.id)?;
    let mut record = create::record(request, &container);
    let offered = notify::offer(&creation.entry, &mut container, &mut warn)
        .and_then(|()| Proxy::open(&creation.entry, &mut warn));
    let mut proxy = offered.map_err(|error| creation.entry.explain(error))?;
    timings.begin("make the cgroup");
    let launched = create::make_home(&container, request, &creation, &mut record, &mut warn)
        .and_then(|home| launch(&container, &request.invocation(Start::AtOnce)?, home, timings));
    let mut launched = launched.map_err(|error| creation.entry.explain(error))?;
    let begun = begin(&mut launched, &container, &mut console, request, &creation, &mut record, &interrupt);
    let begun = begun.and_then(|()| watcher.tell(&launched.child, &interrupt));
    warn(&launched.home.as_mut().map(ChildCgroup::take_warnings).unwrap_or_default());
    let ended = begun.and_then(|()| match &signals {
        None => launched.wait_for_exec(&interrupt).map(|()| None),
        Some(signals) => {
            // From here on a deleter ends the container's process, and not us.
            creation.entry.release()?;
            let listening = listen(proxy.take(), &launched)?;
            let ended = supervise(&mut launched.child, signals, console.relay());
            let ended = ended.map_err(|error| launched.explain(error))?;
            warn(&told(listening.map_or(Ok(()), |thread| thread.join().unwrap_or(Ok(())))));
            Ok(Some(ended))
        }
    });
    let ended = ended.map_err(|error| creation.entry.explain(error));
    match (&ended, how) {
        (Ok(_), Run::Detached) => {
            let pid = launched.child.id();
            warn(&told(proxy.map_or(Ok(()), |proxy| proxy.run(launched.child.as_fd(), pid, Until::Ready))));
            launched.child.let_go();
            creation.commit();
        }
        (Ok(status), Run::Foreground(Foreground { afterwards: Afterwards::Keep, .. })) => {
            record.ended = status.map(ExitStatus::into_raw);
            tolerate(creation.entry.write(&record), "'wait' then says that it does not know");
            creation.commit();
        }
        _ => {
            // Its process first, which an error may have left.
            drop(launched);
            // From here on another signal ends a detached `run`, whatever hooks do.
            drop(interrupt);
            creation.end(&record, warn);
        }
    }
    if how == Run::Detached { ended } else { as_ended_by_signal(ended) }
}

/// In the foreground a signal is the program's, and ends it although it has not begun.
pub(crate) fn as_ended_by_signal(
    ended: Result<Option<ExitStatus>, Error>,
) -> Result<Option<ExitStatus>, Error> {
    match ended {
        Err(Error::Interrupted(signal)) => Ok(Some(ExitStatus::from_raw(signal))),
        ended => ended,
    }
}

/// Lets the program begin, and tells who wants to know.
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
    // While the child is still at work, so that it costs no time; but while somebody else keeps it waiting, who looks
    // for the container is to find it on its way.
    if create::waits_for_others(container, console) {
        create::record_on_its_way(launched, creation, record)?;
    } else {
        record.process = Some(create::process(&launched.child)?);
        creation.entry.write(record)?;
    }
    let announced = record.cgroup.is_some();
    // A child that failed before asks nothing; the wait says at what.
    if launched.serve(container, record, console, interrupt)? == Arrival::Ready {
        // Its list may have gone on in another process, and its cgroup be a unit that there is now.
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

/// Tells on what the container says of itself, for as long as its process lives.
fn listen(proxy: Option<Proxy>, launched: &Launched) -> Result<Option<JoinHandle<Result<(), Error>>>, Error> {
    let Some(proxy) = proxy else { return Ok(None) };
    let process = launched.child.as_fd().try_clone_to_owned();
    let process = process.map_err(|reason| Error::Kernel { act: "watch the container", reason })?;
    // We are who is to be watched: when the container ends, so do we.
    Ok(Some(thread::spawn(move || proxy.run(process.as_fd(), std::process::id(), Until::End))))
}

/// A container runs whether or not somebody hears that it is ready.
fn told(told: Result<(), Error>) -> Vec<Warning> {
    let warning = |error: Error| Warning::new(Field::new("NOTIFY_SOCKET"), error.to_string());
    told.err().map(warning).into_iter().collect()
}

/// In a pid namespace what is left behind belongs to the first process there, and ends with it.
pub(crate) fn orphans(container: &Container, foreground: Foreground) -> Orphans {
    let has_pids = container.namespaces.iter().any(|namespace| namespace.kind == NamespaceKind::Pid);
    if has_pids { Orphans::Others } else { foreground.orphans }
}
