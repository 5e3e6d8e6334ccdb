//! Asks CRIU over a socket, in its own protocol, to save processes and restore them.
//!
//! `criu swrk 3` serves one request and ends. Before the answer it sends notifications, and waits for an answer to
//! each. It gets its options as fields of a message, never as part of a line that it would have to split. If CRIU
//! itself joins fields, [`external`] checks that they split again the same way.
//!
//! husk never kills a CRIU that saves a container, because the processes may be in a modified state. When husk closes
//! the socket, CRIU gives up and puts them back as they were.
//!
//! A CRIU that restores a container is killed if a signal ends husk: it may wait for a file for ever. The processes
//! that it has made end with the container's cgroup.

pub(crate) mod external;
pub(crate) mod failure;
mod images;
mod mapped;
pub(crate) mod protocol;
pub(crate) mod rootless;
mod settings;
pub(crate) mod streams;
mod wire;
mod words;

use crate::child::launch::enter;
use crate::error::Error;
use crate::host::namespaces::is_unprivileged;
use crate::interrupt::Interrupt;
use husk_script::sys::Errno;
use husk_script::sys::tolerate;
use husk_spawn::{Child, Command, Reason, Stdio, find_program};
use log::debug;
use protocol::{CriuRequest, Feature, Response};
use rustix::event::PollFlags;
use rustix::io::{IoSliceMut, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, Shutdown, SocketFlags,
    SocketType, recvmsg, send, shutdown, socketpair,
};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

pub(crate) use settings::{ANNOTATION, Directories, options};
pub use settings::{CgroupMode, Settings, Switch};
pub(crate) use wire::ProtobufMessage;

/// The oldest supported CRIU, 3.16 of 2021. It has all that husk uses for namespaces, freezers, notifications and
/// labels.
const OLDEST: (i32, &str) = (31_600, "3.16 or newer");

/// The oldest CRIU for users, of 2023. It is the first with `unprivileged`.
const OLDEST_ROOTLESS: (i32, &str) = (31_800, "3.18 or newer, without root,");

/// The largest answer that is accepted.
const MOST: usize = 40 << 10;

/// A running CRIU that serves husk.
pub(crate) struct Criu {
    process: Child,
    socket: OwnedFd,
}

/// The command that starts a CRIU, which the caller may extend.
pub(crate) struct CriuCommand {
    pub(crate) command: Command,
    socket: OwnedFd,
    /// Whether [`mapped`] opens files for it.
    is_observed: bool,
}

impl CriuCommand {
    pub(crate) const FIRST_FREE: i32 = 4;

    pub(crate) fn new() -> Result<Self, Error> {
        let failed = |errno| Error::kernel("make a socket for CRIU", errno);
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(failed)?;
        let program = find_program("criu").ok_or_else(missing)?;
        let mut command = Command::new(program);
        command.arg0("criu").arg("swrk").arg("3").fd(3, theirs);
        Ok(Self { command, socket: ours, is_observed: false })
    }

    /// Makes it start without husk's standard streams, in a session of its own that the terminal's keys do not
    /// signal.
    pub(crate) fn silent(mut self) -> Self {
        self.command.new_session();
        self.command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self
    }

    pub(crate) fn in_cgroup(mut self, directory: Option<BorrowedFd<'_>>) -> Result<Self, Error> {
        if let Some(directory) = directory {
            enter(&mut self.command, directory)?;
        }
        Ok(self)
    }

    pub(crate) fn start(self) -> Result<Criu, Error> {
        let failed = |error: husk_spawn::Error| match error.reason() {
            Reason::Errno(Errno::NOENT) if error.act() == "execve" => missing(),
            _ => Error::Spawn(error),
        };
        if !self.is_observed {
            return Ok(Criu { process: self.command.spawn_and_exec().map_err(failed)?, socket: self.socket });
        }
        let mut process = self.command.spawn().map_err(failed)?;
        mapped::serve(&mut process)?;
        process.wait_for_exec().map_err(failed)?;
        Ok(Criu { process, socket: self.socket })
    }
}

fn missing() -> Error {
    Error::Criu("criu was not found: install CRIU 3.16 or newer, and run 'criu check'".to_owned())
}

/// A notification from CRIU, which waits for an answer.
pub(crate) struct Notification {
    pub(crate) script: String,
    pub(crate) pid: Option<i32>,
    /// The descriptor that came with it, if any.
    pub(crate) fd: Option<OwnedFd>,
}

impl Criu {
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Sends the request, handles notifications until the answer arrives, and waits until CRIU has ended.
    ///
    /// A signal of `interrupt` ends the wait. It kills a CRIU that restores. One that saves puts the processes back as
    /// they were; a second signal ends the wait for that.
    pub(crate) fn serve(
        mut self,
        interrupt: Option<&Interrupt>,
        kind: CriuRequest,
        request: &ProtobufMessage,
        mut notified: impl FnMut(Notification) -> Result<(), Error>,
    ) -> Result<Response, Error> {
        let wait =
            |fd| interrupt.map_or(Ok(()), |interrupt| interrupt.wait(fd, PollFlags::IN, None).map(drop));
        let answer = self.send(request).and_then(|()| {
            loop {
                wait(self.socket.as_fd())?;
                if let Some(answer) = self.hear(kind, &mut notified)? {
                    return Ok(answer);
                }
            }
        });
        match (&answer, kind) {
            (Err(Error::Interrupted(_)), CriuRequest::Restore) => self.process.kill()?,
            (Err(Error::Interrupted(_)), _) => {
                self.hang_up();
                wait(self.process.as_fd())?;
            }
            _ => {}
        }
        self.end(kind, answer)
    }

