//! The descriptors that steps leave for each other, and all others that a child holds.

use crate::Journal;
use crate::report::{self, Failure};
use crate::sys::clone::InChild;
use crate::sys::tolerate;
use crate::sys::{Errno, Fd, Result, file};

/// Where a step leaves a descriptor that a later step uses: one of [`Reg::COUNT`] places on the
/// child's stack. It is all that changes while a list is performed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Reg(u8);

impl Reg {
    /// How many there are.
    pub const COUNT: u8 = 64;

    /// The register with this index, if there is one.
    #[must_use]
    pub const fn new(index: u8) -> Option<Self> {
        if index < Self::COUNT { Some(Self(index)) } else { None }
    }

    /// Its index.
    #[must_use]
    pub const fn index(self) -> u8 {
        self.0
    }
}

/// A descriptor that a step works on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Handle {
    /// One that the parent had open, under the number it had there.
    Number(Fd),
    /// One that an earlier step opened.
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

/// The descriptors that steps leave for each other.
pub(crate) struct Registers {
    places: [Option<Fd>; Reg::COUNT as usize],
    /// Who hears of a failure beside the journal.
    pub(crate) reporter: Option<Fd>,
    /// What the last hook said, if it failed.
    pub(crate) said: Option<Fd>,
}

impl Default for Registers {
    fn default() -> Self {
        Self { places: [None; Reg::COUNT as usize], reporter: None, said: None }
    }
}

impl Registers {
    pub(crate) fn set(&mut self, register: Reg, fd: Fd) {
        // A register's index is always within the array; `get_mut` spares the child a proof.
        if let Some(place) = self.places.get_mut(usize::from(register.index())) {
            *place = Some(fd);
        }
    }

    /// The same where an earlier step may have left another descriptor, which is closed.
    pub(crate) fn replace(&mut self, child: &InChild, register: Reg, fd: Fd) {
        let before = self.get(register.into());
        self.set(register, fd);
        if let Ok(before) = before {
            file::close(child, before);
        }
    }

    /// What a handle stands for, and no longer does.
    pub(crate) fn take(&mut self, handle: Handle) -> Result<Fd> {
        let fd = self.get(handle)?;
        if let Handle::Register(register) = handle
            && let Some(place) = self.places.get_mut(usize::from(register.index()))
        {
            *place = None;
        }
        Ok(fd)
    }

    /// Tells whoever started a parked child that a step is done which may take long: if the child dies
    /// then, the end of the connection alone would look as if it had execed.
    pub(crate) fn passed(&self, journal: &Journal) {
        if let Some(reporter) = self.reporter {
            let passed = Failure { step: journal.step(), errno: 0 };
            tolerate(file::send(reporter, &passed.to_bytes()), "`start` may have ended");
        }
    }

    /// Tells whoever started a parked child what failed, and what a hook said before it did.
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

/// Closes everything from `first` on but these two.
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
