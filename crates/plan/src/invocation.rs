//! The command line's part of a plan.

use husk_script::sys::Fd;

/// The settings that the command line adds to the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Invocation<'a> {
    /// The container's id.
    pub id: &'a str,
    /// The moment at which the program starts.
    pub start: ProgramStart,
    /// How the root file system becomes the root.
    pub new_root: NewRoot,
    /// The session keyring that the program gets.
    pub keyring: Keyring,
    /// How many of the caller's descriptors, from 3 upwards, are listening sockets for the program
    /// (sd_listen_fds(3)).
    pub listen_fds: u32,
    /// How many of the caller's next descriptors are passed on to the program.
    pub preserve_fds: u32,
}

impl Invocation<'_> {
    /// Returns the lowest descriptor that is not passed to the program.
    pub(crate) fn first_closed(&self) -> Fd {
        let passed = self.listen_fds.saturating_add(self.preserve_fds);
        let first =
            i32::try_from(passed).ok().and_then(|passed| passed.checked_add(Fd::FIRST_EXTRA.number()));
        first.and_then(Fd::new).unwrap_or(Fd::MAX)
    }
}

impl Default for Invocation<'_> {
    /// A program that starts immediately, without options on the command line.
    fn default() -> Self {
        Self {
            id: "ID",
            start: ProgramStart::AtOnce,
            new_root: NewRoot::Pivot,
            keyring: Keyring::New,
            listen_fds: 0,
            preserve_fds: 0,
        }
    }
}

/// How the root file system becomes the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewRoot {
    /// `pivot_root` changes the root. Afterwards no path reaches the old root.
    Pivot,
    /// The new root is moved onto the old one. A root on a ramdisk requires this, because pivot_root fails there.
    Move,
}

/// The session keyring that the program gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keyring {
    New,
    Callers,
}

/// When the program starts, and on which socket the child waits for `start`.
#[derive(Clone, Copy, Debug)]
pub enum ProgramStart {
    /// The program starts as soon as everything is ready.
    AtOnce,
    /// After `start`, for which the child waits on this socket.
    On(Fd),
}
