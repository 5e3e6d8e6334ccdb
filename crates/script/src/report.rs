//! What child and parent say to each other over the channel, a socket that exec closes.
//!
//! ```text
//!  child                                  parent
//!    Request(IdMaps)      ------------>     write uid_map, gid_map
//!                         <------------     go on
//!    Request(Cgroup)      ------------>     move the child into the container's cgroup
//!                         <------------     go on
//!    Request(Tree), n     ------------>     open the source of mount n
//!                         <------------     go on, with its descriptor
//!    Request(Hooks)       ------------>     run the hooks that are the runtime's
//!    Request(Terminal)    ------------>     keep the master, or send it to who asked for it
//!                         <------------     go on
//!    Request(Parked)      ------------>     commit the container's state
//!                         <------------     go on
//!    end of file          ------------>     parked: the parent's death is no longer the child's
//!    end of file          ------------>     released: exec happened, or the child is dead
//!    Request(Stopped)     ------------>     stop too, and have the program continued afterwards
//!                         <------------     go on
//!    Request(Leftovers)   ------------>     see which processes the program leaves behind
//!                         <------------     go on
//! ```
//!
//! A child that fails at a hook of its own says what the hook said, before the end of file:
//!
//! ```text
//!    mark, output         ------------>     tell it with the failure
//!    ...
//! ```
//!
//! Each other message is one byte in one `write`, with a number behind it where the request is about one of
//! many things (a descriptor, a mount), or in one `sendmsg` where a descriptor goes with it. (A number will do
//! where a filter lets no more through than `write`; to fetch what it stands for takes the privilege to trace
//! the child.) A list without requests needs no channel; how far the
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
    /// Open the source of a mount, in the child's mount namespace, and send its descriptor: where the
    /// child may not look, or where ids are to be mapped. The number of the mount follows.
    Tree = 8,
    /// Run the hooks that are run in the namespaces of the parent.
    Hooks = 3,
    /// Fetch the seccomp listener whose number follows, and give it to whoever is to have it.
    Listener = 4,
    /// Move network devices into the child's network namespace.
    NetDevices = 5,
    /// Set how the child is scheduled.
    Scheduler = 9,
    /// Take the master of the program's terminal, which comes with it.
    Terminal = 6,
    /// Move the child into the container's cgroup, where it could not be born.
    Cgroup = 7,
    /// Look at the processes that are left behind, before they are ended.
    Leftovers = 10,
    /// Do what is to be done when the program has been stopped, as by its terminal.
    Stopped = 11,
}

/// The length of a request with a number.
pub const WITH_NUMBER: usize = 5;

impl Request {
    /// The request that this byte stands for.
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
            10 => Some(Self::Leftovers),
            11 => Some(Self::Stopped),
            _ => None,
        }
    }
}

/// The parent's answer: it is done, go on.
pub const GO_ON: u8 = 0;

/// What a message begins with whose other bytes are some of the output of a hook that failed.
pub const HOOK_OUTPUT_MARK: u8 = 0xff;

/// How many bytes of what a failed hook said are told. What is told last is the reason.
pub const MOST_WORDS: usize = 1024;

/// The longest message.
pub const MOST_BYTES: usize = 65;

/// What a parked child tells the one that started it, if a step fails after that: another process
/// than its maker, which cannot see the journal. When all goes well it hears the end of file, for
/// exec closes the connection. If a hook failed, the end of its output follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The index of the step.
    pub step: u32,
    /// Why it failed; 0 for a hook that did not, and is done.
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

/// Tells what a failed hook said last: whoever started a parked child, or the parent.
pub(crate) fn hook_output(said: Fd, reporter: Option<Fd>, channel: Option<Fd>) -> Result {
    let mut message = [HOOK_OUTPUT_MARK; MOST_BYTES];
    let most = u64::try_from(MOST_WORDS).unwrap_or(0);
    // What something that it left behind says meanwhile is not told.
    let end = file::size(said)?;
    let mut offset = end.saturating_sub(most);
    // Piece by piece: room for all of it would be cleared by a function that is not linked.
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
    answered(channel)
}

/// The same with a descriptor, of which the parent gets a copy.
pub(crate) fn request_with(channel: Option<Fd>, what: Request, fd: Fd) -> Result {
    let channel = channel.ok_or(Errno::NOTCONN)?;
    file::sendmsg_with(channel, &[what as u8], fd)?;
    answered(channel)
}

fn answered(channel: Fd) -> Result {
    let mut answer = [0];
    match file::read(channel, &mut answer)? {
        // The parent gave up, or is gone.
        0 => Err(Errno::CANCELED),
        _ => Ok(()),
    }
}

/// Asks for the source of a mount, and waits for its descriptor.
pub(crate) fn request_tree(channel: Option<Fd>, mount: u32) -> Result<Fd> {
    let channel = channel.ok_or(Errno::NOTCONN)?;
    let [a, b, c, d] = mount.to_ne_bytes();
    file::write(channel, &[Request::Tree as u8, a, b, c, d])?;
    match file::receive(channel, &mut [0])? {
        (0, _) => Err(Errno::CANCELED),
        (_, tree) => tree.ok_or(Errno::BADMSG),
    }
}
