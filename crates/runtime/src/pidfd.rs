//! `--pidfd-socket`: somebody who is sent the pidfd of the process that is made, and so knows it for as long as he
//! likes, whatever becomes of its pid.

use crate::elsewhere::Elsewhere;
use crate::error::Error;
use crate::interrupt::Interrupt;
use husk_spawn::Child;
use std::path::Path;

/// Whoever listens there, if anybody was named.
pub(crate) struct Watcher(Option<Elsewhere>);

impl Watcher {
    /// Connects, before there is a process.
    pub(crate) fn of(socket: Option<&Path>, interrupt: &Interrupt) -> Result<Self, Error> {
        let connect = |path: &Path| Elsewhere::connect("--pidfd-socket: connect", path, interrupt);
        socket.map(connect).transpose().map(Self)
    }

    /// Sends it.
    pub(crate) fn tell(&self, child: &Child, interrupt: &Interrupt) -> Result<(), Error> {
        /// What goes with it. runc says `standard` or `setns`, and nobody looks.
        const NAME: &[u8] = b"pidfd";
        match &self.0 {
            Some(socket) => socket.send("--pidfd-socket: send the pidfd to", NAME, child, interrupt),
            None => Ok(()),
        }
    }
}