    /// Waits until CRIU has ended. An error in `answer` takes precedence over its exit status.
    fn end(&mut self, kind: CriuRequest, answer: Result<Response, Error>) -> Result<Response, Error> {
        self.hang_up();
        let status = self.process.wait()?;
        let answer = answer?;
        // After a pre-dump CRIU waits for another request, and fails because none arrives.
        if status.success() || kind == CriuRequest::PreDump {
            return Ok(answer);
        }
        Err(Error::Criu(format!("criu failed: type {}: {status}", kind.name())))
    }

    /// Closes the connection, so that CRIU gives up at the next notification.
    fn hang_up(&self) {
        tolerate(shutdown(&self.socket, Shutdown::Both), "CRIU may have ended and closed its end");
    }

    /// Receives one message. Returns an answer; handles a notification and answers it.
    fn hear(
        &self,
        kind: CriuRequest,
        notified: &mut impl FnMut(Notification) -> Result<(), Error>,
    ) -> Result<Option<Response>, Error> {
        let (response, fd) = self.receive(kind)?;
        if !response.success {
            let Response { errno, message, .. } = response;
            let message = if message.is_empty() { message } else { format!(": {}", failure::line(&message)) };
            return Err(Error::Criu(format!("criu failed: type {} errno {errno}{message}", kind.name())));
        }
        if response.kind != Some(CriuRequest::Notify) {
            return Ok(Some(response));
        }
        debug!("notify: {}", failure::line(&response.script));
        notified(Notification { script: response.script, pid: response.pid, fd })?;
        self.send(&protocol::go_on())?;
        Ok(None)
    }

    fn send(&self, request: &ProtobufMessage) -> Result<(), Error> {
        retry_on_intr(|| send(&self.socket, request.as_bytes(), SendFlags::NOSIGNAL))
            .map(drop)
            .map_err(|errno| Error::kernel("tell CRIU", errno))
    }

    fn receive(&self, kind: CriuRequest) -> Result<(Response, Option<OwnedFd>), Error> {
        let mut bytes = vec![0; MOST];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut came = RecvAncillaryBuffer::new(&mut space);
        let received = retry_on_intr(|| {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            recvmsg(&self.socket, &mut parts, &mut came, RecvFlags::CMSG_CLOEXEC)
        });
        let length = received.map_err(|errno| Error::kernel("receive from CRIU", errno))?.bytes;
        let fd = came.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        if length == 0 {
            return Err(Error::Criu(format!(
                "criu failed: type {}: it ended without a response",
                kind.name()
            )));
        }
        let response = bytes.get(..length).filter(|_| length < MOST).and_then(Response::read);
        let response =
            response.ok_or_else(|| Error::Criu("criu failed: it sent an invalid response".to_owned()))?;
        Ok((response, fd))
    }
}

/// Starts a CRIU for one question and returns its answer.
fn question(kind: CriuRequest, request: &ProtobufMessage) -> Result<Response, Error> {
    CriuCommand::new()?.silent().start()?.serve(None, kind, request, |_| Ok(()))
}

/// Checks that CRIU is installed and not too old.
pub(crate) fn check() -> Result<(), Error> {
    too_old(version()?, is_unprivileged()).map_or(Ok(()), |why| Err(Error::Criu(why)))
}

/// Says why this version cannot be used, if it cannot.
pub(crate) fn too_old(version: i32, is_unprivileged: bool) -> Option<String> {
    let (oldest, words) = if is_unprivileged { OLDEST_ROOTLESS } else { OLDEST };
    (version < oldest).then(|| format!("CRIU {} is too old: {words} is needed", dotted(version)))
}

/// Writes a version as CRIU does, without the last part.
pub(crate) fn dotted(version: i32) -> String {
    format!("{}.{}", version / 10_000, version / 100 % 100)
}

/// Returns CRIU's version as one number: 31701 is 3.17.1.
pub(crate) fn version() -> Result<i32, Error> {
    Ok(question(CriuRequest::Version, &protocol::request(CriuRequest::Version, None))?.version)
}

/// Returns the first error that `criu check` prints, if it fails. It needs root.
pub(crate) fn problem() -> Option<String> {
    let said = Command::new(find_program("criu")?).arg("check").output();
    let said = match said {
        Ok(said) if said.status.success() => return None,
        Ok(said) => String::from_utf8_lossy(&said.stderr).into_owned(),
        Err(error) => return Some(error.to_string()),
    };
    let error = said.lines().find_map(|line| line.find("Error (").map(|start| &line[start..]));
    Some(failure::line(error.unwrap_or("it printed no reason")))
}

/// Checks that CRIU and the kernel support a feature.
pub(crate) fn need(feature: Feature) -> Result<(), Error> {
    let answer = question(CriuRequest::FeatureCheck, &protocol::feature_request(feature))?;
    if answer.features.contains(&(feature as u32)) {
        return Ok(());
    }
    // The wording of runc.
    Err(Error::Criu(format!("criu is missing features: [{feature:?}]")))
}
