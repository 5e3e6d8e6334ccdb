//! Defines the messages between child and parent. They go over the channel, a socket that exec closes.
//!
//! ```text
//!  child                                  parent
//!    Request(IdMaps)      ------------>     write uid_map, gid_map
//!                         <------------     go on
//!    Request(Cgroup)      ------------>     move the child into the container's cgroup
//!                         <------------     go on
//!    Request(Tree), n     ------------>     open the source of mount n
//!                         <------------     go on, with its descriptor
//!    Request(Hooks)       ------------>     run the hooks of the runtime namespace
//!    Request(Terminal)    ------------>     keep the master, or send it to its recipient
//!                         <------------     go on
//!    Request(Parked)      ------------>     commit the container's state
//!                         <------------     go on
//!    end of file          ------------>     parked: the child now survives the parent's death
//!    end of file          ------------>     released: exec happened, or the child is dead
//!    Request(Stopped)     ------------>     stop too, and continue the program afterwards
//!                         <------------     go on
//!    Request(RemainingProcesses) ----->     look at the processes that the program left behind
//!                         <------------     go on
//! ```
//!
//! A child whose hook fails sends the output of the hook before the end of file:
//!
//! ```text
//!    mark, output         ------------>     report it with the failure
//!    ...
//! ```
//!
//! Every other message is one byte in one `write`. A number follows if the request is about one of several things (a
//! descriptor, a mount). A message with a descriptor is one `sendmsg`. A number works even if a filter allows only
//! `write`; fetching the descriptor it names takes the privilege to trace the child.
//!
//! A list without requests needs no channel: the [`Journal`](crate::Journal) tells how far the child came and why it
//! failed. A parent that cannot do what it is asked closes its end instead of answering, and the child fails at that
//! step.

use crate::sys::{Errno, Fd, Result, file};

/// A request for something that only the parent can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Request {
    /// Write the child's id maps. Only a process with privileges over the parent user namespace can map more than one
    /// id (user_namespaces(7)).
    IdMaps = 1,
    /// Record that the container is created: from here on its program may start.
    Parked = 2,
    /// Open the source of a mount in the child's mount namespace, and send its descriptor. Used if the child lacks
    /// permission, or if ids are mapped. The index of the mount follows.
    Tree = 8,
    /// Run the hooks that belong in the parent's namespaces.
    Hooks = 3,
    /// Fetch the seccomp listener whose number follows, and pass it to its recipient.
    Listener = 4,
    /// Move network devices into the child's network namespace.
    NetDevices = 5,
    /// Set how the child is scheduled.
    Scheduler = 9,
    /// Take the master of the program's terminal, which is sent along.
    Terminal = 6,
    /// Move the child into the container's cgroup, if it could not be created there.
    Cgroup = 7,
    /// Look at the processes that the program left behind, before they are killed.
    RemainingProcesses = 10,
    /// Handle the program's stop, for example by its terminal.
    Stopped = 11,
    /// Take the root of the program's own file system, which is sent along.
    Files = 12,
}

/// The length of a request with a number, in bytes.
pub const WITH_NUMBER: usize = 5;

impl Request {
    /// Decodes a request from its byte.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::IdMaps),
            2 => Some(Self::Parked),
            3 => Some(Self::Hooks),
            4 => Some(Self::Listener),
            5 => Some(Self::NetDevices),
            8 => Some(Self::Tree),
            6 => Some(Self::Terminal),
            9 => Some(Self::Scheduler),
            7 => Some(Self::Cgroup),
            10 => Some(Self::RemainingProcesses),
            11 => Some(Self::Stopped),
            12 => Some(Self::Files),
            _ => None,
        }
    }
}

/// The parent's answer: the request is done, and the child may continue.
pub const GO_ON: u8 = 0;

/// The first byte of a message that carries output of a failed hook.
pub const HOOK_OUTPUT_MARK: u8 = 0xff;

/// How many bytes from the end of a failed hook's output are sent. The last ones give the reason.
pub const MOST_WORDS: usize = 1024;

