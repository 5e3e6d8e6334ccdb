//! Decodes arbitrary bytes as a message of systemd's D-Bus.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| husk_cgroup::fuzzing::message(bytes));
