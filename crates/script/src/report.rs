//! What child and parent say to each other over the channel, a socket that exec closes.
//!
//! ```text
//!  child                                  parent
//!    Request(IdMaps)      ------------>     write uid_map, gid_map
//!                         <------------     go on
//!    Request(Parked)      ------------>     commit the container's state
//!                         <------------     go on
//!    end of file          ------------>     parked: the parent's death is no longer the child's
//!    end of file          ------------>     released: exec happened, or the child is dead
//! ```
//!
//! Each message is one byte in one `write`, with the number of a descriptor behind it where the request is
//! about one. A list without requests needs no channel; how far the
//! child came, and why it failed, stands in the [`Journal`](crate::Journal). A parent that cannot
//! do what it is asked closes its end instead of answering, and the child fails at that step.

use crate::sys::{Errno, Fd, Result, file};

/// Something that only the parent can do for the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Request {
    /// Write the child's id maps: more than one id can only be mapped by a process that has
    /// privileges over the parent user namespace (user_namespaces(7)).
    IdMaps = 1,
    /// Write down that the container is created: from here on its program may begin.
    Parked = 2,
    /// Fetch the seccomp listener whose number follows, and give it to whoever is to have it.
    Listener = 16,
    /// Move network devices into the child's network namespace.
    NetDevices = 17,
}

/// The most that a request has: itself and a number.
pub const MOST: usize = 5;

impl Request {
    /// The request that this byte stands for.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::IdMaps),
            2 => Some(Self::Parked),
            16 => Some(Self::Listener),
            17 => Some(Self::NetDevices),
            _ => None,
        }
    }
}

/// The parent's answer: it is done, go on.
pub const GO_ON: u8 = 0;

/// What a parked child tells the one that started it, if a step fails after that: another process
/// than its maker, which cannot see the journal. When all goes well it hears the end of file, for
/// exec closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The index of the step.
    pub step: u32,
    /// Why it failed.
    pub errno: i32,
}

impl Failure {
    /// How many bytes it is on the wire.
    pub const SIZE: usize = 8;

    /// As it is sent: two words as this machine has them, for both ends are the same machine.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let [a, b, c, d] = self.step.to_ne_bytes();
        let [e, f, g, h] = self.errno.to_ne_bytes();
        [a, b, c, d, e, f, g, h]
    }

    /// The same back.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        let [a, b, c, d, e, f, g, h] = bytes;
        Self { step: u32::from_ne_bytes([a, b, c, d]), errno: i32::from_ne_bytes([e, f, g, h]) }
    }
}

/// Asks, and waits until the parent has done it.
pub(crate) fn request(channel: Option<Fd>, what: Request) -> Result {
    ask(channel, &[what as u8])
}

/// The same about a descriptor.
pub(crate) fn request_about(channel: Option<Fd>, what: Request, fd: Fd) -> Result {
    let [a, b, c, d] = fd.number().to_ne_bytes();
    ask(channel, &[what as u8, a, b, c, d])
}

fn ask(channel: Option<Fd>, words: &[u8]) -> Result {
    let channel = channel.ok_or(Errno::NOTCONN)?;
    file::write(channel, words)?;
    let mut answer = [0];
    match file::read(channel, &mut answer)? {
        // The parent gave up, or is gone.
        0 => Err(Errno::CANCELED),
        _ => Ok(()),
    }
}