/// The length of the longest message, in bytes.
pub const MOST_BYTES: usize = 65;

/// Tells the process that started a parked child that a step has failed. The reader did not create the child, so it
/// cannot see the journal. On success it sees the end of file, because exec closes the connection. If a hook failed,
/// the end of its output follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The index of the step.
    pub step: u32,
    /// The error number; 0 if the step is a hook that has succeeded.
    pub errno: i32,
}

impl Failure {
    /// The encoded length in bytes.
    pub const SIZE: usize = 8;

    /// Encodes the message in native byte order, since both ends are on one machine.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let [a, b, c, d] = self.step.to_ne_bytes();
        let [e, f, g, h] = self.errno.to_ne_bytes();
        [a, b, c, d, e, f, g, h]
    }

    /// Decodes the message.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        let [a, b, c, d, e, f, g, h] = bytes;
        Self { step: u32::from_ne_bytes([a, b, c, d]), errno: i32::from_ne_bytes([e, f, g, h]) }
    }
}

/// Sends the end of a failed hook's output to the process that started a parked child, or else to the parent.
pub(crate) fn hook_output(said: Fd, reporter: Option<Fd>, channel: Option<Fd>) -> Result {
    let mut message = [HOOK_OUTPUT_MARK; MOST_BYTES];
    let most = u64::try_from(MOST_WORDS).unwrap_or(0);
    // Output that the hook's descendants write in the meantime is left out.
    let end = file::size(said)?;
    let mut offset = end.saturating_sub(most);
    // Piece by piece: the compiler would clear a larger buffer by a function that is not linked.
    while offset < end {
        let (_, room) = message.split_first_mut().ok_or(Errno::IO)?;
        let read = file::pread(said, room, offset)?;
        let words = room.get(..read).unwrap_or_default();
        if words.is_empty() {
            return Ok(());
        }
        match (reporter, channel) {
            (Some(reporter), _) => file::write(reporter, words)?,
            (None, Some(channel)) => {
                file::write(channel, message.get(..read.saturating_add(1)).unwrap_or_default())?
            }
            (None, None) => return Ok(()),
        };
        offset = offset.saturating_add(u64::try_from(read).unwrap_or(most));
    }
    Ok(())
}

/// Sends a request and waits until the parent has done it.
pub(crate) fn request(channel: Option<Fd>, what: Request) -> Result {
    ask(channel, &[what as u8])
}

/// Like `request`, with the number of a descriptor.
pub(crate) fn request_about(channel: Option<Fd>, what: Request, fd: Fd) -> Result {
    let [a, b, c, d] = fd.number().to_ne_bytes();
    ask(channel, &[what as u8, a, b, c, d])
}

fn ask(channel: Option<Fd>, words: &[u8]) -> Result {
    let channel = channel.ok_or(Errno::NOTCONN)?;
    file::write(channel, words)?;
    answered(channel)
}

/// Like `request`, but gives the parent a copy of a descriptor.
pub(crate) fn request_with(channel: Option<Fd>, what: Request, fd: Fd) -> Result {
    let channel = channel.ok_or(Errno::NOTCONN)?;
    file::sendmsg_with(channel, &[what as u8], fd)?;
    answered(channel)
}

fn answered(channel: Fd) -> Result {
    let mut answer = [0];
    match file::read(channel, &mut answer)? {
        // The parent gave up or exited.
        0 => Err(Errno::CANCELED),
        _ => Ok(()),
    }
}

/// Requests the source of a mount and waits for its descriptor.
pub(crate) fn request_tree(channel: Option<Fd>, mount: u32) -> Result<Fd> {
    let channel = channel.ok_or(Errno::NOTCONN)?;
    let [a, b, c, d] = mount.to_ne_bytes();
    file::write(channel, &[Request::Tree as u8, a, b, c, d])?;
    match file::receive(channel, &mut [0])? {
        (0, _) => Err(Errno::CANCELED),
        (_, tree) => tree.ok_or(Errno::BADMSG),
    }
}
