//! Writes a list into the memory from which the child reads it.

use super::kept::RetainedMemory;
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

/// Whether a child shares this process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// The child shares the memory.
    Shared,
    /// The child has a copy, and uses nothing of this process's except its journal.
    Copied,
}

/// The memory that holds a list.
#[derive(Default)]
pub(crate) struct ListMemory {
    bump: Bump,
    /// The strings of the environment, shared with other lists.
    environment: OnceCell<Arc<Snapshot>>,
    /// Holds the journal if a process that does not share memory continues the list.
    page: OnceCell<Page>,
    /// The memory that the child keeps at [`Step::ForgetMemory`].
    kept: OnceCell<RetainedMemory>,
}

impl ListMemory {
    /// The most memory that is kept for the next list. An ordinary list needs 2 KiB.
    const MOST_KEPT: usize = 256 << 10;

    /// Empties the memory for reuse.
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

    /// Creates a journal for a list of these steps. If `timed`, also returns one zeroed word per step, for
    /// the child to write.
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

    /// Returns the separate memory for what a child keeps at [`Step::ForgetMemory`].
    pub(crate) fn kept(&self) -> &RetainedMemory {
        self.kept.get_or_init(RetainedMemory::default)
    }

    pub(crate) fn keep<T>(&self, value: T) -> &T {
        self.bump.alloc(value)
    }
}

/// Collects the steps of a child and copies the strings they refer to.
///
/// Passed to the closures of [`Command::steps`](crate::Command::steps) and
/// [`Command::final_steps`](crate::Command::final_steps). Everything is copied into memory that stays
/// unchanged until the child execs or exits. So a closure may build its strings in temporary values.
pub struct Writer<'b> {
    memory: &'b ListMemory,
    steps: BumpVec<'b, Step<'b>>,
    registers: u8,
}

impl<'b> Writer<'b> {
    pub(crate) fn new(memory: &'b ListMemory) -> Self {
        Self { memory, steps: BumpVec::with_capacity_in(24, &memory.bump), registers: 0 }
    }

    /// Adds a step.
    pub fn push(&mut self, step: Step<'b>) {
        self.steps.push(step);
    }

    /// Copies a string for a step.
    ///
    /// # Errors
    ///
    /// If it contains a NUL byte.
    pub fn text(&self, string: impl AsRef<OsStr>) -> Result<&'b CStr, Error> {
        let string = string.as_ref();
        let bytes = self.memory.bump.alloc_slice_fill_default(string.len() + 1);
        bytes[..string.len()].copy_from_slice(string.as_bytes());
        CStr::from_bytes_with_nul(bytes).map_err(|_| Error::new(format!("string {string:?}"), Reason::Nul))
    }

    /// Copies bytes, numbers or ids for a step.
    pub fn slice<T: Copy>(&self, values: &[T]) -> &'b [T] {
        self.memory.bump.alloc_slice_copy(values)
    }

    /// Reserves a register for a descriptor that one step opens and others use.
    ///
    /// # Errors
    ///
    /// If all [`Reg::COUNT`] registers are in use.
    pub fn register(&mut self) -> Result<Reg, Error> {
        let register = Reg::new(self.registers)
            .ok_or_else(|| Error::new("register", Reason::Conflict("steps use more than there are")))?;
        self.registers += 1;
        Ok(register)
    }

    /// Returns the memory that holds the list, for data of other types.
    #[must_use]
    pub fn memory(&self) -> &'b Bump {
        &self.memory.bump
    }

    /// Returns the environment of this process.
    pub(crate) fn environment(&self) -> &'b Snapshot {
        self.memory.environment.get_or_init(snapshot::snapshot)
    }

    /// Returns an empty array of strings; the caller ends it with [`CPtr::NULL`].
    pub(crate) fn pointers(&self, capacity: usize) -> BumpVec<'b, CPtr<'b>> {
        BumpVec::with_capacity_in(capacity, &self.memory.bump)
    }

    pub(crate) fn finish(self) -> &'b [Step<'b>] {
        self.steps.into_bump_slice()
    }
}
