//! The decision tables of three engines' default profiles, as text. `HUSK_GOLDEN=write` in the
//! environment writes them anew; the difference is then to be reviewed.

use crate::util::{ENGINES, profile_of, x86_64};
use husk_seccomp::{Abi, Machine, Table, Warning};
use std::path::Path;

#[test]
fn tables_of_engines_profiles() {
    for engine in ENGINES {
        compare(engine, "x86_64", &x86_64());
    }
    compare("docker", "x86_64-without-x32", &x86_64().without(Abi::X32));
}

fn compare(engine: &str, name: &str, machine: &Machine) {
    let file = format!("tests/golden/{engine}-{name}.txt");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(&file);
    let (table, warnings) = Table::new(&profile_of(engine), machine).unwrap();
    assert_eq!(warnings, Vec::<Warning>::new());
    let table = table.to_string();
    if std::env::var_os("HUSK_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::write(&path, &table).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    let difference = golden.lines().zip(table.lines()).enumerate().find(|(_, (one, other))| one != other);
    assert!(golden == table, "{file} differs, first in {difference:?}; HUSK_GOLDEN=write writes it anew");
}
