//! Parses arbitrary bytes as the resources of an update, and converts them to settings and systemd properties. The
//! compiled device rules must decide like the rules.

#![no_main]

use husk_cgroup::devices::{DeviceAccess, DevicePermissions, DeviceProgram, Type, allows, compile, interpret};
use husk_cgroup::systemd::{Version, resources_v1, resources_v2};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let resources = match husk_bundle::resources::parse(bytes) {
        Ok((resources, _)) => resources,
        Err(error) => return assert!(!error.field.to_string().is_empty()),
    };
    husk_cgroup::fuzzing::settings(&resources);
    for version in ["219", "255"] {
        // Tolerated: resources without a systemd property are an error.
        drop(resources_v1(&resources, Version::parse(version)));
        drop(resources_v2(&resources, Version::parse(version)));
    }
    let Ok(DeviceProgram::Instructions(program)) = compile(&resources.devices) else { return };
    for kind in [Type::Character, Type::Block] {
        for (major, minor) in [(1, 3), (5, 1), (8, 0), (0, 0)] {
            for letters in ["r", "w", "m", "rw"] {
                let access = DevicePermissions::parse(letters).unwrap();
                let request = DeviceAccess { kind, major, minor, access };
                let decided = interpret::run(&program, &request);
                assert_eq!(decided, Some(allows(&resources.devices, &request)), "{request:?}");
            }
        }
    }
});
