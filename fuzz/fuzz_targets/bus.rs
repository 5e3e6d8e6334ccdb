//! Bytes that claim to be a message of systemd's bus.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| husk_cgroup::fuzzing::message(bytes));
