//! Loads arbitrary bytes as a config.json. The result must be a plan that can be printed, or an error that names a
//! field.

#![no_main]

#[path = "../../crates/plan/tests/machines/mod.rs"]
mod machines;

use bumpalo::Bump;
use husk_plan::{Invocation, create};
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|bytes: &[u8]| {
    let directory = Path::new("/bundle");
    let problems = husk_bundle::problems_in(bytes, directory).errors;
    let (container, _) = match husk_bundle::parse(bytes, directory) {
        Ok(parsed) => parsed,
        Err(error) => {
            assert!(!error.field.to_string().is_empty());
            return assert_eq!(problems[0].to_string(), error.to_string());
        }
    };
    assert!(problems.is_empty());
    for host in [machines::v1_root, machines::v2_root, machines::v2_rootless] {
        let memory = Bump::new();
        match create(&container, &host(&container), &Invocation::default(), &memory) {
            Ok(plan) => assert_eq!(plan.to_string().lines().count(), plan.steps.len()),
            Err(error) => assert!(!error.origin().field().is_empty()),
        }
    }
});
