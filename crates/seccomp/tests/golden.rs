//! Compares the printed decision tables of three engines' default profiles. With `HUSK_GOLDEN=write` in the
//! environment it rewrites the golden files; review the difference.

use crate::util::{ENGINES, profile_of, x86_64};
use husk_seccomp::{Abi, Arch, Machine, Profile, Table, Warning};
use std::path::Path;

#[test]
fn tables_of_engines_profiles() {
    for engine in ENGINES {
        compare(engine, &profile_of(engine), &x86_64());
    }
    let docker = profile_of("docker");
    compare("docker-without-x32", &docker, &x86_64().without(Abi::X32));
    let aarch64 = Profile { architectures: vec![Arch::Aarch64, Arch::Arm], ..docker };
    compare("docker-aarch64", &aarch64, &Machine::new(Abi::Aarch64));
}

fn compare(name: &str, profile: &Profile, machine: &Machine) {
    let file = format!("tests/golden/{name}.txt");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(&file);
    let (table, warnings) = Table::new(profile, machine).unwrap();
    assert_eq!(warnings, Vec::<Warning>::new());
    let table = table.to_string();
    if std::env::var_os("HUSK_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::write(&path, &table).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    let difference = golden.lines().zip(table.lines()).enumerate().find(|(_, (one, other))| one != other);
    assert!(golden == table, "{file} differs, first in {difference:?}; HUSK_GOLDEN=write writes it anew");
}
