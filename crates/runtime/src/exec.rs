//! `exec`: one more process in a container that runs.

use crate::create::{Launched, explain};
use crate::error::Error;
use crate::kill;
use crate::probe::probe;
use crate::run::{hold_signals, supervise};
use crate::status::{self, Status};
use crate::store::{Entry, Store, write_whole};
use crate::users::Users;
use bumpalo::Bump;
use husk_bundle::container::Process;
use husk_bundle::exec::Changes;
use husk_bundle::{Container, Warning};
use husk_plan::{Call, Target};
use husk_spawn::sys::Fd;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

/// What `exec` is asked.
#[derive(Clone, Debug)]
pub struct Request {
    /// The container's name.
    pub id: String,
    /// The process.
    pub program: Program,
    /// Where to write its pid.
    pub pid_file: Option<PathBuf>,
    /// Whether to wait for its end.
    pub wait: Wait,
}

/// The process that an `exec` is to make.
#[derive(Clone, Debug)]
pub enum Program {
    /// As a file has it, in the form of a config.json's `process`.
    File(PathBuf),
    /// As the container's own, with these changes.
    Changed {
        /// The changes.
        changes: Changes,
        /// `USER[:GROUP]`, names or numbers of the container.
        user: Option<String>,
    },
}

/// Whether a command waits for the process that it made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Until its end, passing signals on.
    Foreground,
    /// Until it has begun.
    Detached,
}

/// Starts a process in a container; its status, if it was waited for. `warn` hears what is carried out
/// otherwise than written, before the program begins.
///
/// # Errors
///
/// If the container does not run, the process makes no sense, or a step fails.
pub fn exec(
    store: &Store,
    request: &Request,
    warn: impl FnOnce(&[Warning]),
) -> Result<Option<ExitStatus>, Error> {
    let entry = store.entry(&request.id)?;
    let record = entry.read()?;
    match status::of(&entry, &record) {
        Status::Created | Status::Running => {}
        Status::Stopped => return Err(Error::State("cannot exec in a stopped container")),
        Status::Creating => return Err(Error::State("cannot exec in a container that is not created yet")),
    }
    let init = record.process.and_then(kill::open).ok_or(Error::State("container not running"))?;
    let (mut container, mut warnings) = husk_bundle::load(&record.bundle)?;
    container.process = Some(process(request, &container, &mut warnings)?);
    warn(&warnings);
    let signals = (request.wait == Wait::Foreground).then(hold_signals).transpose()?;
    Ok(None)
}

fn process(request: &Request, container: &Container, warnings: &mut Vec<Warning>) -> Result<Process, Error> {
    match &request.program {
        Program::File(path) => {
            let bytes = fs::read(path).map_err(|reason| Error::file("read", path, reason))?;
            let (process, more) = husk_bundle::exec::process(&bytes)?;
            warnings.extend(more);
            Ok(process)
        }
        Program::Changed { changes, user } => {
            let own = container.process.clone().ok_or(Error::State("the container has no process to change"))?;
            let mut changes = changes.clone();
            if let Some(user) = user {
                let identity = Users::below(&container.rootfs).find(user)?;
                changes.user = Some((identity.uid, identity.gid));
                changes.additional_gids.extend(identity.groups);
            }
            Ok(changes.apply(own)?)
        }
    }
}
