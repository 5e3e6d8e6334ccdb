//! Parses arbitrary bytes as `linux.seccomp`. The result must be an error, or a program that decides like its table.

#![no_main]

use husk_seccomp::interpret::{Data, run};
use husk_seccomp::{Abi, Machine, Table};
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|bytes: &[u8]| {
    let config = [br#"{"ociVersion":"1.3.0","root":{"path":"r"},"linux":{"seccomp":"#, bytes, b"}}"];
    let Ok((container, _)) = husk_bundle::parse(&config.concat(), Path::new("/bundle")) else { return };
    let Some(profile) = &container.seccomp else { return };
    let Ok((table, _)) = Table::new(profile, &Machine::new(Abi::X86_64)) else { return };
    assert!(!table.to_string().is_empty());
    let Ok(program) = table.program() else { return };
    for section in &table.sections {
        for range in &section.ranges {
            for number in [range.first, range.last] {
                let arguments = [0, 1, u64::MAX, 0x8000_0000, u64::from(number), 0x1_0000_0000];
                let data = Data { number, arch: section.abi.audit_arch(), instruction_pointer: 0, arguments };
                let decided = run(&program.instructions, &data);
                assert_eq!(decided, Ok(table.look_up(&data).value()), "{number}");
            }
        }
    }
});
