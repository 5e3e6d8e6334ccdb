//! Loads arbitrary bytes as a process.json. The result must be a plan of the joining process, or an error that names a
//! field.

#![no_main]

#[path = "../../crates/plan/tests/machines/mod.rs"]
mod machines;

use bumpalo::Bump;
use husk_plan::{Invocation, JoinTarget, exec};
use husk_script::sys::{Fd, namespace::Namespaces};
use libfuzzer_sys::fuzz_target;
use std::path::Path;

const CONTAINER: &[u8] = br#"{"ociVersion":"1.3.0","root":{"path":"r"},"process":{"cwd":"/","args":["a"]}}"#;

fuzz_target!(|bytes: &[u8]| {
    let (mut container, _) = husk_bundle::parse(CONTAINER, Path::new("/bundle")).unwrap();
    let process = match husk_bundle::exec::process(bytes, container.process.as_ref().unwrap()) {
        Ok((process, _)) => process,
        Err(error) => return assert!(!error.field.to_string().is_empty()),
    };
    container.process = Some(process);
    for host in [machines::v1_root, machines::v2_root, machines::v2_rootless] {
        for namespaces in [Namespaces::EMPTY, Namespaces::USER | Namespaces::PID | Namespaces::MOUNT] {
            let target = JoinTarget { init: Fd::new(9).unwrap(), namespaces };
            let memory = Bump::new();
            match exec(&container, target, &host(&container), &Invocation::default(), &memory) {
                Ok(plan) => assert_eq!(plan.to_string().lines().count(), plan.steps.len()),
                Err(error) => assert!(!error.origin().field().is_empty()),
            }
        }
    }
});
