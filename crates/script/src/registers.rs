//! Holds the descriptors that steps pass to each other, and closes all others.

use crate::Journal;
use crate::report::{self, Failure};
use crate::sys::clone::InChild;
use crate::sys::tolerate;
use crate::sys::{Errno, Fd, Result, file};

/// One of [`Reg::COUNT`] slots on the child's stack, through which a step passes a descriptor to a later one. Nothing
/// else changes while a list is performed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Reg(u8);

impl Reg {
    /// The number of registers.
    pub const COUNT: u8 = 64;

    /// Returns the register with this index, or `None` if the index is too large.
    #[must_use]
    pub const fn new(index: u8) -> Option<Self> {
        if index < Self::COUNT { Some(Self(index)) } else { None }
    }

    /// Returns the index of the register.
    #[must_use]
    pub const fn index(self) -> u8 {
        self.0
    }
}

/// A descriptor that a step uses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Handle {
    /// A descriptor that the parent had open, by its number there.
    Number(Fd),
    /// A descriptor that an earlier step opened.
    Register(Reg),
}

impl From<Fd> for Handle {
    fn from(fd: Fd) -> Self {
        Self::Number(fd)
    }
}

impl From<Reg> for Handle {
    fn from(register: Reg) -> Self {
        Self::Register(register)
    }
}

/// The registers, and the descriptors for reporting a failure.
pub(crate) struct Registers {
    places: [Option<Fd>; Reg::COUNT as usize],
    /// The connection on which a parked child reports failures, in addition to the journal.
    pub(crate) reporter: Option<Fd>,
    /// The file with the output of the last hook, if it failed.
    pub(crate) said: Option<Fd>,
}

impl Default for Registers {
    fn default() -> Self {
        Self { places: [None; Reg::COUNT as usize], reporter: None, said: None }
    }
}

impl Registers {
    pub(crate) fn set(&mut self, register: Reg, fd: Fd) {
        // The index of a register is always valid; `get_mut` avoids the code for a panic.
        if let Some(place) = self.places.get_mut(usize::from(register.index())) {
            *place = Some(fd);
        }
    }

    /// Like `set`, but closes the descriptor that an earlier step left in the register.
    pub(crate) fn replace(&mut self, child: &InChild, register: Reg, fd: Fd) {
        let before = self.get(register.into());
        self.set(register, fd);
        if let Ok(before) = before {
            file::close(child, before);
        }
    }

    /// Returns the descriptor of a handle, and empties its register.
    pub(crate) fn take(&mut self, handle: Handle) -> Result<Fd> {
        let fd = self.get(handle)?;
        if let Handle::Register(register) = handle
            && let Some(place) = self.places.get_mut(usize::from(register.index()))
        {
            *place = None;
        }
        Ok(fd)
    }

    /// Tells the process that started a parked child that a long step is done. Without this message, the child's death
    /// during such a step would look like exec, since both close the connection.
    pub(crate) fn passed(&self, journal: &Journal) {
        if let Some(reporter) = self.reporter {
            let passed = Failure { step: journal.step(), errno: 0 };
            tolerate(file::send(reporter, &passed.to_bytes()), "`start` may have ended");
        }
    }

    /// Reports a failed step to the process that started a parked child. Sends the output of a failed hook there, or
    /// to the parent if the child is not parked.
    pub(crate) fn report(&self, step: usize, errno: Errno, channel: Option<Fd>) {
        if let Some(reporter) = self.reporter {
            let failure =
                Failure { step: u32::try_from(step).unwrap_or(u32::MAX), errno: errno.raw_os_error() };
            tolerate(file::write(reporter, &failure.to_bytes()), "`start` may have ended");
        }
        if let Some(said) = self.said {
            let sent = report::hook_output(said, self.reporter, channel);
            tolerate(sent, "the failure is known without the hook's output");
        }
    }

    pub(crate) fn get(&self, handle: Handle) -> Result<Fd> {
        match handle {
            Handle::Number(fd) => Ok(fd),
            Handle::Register(register) => {
                self.places.get(usize::from(register.index())).copied().flatten().ok_or(Errno::BADF)
            }
        }
    }
}

/// Closes every descriptor from `first` on except these two.
pub(crate) fn close_others(child: &InChild, mut first: Fd, keep: Option<Fd>, channel: Option<Fd>) -> Result {
    let (lower, upper) = if keep < channel { (keep, channel) } else { (channel, keep) };
    for kept in [lower, upper].into_iter().flatten() {
        if let Some(before) = kept.before().filter(|before| *before >= first) {
            file::close_range(child, first, before)?;
        }
        first = first.max(kept.after());
    }
    file::close_range(child, first, Fd::MAX)
}
