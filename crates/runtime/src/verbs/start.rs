//! `start`: lets the waiting process of a container execute its program.

use crate::cgroups;
use crate::child::hooks;
use crate::child::launch::died_before_program;
use crate::error::Error;
use crate::inspect::state::{self as status, Status};
use crate::sockets::notify::{ListenUntil, Proxy};
use crate::store::process::{self, Stage};
use crate::store::record::Record;
use crate::store::{Entry, Store};
use crate::verbs::delete;
use husk_bundle::Warning;
use husk_listing::Cause;
use husk_script::report::{Failure, MOST_WORDS};
use husk_script::sys::Errno;
use husk_script::sys::tolerate;
use log::debug;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::process::{PidfdFlags, pidfd_open};
use std::io::{self, Read};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

/// Starts a created container. Returns when its program has begun. Calls `warn` if `NOTIFY_SOCKET` cannot be reached,
/// and with hooks that failed after the container's end.
///
/// # Errors
///
/// If the container is not created, or a step between waiting and the program fails.
pub fn start(store: &Store, id: &str, mut warn: impl FnMut(&[Warning])) -> Result<(), Error> {
    let entry = store.entry(id)?;
    // A concurrent `start` waits here, and then finds the container running.
    entry.lock()?;
    let record = entry.read()?;
    let process = match (status::of(&entry, &record)?, record.process) {
        (Status::Created, Some(process)) => process,
        (Status::Running, _) => return Err(Error::State("cannot start an already running container")),
        (Status::Paused, _) => return Err(Error::State("cannot start a paused container")),
        (Status::Stopped, _) => return Err(Error::State("cannot start a container that has stopped")),
        _ => return Err(Error::State("cannot start a container that is not created")),
    };
    let pid = process.pid().ok_or(Error::State("container not running"))?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())
        .map_err(|errno| Error::kernel("open the container's process", errno))?;
    // Opens the socket before the program begins, so that the program finds it.
    let proxy = Proxy::open(&entry, &mut warn)?;
    let socket = entry.socket();
    let mut child = UnixStream::connect(&socket).map_err(|reason| match reason.kind() {
        // The process is gone, or another `start` was first.
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
            Error::State("cannot start a container that has stopped")
        }
        _ => Error::file("connect", socket, reason),
    })?;

    // Wakes on a message from the child, the end of the connection, or the child's death.
    let mut events = [PollFd::new(&child, PollFlags::IN), PollFd::new(&pidfd, PollFlags::IN)];
    retry_on_intr(|| poll(&mut events, None))
        .map_err(|errno| Error::kernel("wait for the program", errno))?;
    let mut done = None;
    loop {
        let mut bytes = [0; Failure::SIZE];
        match child.read_exact(&mut bytes) {
            Ok(()) => match Failure::from_bytes(bytes) {
                Failure { step, errno: 0 } => done = Some(step),
                failure => return Err(failed(failure, &mut child, &record, &pidfd)),
            },
            // The connection was closed by exec or by the child's death.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(reason) => return Err(Error::kernel("wait for the program", reason)),
        }
    }
    // The child may also have died while a hook ran.
    let mut hooks = record.after_start.iter().filter(|step| step.hook.is_some());
    if let Some(hook) = hooks.find(|hook| done.is_none_or(|done| hook.step > done)) {
        process::wait(&pidfd)?;
        return Err(Error::step(hook.origin(), format!("{}: the container's process has died", hook.line)));
    }
    // Exec clears the flag that `stage` reads before it closes the connection (fs/exec.c, `begin_new_exec`).
    if matches!(process.stage()?, Stage::BeforeExec | Stage::Ended { before_exec: true }) {
        process::wait(&pidfd)?;
        return Err(died_before_program(process.end()));
    }
    debug!("init: closing the pipe to signal completion: {} has begun", process.pid);
    entry.remove_socket()?;
    if !record.poststart.is_empty() {
        poststart(&entry, &record, &pidfd, warn)?;
    }
    // Releases the lock: other commands may use the container while the proxy runs.
    drop(entry);
    match proxy {
        Some(proxy) => proxy.run(pidfd.as_fd(), process.pid.unsigned_abs(), ListenUntil::Ready),
        None => Ok(()),
    }
}

/// Reads what the child reports of a failed step.
fn failed(failure: Failure, child: &mut UnixStream, record: &Record, pidfd: &OwnedFd) -> Error {
    let reason = Cause::from(Errno::from_raw_os_error(failure.errno));
    let mut words = Vec::new();
    // Tolerated: the failure is known without the output of a hook.
    child.take(MOST_WORDS as u64).read_to_end(&mut words).unwrap_or(0);
    // The child closes its end of the connection before it ends. Waiting makes the container's status `stopped`.
    if let Err(error) = process::wait(pidfd) {
        return error;
    }
    let step = record.after_start.iter().find(|step| step.step == failure.step);
    let (origin, line) =
        step.map_or_else(|| ("process".into(), "start"), |step| (step.origin(), step.line.as_str()));
    let errno = Errno::from_raw_os_error(failure.errno);
    let meaning = husk_plan::not_begun(errno).filter(|_| origin.field() == "process.args");
    let meaning = meaning.map(|meaning| format!(": {meaning}")).unwrap_or_default();
    Error::step(origin, hooks::with_words(format!("{line}: {reason}{meaning}"), &words))
}

/// Runs the poststart hooks. The program has begun, and may have ended. "If any `poststart` hook fails, the runtime
/// MUST generate an error, stop the container, and continue the lifecycle" with the container's destruction and its
/// poststop hooks (runtime.md, "Lifecycle").
fn poststart(
    entry: &Entry,
    record: &Record,
    pidfd: &OwnedFd,
    warn: impl FnMut(&[Warning]),
) -> Result<(), Error> {
    let status = status::of(entry, record)?;
    let pid = record.process.filter(|_| status == Status::Running).map(|process| process.pid.unsigned_abs());
    let failed = match hooks::poststart(record, &status.to_string(), pid, None) {
        Ok(()) => return Ok(()),
        Err(failed) => failed,
    };
    process::end(pidfd)?;
    let removed = cgroups::kill_rest(record).and_then(|()| delete::forget(entry, record, warn));
    tolerate(removed, "the hook's failure is reported, and `delete` finishes this");
    Err(failed)
}
