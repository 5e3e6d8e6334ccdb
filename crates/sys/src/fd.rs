//! Descriptors by number.
//!
//! # Safety
//!
//! rustix asks for a [`BorrowedFd`], which promises that the number stays open while it is lent.
//! [`Fd::lend`] makes one from a bare number that promises nothing. What follows from a wrong
//! number is `EBADF`, or a call on another open file, as with any number handed to a process; it
//! never touches memory. What closes, replaces or marks a number takes an
//! [`InChild`](crate::clone::InChild): those numbers are of a child's table, where nothing owns a descriptor. A parent
//! makes an [`Fd`] of a descriptor that it owns or borrows, for the length of a call ([`Fd::of`]).

#![allow(unsafe_code, clippy::allow_attributes, reason = "descriptor numbers lent to rustix")]

use rustix::fd::{AsFd, AsRawFd, BorrowedFd};

/// A descriptor of the child, by its number. Copying it copies the number, dropping it closes
/// nothing.
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
    /// The largest number there can be.
    pub const MAX: Self = Self(i32::MAX);

    /// The descriptor with this number, unless it is negative.
    #[must_use]
    pub const fn new(number: i32) -> Option<Self> {
        if number < 0 { None } else { Some(Self(number)) }
    }

    /// The number of a descriptor that the parent has open. The child, whose table begins as a
    /// copy, knows it by the same one.
    #[must_use]
    pub fn of(fd: &impl AsFd) -> Self {
        Self(fd.as_fd().as_raw_fd())
    }

    /// The number below, if there is one.
    #[must_use]
    pub const fn before(self) -> Option<Self> {
        Self::new(self.0.wrapping_sub(1))
    }

    /// The number above, or the largest.
    #[must_use]
    pub const fn after(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0
    }

    /// The number as the raw system calls take it.
    #[expect(clippy::cast_sign_loss, reason = "never negative")]
    pub(crate) const fn word(self) -> usize {
        self.0 as usize
    }

    /// This number as a borrowed descriptor, for rustix.
    pub(crate) fn lend<'a>(self) -> BorrowedFd<'a> {
        // A number here is never negative, so the mask changes none. But it tells the compiler, which
        // then leaves out the panic that `borrow_raw` has for -1.
        let number = self.0 & i32::MAX;
        // SAFETY: `borrow_raw` asks that the number is not -1 and stays open. It is not negative;
        // for the rest see the top of this file.
        unsafe { BorrowedFd::borrow_raw(number) }
    }
}
