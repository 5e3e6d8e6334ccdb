//! Refers to descriptors by number.
//!
//! # Safety
//!
//! rustix takes a [`BorrowedFd`], which promises that the number stays open while it is borrowed. [`Fd::lend`] makes
//! one from a bare number without that promise. A wrong number leads to `EBADF`, or to a call on another open file, as
//! with any number that a process receives. It never affects memory.
//!
//! Functions that close, replace or mark a number take an [`InChild`](crate::clone::InChild). They change the
//! descriptor table of a child, where no value owns a descriptor. A parent makes an [`Fd`] of a descriptor that it
//! owns or borrows, for the length of a call ([`Fd::of`]).

#![allow(unsafe_code, clippy::allow_attributes, reason = "descriptor numbers lent to rustix")]

use rustix::fd::{AsFd, AsRawFd, BorrowedFd};

/// A descriptor of the child, by its number. Dropping it closes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fd(i32);

impl Fd {
    /// Standard input.
    pub const STDIN: Self = Self(0);
    /// Standard output.
    pub const STDOUT: Self = Self(1);
    /// Standard error.
    pub const STDERR: Self = Self(2);
    /// The first number that is not a standard stream.
    pub const FIRST_EXTRA: Self = Self(3);
    /// The largest possible number.
    pub const MAX: Self = Self(i32::MAX);

    /// Returns the descriptor with this number, or `None` if it is negative.
    #[must_use]
    pub const fn new(number: i32) -> Option<Self> {
        if number < 0 { None } else { Some(Self(number)) }
    }

    /// Returns the number of a descriptor that the parent has open. It has the same number in the child, whose table
    /// begins as a copy.
    #[must_use]
    pub fn of(fd: &impl AsFd) -> Self {
        Self(fd.as_fd().as_raw_fd())
    }

    /// Returns the next lower number, if there is one.
    #[must_use]
    pub const fn before(self) -> Option<Self> {
        Self::new(self.0.wrapping_sub(1))
    }

    /// Returns the next higher number, or the largest.
    #[must_use]
    pub const fn after(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Returns the number, as in `/proc/self/fd`.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0
    }

    /// Returns the number as raw system calls take it.
    #[expect(clippy::cast_sign_loss, reason = "never negative")]
    pub(crate) const fn word(self) -> usize {
        self.0 as usize
    }

    /// Returns this number as a borrowed descriptor, for rustix.
    pub(crate) fn lend<'a>(self) -> BorrowedFd<'a> {
        // The mask changes nothing, because the number is never negative. It lets the compiler omit the panic of
        // `borrow_raw` for -1.
        let number = self.0 & i32::MAX;
        // SAFETY: `borrow_raw` requires that the number is not -1 and stays open. It is not negative; for the rest see
        // the top of this file.
        unsafe { BorrowedFd::borrow_raw(number) }
    }
}
