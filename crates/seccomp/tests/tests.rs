//! Tests that need more than one file of the crate.

#![expect(clippy::disallowed_macros, reason = "a test that cannot print may fail")]

/// Measures how long compiling takes. Ignored by default.
mod cost;
/// Compares the decision tables of three engines' default profiles.
mod golden;
/// Tests that the kernel accepts programs and acts on their answers.
mod kernel;
/// Compares programs with libseccomp's.
mod libseccomp;
/// Compares programs with their tables and with seccompiler, and checks that the kernel can analyse them.
mod properties;
/// Provides profiles, calls and random numbers to all of them.
mod util;
