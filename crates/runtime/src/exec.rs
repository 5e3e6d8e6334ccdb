//! `exec`: one more process in a container that runs.

use crate::create::{command, explain, write_pid};
use crate::descriptors;
use crate::error::Error;
use crate::kill;
use crate::probe::probe_process;
use crate::run::{hold_signals, supervise};
use crate::status::{self, Status};
use crate::store::Store;
use crate::users::Users;
use bumpalo::Bump;
use husk_bundle::container::Process;
use husk_bundle::{Container, Warning};
use husk_plan::{Call, Target};
use husk_spawn::Namespaces;
use husk_spawn::sys::Fd;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

pub use husk_bundle::container::NoNewPrivileges;
pub use husk_bundle::exec::Changes;

/// What `exec` is asked.
#[derive(Clone, Debug)]
pub struct Request {
    /// The container's name.
    pub id: String,
    /// The process.
    pub program: Program,
    /// Where to write its pid.
    pub pid_file: Option<PathBuf>,
    /// Where somebody listens who is sent the terminal.
    pub console_socket: Option<PathBuf>,
    /// How many of the caller's descriptors, from 3 upwards, are passed on to the program.
    pub preserve_fds: u32,
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
    let users = record.process.map(|init| format!("/proc/{}/root", init.pid)).unwrap_or_default();
    let users = Users::below(Path::new(&users));
    container.process = Some(process(request, &container, &users, &mut warnings)?);
    warn(&warnings);
    let signals = (request.wait == Wait::Foreground).then(hold_signals).transpose()?;

    // Never freed: the child may read it for longer than this process lives.
    let memory: &'static Bump = Box::leak(Box::new(Bump::new()));
    let target = Target { init: Fd::of(&init), namespaces: Namespaces::from_bits(record.namespaces) };
    let plan =
        husk_plan::exec(&container, target, &probe_process(&container, &users), &request.call()?, memory)?;
    let explain = |error| explain(error, &plan);
    let mut child = command(&plan).spawn().map_err(explain)?;
    // It asks when all is ready. A child that failed before asks nothing; the wait says at what.
    if child.next_request()?.is_some() {
        write_pid(request.pid_file.as_deref(), &child)?;
        child.go_on()?;
    }
    match signals {
        Some(signals) => supervise(&mut child, signals).map(Some).map_err(explain),
        None => {
            child.wait_for_exec().map_err(explain)?;
            child.let_go();
            Ok(None)
        }
    }
}

impl Request {
    fn call(&self) -> Result<Call<'_>, Error> {
        if self.console_socket.is_some() {
            return Err(Error::State("--console-socket is not supported yet"));
        }
        let (listen_fds, preserve_fds) = (descriptors::listen_fds(), self.preserve_fds);
        descriptors::check(listen_fds, preserve_fds)?;
        Ok(Call { id: &self.id, listen_fds, preserve_fds, ..Call::default() })
    }
}

fn process(
    request: &Request,
    container: &Container,
    users: &Users,
    warnings: &mut Vec<Warning>,
) -> Result<Process, Error> {
    match &request.program {
        Program::File(path) => {
            let bytes = fs::read(path).map_err(|reason| Error::file("read", path, reason))?;
            let (process, more) = husk_bundle::exec::process(&bytes)?;
            warnings.extend(more);
            Ok(process)
        }
        Program::Changed { changes, user } => {
            let own =
                container.process.clone().ok_or(Error::State("the container has no process to change"))?;
            let mut changes = changes.clone();
            if let Some(user) = user {
                let identity = users.find(user)?;
                changes.user = Some((identity.uid, identity.gid));
                changes.additional_gids.extend(identity.groups);
            }
            Ok(changes.apply(own)?)
        }
    }
}
