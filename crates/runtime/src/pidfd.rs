//! `--pidfd-socket`: somebody who is sent the pidfd of the process that is made, and so knows it for as long as he
//! likes, whatever becomes of its pid.

use crate::error::Error;
use husk_spawn::Child;
use husk_spawn::sys::Fd;
use husk_spawn::sys::file::sendmsg_with;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Whoever listens there, if anybody was named.
pub(crate) struct Watcher(Option<UnixStream>);

impl Watcher {
    /// Connects, before there is a process.
    pub(crate) fn of(socket: Option<&Path>) -> Result<Self, Error> {
        let connect = |path: &Path| {
            UnixStream::connect(path).map_err(|reason| Error::file("--pidfd-socket: connect", path, reason))
        };
        socket.map(connect).transpose().map(Self)
    }

    /// Sends it.
    pub(crate) fn tell(&self, child: &Child) -> Result<(), Error> {
        /// What goes with it. runc says `standard` or `setns`, and nobody looks.
        const NAME: &[u8] = b"pidfd";
        match &self.0 {
            Some(socket) => sendmsg_with(Fd::of(socket), NAME, Fd::of(child))
                .map(drop)
                .map_err(|errno| Error::kernel("--pidfd-socket: send the pidfd", errno)),
            None => Ok(()),
        }
    }
}
