//! `run`: a container is created and started in one go, and watched to its end unless it is let go.

use crate::create::{self, Creation, Request, explain, launch};
use crate::error::Error;
use crate::serve::{Arrival, serve};
use crate::store::Store;
use crate::supervise::{Orphans, Signals, supervise};
use crate::terminal::{Console, Stay};
use husk_bundle::container::NamespaceKind;
use husk_bundle::{Container, Warning};
use husk_plan::Start;
use std::process::ExitStatus;

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
/// out otherwise than written, before the program begins.
///
/// # Errors
///
/// As `create` and `start`. Nothing is then left of the container.
pub fn run(
    store: &Store,
    request: &Request,
    how: Run,
    warn: impl FnOnce(&[Warning]),
) -> Result<Option<ExitStatus>, Error> {
    let timings = &request.timings;
    timings.begin("load config.json");
    let (container, warnings) = husk_bundle::load(&request.bundle)?;
    warn(&warnings);
    timings.begin("reserve the name");
    let stay = if how == Run::Detached { Stay::Detached } else { Stay::Foreground };
    let mut console = Console::of(request, &container, stay)?;
    // Unless it is committed nothing is left of it when this is dropped, at the end or on the way.
    let creation = Creation::begin(store, &request.id)?;
    let mut record = create::record(request, &container);
    creation.entry.write(&record)?;
    let watch = match how {
        Run::Detached => None,
        Run::Foreground(foreground) => Some((foreground, Signals::hold(orphans(&container, foreground))?)),
    };
    let mut launched = launch(&container, &request.call(Start::AtOnce)?, timings)?;
    timings.begin("write it down");
    record.process = create::process(&launched.child);
    creation.entry.write(&record)?;
    // A child that failed before asks nothing; the wait says at what.
    if serve(&mut launched.child, &container, &record, &mut console)? == Arrival::Ready {
        // Its list may have gone on in another process.
        if record.process.is_none_or(|process| process.pid.unsigned_abs() != launched.child.id()) {
            record.process = create::process(&launched.child);
            creation.entry.write(&record)?;
        }
        create::write_pid(request, &launched.child)?;
        launched.child.go_on()?;
    }
    if timings.are_wanted() || watch.is_none() {
        timings.begin("wait for exec");
        launched.child.wait_for_exec().map_err(|error| explain(error, &launched.plan))?;
        timings.end();
        timings.add(&mut launched);
    }
    let Some((foreground, signals)) = watch else {
        launched.child.let_go();
        creation.commit();
        return Ok(None);
    };
    let status = supervise(&mut launched.child, &signals, console.relay())
        .map_err(|error| explain(error, &launched.plan))?;
    if foreground.afterwards == Afterwards::Keep {
        creation.commit();
    }
    Ok(Some(status))
}

/// In a pid namespace what is left behind belongs to the first process there, and ends with it.
fn orphans(container: &Container, foreground: Foreground) -> Orphans {
    let has_pids = container.namespaces.iter().any(|namespace| namespace.kind == NamespaceKind::Pid);
    if has_pids { Orphans::Others } else { foreground.orphans }
}
