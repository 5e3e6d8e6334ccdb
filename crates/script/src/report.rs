//! What child and parent say to each other over the channel, a socket that exec closes.
//!
//! ```text
//!  child                                  parent
//!    Request(IdMaps)      ------------>     write uid_map, gid_map
//!                         <------------     go on
//!    end of file          ------------>     released: exec happened, or the child is dead
//! ```
//!
//! Each message is one byte in one `write`. A list without requests needs no channel; how far the
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
}

impl Request {
    /// The request that this byte stands for.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::IdMaps),
            _ => None,
        }
    }
}

/// The parent's answer: it is done, go on.
pub const GO_ON: u8 = 0;

/// Asks, and waits until the parent has done it.
pub(crate) fn request(channel: Option<Fd>, what: Request) -> Result {
    let channel = channel.ok_or(Errno::NOTCONN)?;
    file::write(channel, &[what as u8])?;
    let mut answer = [0];
    match file::read(channel, &mut answer)? {
        // The parent gave up, or is gone.
        0 => Err(Errno::CANCELED),
        _ => Ok(()),
    }
}
