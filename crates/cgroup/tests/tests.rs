//! Tests cgroups on the running kernel. Tests are skipped if their hierarchy is not mounted.

mod devices;
mod support;
mod version_1;
mod version_2;
