//! Measures how long the programs of three engines' profiles are, and how long compiling takes. Asserts
//! nothing: `cargo test --release -p husk-seccomp cost -- --ignored --nocapture`.

use crate::util::{ENGINES, profile_of, x86_64};
use husk_seccomp::{Abi, Machine, Table};
use std::hint::black_box;
use std::time::{Duration, Instant};

#[test]
#[ignore = "a measurement"]
fn cost_of_engines_profiles() {
    for engine in ENGINES {
        let profile = profile_of(engine);
        let machines = [
            ("x86_64+x86+x32", x86_64()),
            ("x86_64+x86", x86_64().without(Abi::X32)),
            ("x86_64", Machine { native: Abi::X86_64, others: vec![] }),
        ];
        for (name, machine) in machines {
            let mut decide = Duration::MAX;
            let mut emit = Duration::MAX;
            let mut length = 0;
            for _ in 0..2000 {
                let start = Instant::now();
                let (table, _) = black_box(Table::new(black_box(&profile), &machine).unwrap());
                let middle = Instant::now();
                let program = black_box(table.program().unwrap());
                emit = emit.min(middle.elapsed());
                decide = decide.min(middle - start);
                length = program.instructions.len();
            }
            println!(
                "{engine:<10} {name:<15} {length:>4} instructions, table {decide:.1?}, program {emit:.1?}"
            );
        }
    }
}
