//! What the command line adds to the configuration.

use husk_script::sys::Fd;

/// What the command line adds to the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Invocation<'a> {
    /// The container's name.
    pub id: &'a str,
    /// When the program begins.
    pub start: Start,
    /// How the root file system becomes the root.
    pub new_root: NewRoot,
    /// Whose session keyring the program has.
    pub keyring: Keyring,
    /// How many of the caller's descriptors, from 3 upwards, are sockets that the program is to listen
    /// on (sd_listen_fds(3)).
    pub listen_fds: u32,
    /// How many of the caller's descriptors, from there upwards, are passed on to the program.
    pub preserve_fds: u32,
}

impl Invocation<'_> {
    /// The lowest descriptor that is not the program's.
    pub(crate) fn first_closed(&self) -> Fd {
        let passed = self.listen_fds.saturating_add(self.preserve_fds);
        let first =
            i32::try_from(passed).ok().and_then(|passed| passed.checked_add(Fd::FIRST_EXTRA.number()));
        first.and_then(Fd::new).unwrap_or(Fd::MAX)
    }
}

impl Default for Invocation<'_> {
    /// A program that begins at once, with nothing said on the command line.
    fn default() -> Self {
        Self {
            id: "ID",
            start: Start::AtOnce,
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
    /// By `pivot_root`: no name of the old root is left.
    Pivot,
    /// By moving it onto the old one, which a root on a ramdisk has to: that cannot be pivoted.
    Move,
}

/// Whose session keyring the program has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keyring {
    /// Its own.
    New,
    /// The caller's.
    Callers,
}

/// Where the child waits for `start`.
#[derive(Clone, Copy, Debug)]
pub enum Start {
    /// It does not: it execs as soon as everything is ready.
    AtOnce,
    /// On this socket.
    On(Fd),
}
