//! Receives the terminal of a new process.

use husk_runtime::tolerate;
use rustix::fs::{AtFlags, Mode, OFlags, open, unlinkat};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// A listening socket in the container's bundle.
#[derive(Debug)]
pub(crate) struct Console {
    listener: UnixListener,
    bundle: OwnedFd,
    name: String,
}

impl Console {
    /// Makes the socket. `number` distinguishes it from others in the bundle.
    pub(crate) fn new(bundle: &Path, number: u32) -> io::Result<Self> {
        let name = format!("pty-{number}");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let bundle = open(bundle, flags, Mode::empty())?;
        // The path of a bundle may be longer than an address of a socket.
        let listener = UnixListener::bind(format!("/proc/self/fd/{}/{name}", bundle.as_raw_fd()))?;
        Ok(Self { listener, bundle, name })
    }

    /// Returns the socket's path relative to the bundle, which is the verb's working directory.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(&self.name)
    }

    /// Receives the terminal, which the verb has sent before it ended.
    pub(crate) fn receive(&self) -> io::Result<OwnedFd> {
        self.listener.set_nonblocking(true)?;
        let (peer, _) = self.listener.accept()?;
        peer.set_nonblocking(true)?;
        let mut bytes = [0; 256];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        recvmsg(&peer, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        let fds = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        fds.flatten().next().ok_or_else(|| Errno::NOTTY.into())
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let removed = unlinkat(&self.bundle, &self.name, AtFlags::empty());
        tolerate(removed, "the bundle may have been removed with it");
    }
}
