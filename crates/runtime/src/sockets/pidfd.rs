//! `--pidfd-socket` and crun's annotation `run.oci.pidfd_receiver`: sends the pidfd of the container's process to a
//! program.

use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::sockets::patient::PeerSocket;
use husk_spawn::Child;
use std::path::Path;

/// The program that receives the pidfd, if any, with the texts for errors.
pub(crate) struct Watcher(Option<(PeerSocket, Acts)>);

#[derive(Clone, Copy)]
struct Acts {
    connect: &'static str,
    send: &'static str,
}

const OPTION: Acts = Acts { connect: "--pidfd-socket: connect", send: "--pidfd-socket: send the pidfd to" };
const ANNOTATION: Acts = Acts {
    connect: "annotations.run.oci.pidfd_receiver: connect",
    send: "annotations.run.oci.pidfd_receiver: send the pidfd to",
};

impl Watcher {
    /// Connects, before there is a process. The option overrides the annotation.
    pub(crate) fn of(
        option: Option<&Path>,
        annotation: Option<&Path>,
        interrupt: &Interrupt,
    ) -> Result<Self, Error> {
        let named = option.map(|path| (path, OPTION)).or(annotation.map(|path| (path, ANNOTATION)));
        let connect = |(path, acts): (&Path, Acts)| {
            PeerSocket::connect(acts.connect, path, interrupt).map(|socket| (socket, acts))
        };
        named.map(connect).transpose().map(Self)
    }

    /// Sends the pidfd, if a program is to receive it.
    pub(crate) fn tell(&self, child: &Child, interrupt: &Interrupt) -> Result<(), Error> {
        /// The message that carries the descriptor. runc sends `standard` or `setns`, and receivers ignore it.
        const NAME: &[u8] = b"pidfd";
        match &self.0 {
            Some((socket, acts)) => socket.send(acts.send, NAME, child, interrupt),
            None => Ok(()),
        }
    }
}
