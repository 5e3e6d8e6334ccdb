//! The tests that need more than one file of the crate.

#![expect(clippy::disallowed_macros, reason = "a test that cannot print may fail")]

/// What it costs to make a program. Ignored.
mod cost;
/// The decision tables of three engines' default profiles.
mod golden;
/// The kernel takes a program and does what it says.
mod kernel;
/// libseccomp's programs do the same.
mod libseccomp;
/// Programs do what their tables say; the kernel can follow them; seccompiler agrees.
mod properties;
/// Profiles, calls and numbers for all of them.
mod util;
