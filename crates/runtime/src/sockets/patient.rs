//! Connections to other programs: the receiver of a terminal or of a pidfd, a seccomp agent.
//!
//! The other program may be slow, stopped, or hostile. Connecting and sending block no longer than [`PATIENCE`], and
//! a termination signal interrupts them.

use crate::error::Error;
use crate::interrupt::{Interrupt, WaitOutcome};
use husk_listing::Cause;
use husk_script::sys::Errno;
use rustix::event::PollFlags;
use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, sendmsg, socket_with,
};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long another program may block husk.
const PATIENCE: Duration = Duration::from_secs(10);

/// The interval of retries when the queue of connections is full, which cannot be polled.
const PAUSE: Duration = Duration::from_millis(20);

/// A connection to a program that listens at a path.
pub(crate) struct PeerSocket {
    socket: OwnedFd,
    path: PathBuf,
}

impl PeerSocket {
    /// Connects. Error messages begin with `act`.
    pub(crate) fn connect(act: &'static str, path: &Path, interrupt: &Interrupt) -> Result<Self, Error> {
        let failed = |reason: Cause| Error::file(act, path, reason);
        let address = SocketAddrUnix::new(path).map_err(|errno| failed(errno.into()))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let socket = socket.map_err(|errno| failed(errno.into()))?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match connect(&socket, &address) {
                Ok(()) => return Ok(Self { socket, path: path.to_owned() }),
                Err(Errno::INTR) => {}
                // The queue of connections is full (net/unix/af_unix.c, `unix_stream_connect`).
                Err(Errno::AGAIN) if Instant::now() < deadline => interrupt.pause(PAUSE)?,
                Err(Errno::AGAIN) => return Err(failed(too_long("no connection was accepted"))),
                Err(errno) => return Err(failed(errno.into())),
            }
        }
    }

    /// Sends these bytes, and a descriptor with the first of them. Error messages begin with `act`.
    pub(crate) fn send(
        &self,
        act: &'static str,
        bytes: &[u8],
        fd: impl AsFd,
        interrupt: &Interrupt,
    ) -> Result<(), Error> {
        let failed = |reason: Cause| Error::file(act, &self.path, reason);
        let deadline = Instant::now() + PATIENCE;
        let (mut rest, mut fd) = (bytes, Some(fd.as_fd()));
        while !rest.is_empty() {
            match retry_on_intr(|| send_now(&self.socket, rest, fd)) {
                Ok(sent) => {
                    rest = rest.get(sent..).unwrap_or_default();
                    fd = None;
                }
                Err(Errno::AGAIN) => {
                    let waited = interrupt.wait(self.socket.as_fd(), PollFlags::OUT, Some(deadline))?;
                    if waited == WaitOutcome::TooLong {
                        return Err(failed(too_long("no data was read")));
                    }
                }
                Err(errno) => return Err(failed(errno.into())),
            }
        }
        Ok(())
    }
}

fn too_long(what: &str) -> Cause {
    Cause::Phrase(format!("{what} within {} seconds", PATIENCE.as_secs()))
}

/// Sends as many of the bytes as there is room for, without blocking.
fn send_now(socket: &OwnedFd, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = fd.as_slice();
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::NOBUFS);
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)
}
