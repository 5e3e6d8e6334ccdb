//! Writing a list into the memory that the child will read.

use crate::Error;
use crate::error::Reason;
use bumpalo::Bump;
use bumpalo::collections::Vec as BumpVec;
use husk_script::sys::CPtr;
use husk_script::{Reg, Step};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;

/// Where the steps of a child are written, and the strings they refer to.
///
/// Handed to the closures of [`Command::steps`](crate::Command::steps) and
/// [`Command::final_steps`](crate::Command::final_steps). Everything is copied into memory that
/// stays as it is until the child execs or exits, so a closure may use what it likes to come by a
/// string.
pub struct Writer<'b> {
    memory: &'b Bump,
    steps: BumpVec<'b, Step<'b>>,
    registers: u8,
}

impl<'b> Writer<'b> {
    pub(crate) fn new(memory: &'b Bump) -> Self {
        Self { memory, steps: BumpVec::with_capacity_in(24, memory), registers: 0 }
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
        let bytes = self.memory.alloc_slice_fill_default(string.len() + 1);
        bytes[..string.len()].copy_from_slice(string.as_bytes());
        CStr::from_bytes_with_nul(bytes).map_err(|_| Error::new(format!("string {string:?}"), Reason::Nul))
    }

    /// Bytes, numbers or ids for a step.
    pub fn slice<T: Copy>(&self, values: &[T]) -> &'b [T] {
        self.memory.alloc_slice_copy(values)
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

    /// Room for an array of strings, to be ended with [`CPtr::NULL`].
    pub(crate) fn pointers(&self, capacity: usize) -> BumpVec<'b, CPtr<'b>> {
        BumpVec::with_capacity_in(capacity, self.memory)
    }

    pub(crate) fn finish(self) -> &'b [Step<'b>] {
        self.steps.into_bump_slice()
    }
}
