//! Writing a list into the memory that the child will read.

use super::kept::Kept;
use super::page::Page;
use super::snapshot::{self, Snapshot};
use crate::Error;
use crate::error::Reason;
use bumpalo::Bump;
use bumpalo::collections::Vec as BumpVec;
use husk_script::sys::CPtr;
use husk_script::{Journal, Reg, Step};
use std::cell::OnceCell;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Whose memory a child begins in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// This process's.
    Shared,
    /// A copy of it: the child uses nothing of ours but its journal.
    Copied,
}

/// Where a list lies.
#[derive(Default)]
pub(crate) struct Memory {
    bump: Bump,
    /// The strings of the environment, which many lists share.
    environment: OnceCell<Arc<Snapshot>>,
    /// Where the journal is, of a list that goes on in a process with memory of its own.
    page: OnceCell<Page>,
    /// What a child keeps that forgets the rest.
    kept: OnceCell<Kept>,
}

impl Memory {
    /// How much a memory keeps for its next list. An ordinary list needs 2 KiB.
    const MOST_KEPT: usize = 256 << 10;

    /// The same, empty.
    pub(crate) fn emptied(mut self) -> Self {
        if self.bump.allocated_bytes() > Self::MOST_KEPT {
            return Self::default();
        }
        self.bump.reset();
        self.environment.take();
        self.page.take();
        self.kept.take();
        self
    }

    /// A journal for a list of these steps, and if it is timed words for a child to write to, all 0.
    pub(crate) fn journal(
        &self,
        steps: &[Step<'_>],
        memory: Sharing,
        timed: bool,
    ) -> Result<(&Journal, Option<&[AtomicU64]>), Error> {
        let times = if timed { steps.len() } else { 0 };
        let (journal, times) = if memory == Sharing::Copied || steps.iter().any(Step::leaves_memory) {
            let page = Page::new(times).map_err(|errno| Error::new("journal", errno))?;
            let page = self.page.get_or_init(|| page);
            (page.journal(), page.times())
        } else {
            let times = self.bump.alloc_slice_fill_with(times, |_| AtomicU64::new(0));
            (self.keep(Journal::new()), &*times)
        };
        Ok((journal, timed.then_some(times)))
    }

    /// Memory apart from all other, for what a child keeps when it forgets the rest.
    pub(crate) fn kept(&self) -> &Kept {
        self.kept.get_or_init(Kept::default)
    }

    pub(crate) fn keep<T>(&self, value: T) -> &T {
        self.bump.alloc(value)
    }
}

/// Where the steps of a child are written, and the strings they refer to.
///
/// Handed to the closures of [`Command::steps`](crate::Command::steps) and
/// [`Command::final_steps`](crate::Command::final_steps). Everything is copied into memory that
/// stays as it is until the child execs or exits, so a closure may use what it likes to come by a
/// string.
pub struct Writer<'b> {
    memory: &'b Memory,
    steps: BumpVec<'b, Step<'b>>,
    registers: u8,
}

impl<'b> Writer<'b> {
    pub(crate) fn new(memory: &'b Memory) -> Self {
        Self { memory, steps: BumpVec::with_capacity_in(24, &memory.bump), registers: 0 }
    }

    /// Adds a step.
    pub fn push(&mut self, step: Step<'b>) {
        self.steps.push(step);
    }

    /// A string for a step.
    ///
    /// # Errors
    ///
    /// If there is a NUL byte in it.
    pub fn text(&self, string: impl AsRef<OsStr>) -> Result<&'b CStr, Error> {
        let string = string.as_ref();
        let bytes = self.memory.bump.alloc_slice_fill_default(string.len() + 1);
        bytes[..string.len()].copy_from_slice(string.as_bytes());
        CStr::from_bytes_with_nul(bytes).map_err(|_| Error::new(format!("string {string:?}"), Reason::Nul))
    }

    /// Bytes, numbers or ids for a step.
    pub fn slice<T: Copy>(&self, values: &[T]) -> &'b [T] {
        self.memory.bump.alloc_slice_copy(values)
    }

    /// A place for a descriptor that one step opens and others use.
    ///
    /// # Errors
    ///
    /// If all [`Reg::COUNT`] are taken.
    pub fn register(&mut self) -> Result<Reg, Error> {
        let register = Reg::new(self.registers)
            .ok_or_else(|| Error::new("register", Reason::Conflict("steps use more than there are")))?;
        self.registers += 1;
        Ok(register)
    }

    /// The memory that the list lies in, for whoever has more to put there.
    #[must_use]
    pub fn memory(&self) -> &'b Bump {
        &self.memory.bump
    }

    /// The environment of this process.
    pub(crate) fn environment(&self) -> &'b Snapshot {
        self.memory.environment.get_or_init(snapshot::snapshot)
    }

    /// Room for an array of strings, to be ended with [`CPtr::NULL`].
    pub(crate) fn pointers(&self, capacity: usize) -> BumpVec<'b, CPtr<'b>> {
        BumpVec::with_capacity_in(capacity, &self.memory.bump)
    }

    pub(crate) fn finish(self) -> &'b [Step<'b>] {
        self.steps.into_bump_slice()
    }
}
