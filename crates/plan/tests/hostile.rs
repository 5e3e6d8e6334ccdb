//! Plans hostile configurations: a seeded generator, the same in every run, replaces or removes values. Parse
//! errors are the bundle crate's to test, so most of these configurations parse.

mod machines;

use bumpalo::Bump;
use husk_plan::{Invocation, create};
use machines::{v1_root, v2_root, v2_rootless};
use serde_json::{Value, json};
use std::path::Path;

/// xorshift64*: small, and the same on every machine.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).unwrap() % bound
    }
}

/// Changes one value somewhere in the tree to another of its type, or removes it.
fn change(value: &mut Value, dice: &mut Dice) {
    const STRINGS: [&str; 14] = [
        "",
        "/",
        "..",
        "/../..",
        "//a//b/./",
        "a/b",
        "/proc",
        "/dev",
        "/proc/self/exe",
        "proc",
        "tmpfs",
        "mqueue",
        "\u{1}\n=,",
        "size=",
    ];
    const NUMBERS: [i64; 8] = [0, 1, -1, 7, 64, 65_536, u32::MAX as i64, i64::MAX];
    match value {
        Value::Object(members) if !members.is_empty() => {
            let key = members.keys().nth(dice.below(members.len())).cloned().unwrap();
            match dice.below(12) {
                0 => drop(members.remove(&key)),
                _ => change(&mut members[&key], dice),
            }
        }
        Value::Array(elements) if !elements.is_empty() => {
            let index = dice.below(elements.len());
            match dice.below(8) {
                0 => drop(elements.remove(index)),
                1 => elements.push(elements[index].clone()),
                _ => change(&mut elements[index], dice),
            }
        }
        Value::Bool(value) => *value = !*value,
        Value::Number(number) => *number = NUMBERS[dice.below(NUMBERS.len())].into(),
        Value::String(text) => match dice.below(4) {
            0 => text.push_str(STRINGS[dice.below(STRINGS.len())]),
            _ => *text = STRINGS[dice.below(STRINGS.len())].to_owned(),
        },
        _ => {}
    }
}

#[test]
fn planning_mutated_configurations_causes_no_panic() {
    const RUNS: usize = 1_000;
    let mut dice = Dice(0x0123_4567_89ab_cdef);
    let mut planned = 0;
    for example in ["hello", "rootless"] {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(example).join("config.json");
        let base: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        for _ in 0..RUNS {
            let mut config = base.clone();
            // Adds fields that the examples do not use.
            if dice.below(3) == 0 {
                config["linux"]["devices"] =
                    json!([{ "path": "/dev/x", "type": "c", "major": 1, "minor": 3 }]);
                config["linux"]["sysctl"] = json!({ "net.ipv4.ip_forward": "1" });
                config["process"]["oomScoreAdj"] = json!(1);
            }
            for _ in 0..=dice.below(5) {
                change(&mut config, &mut dice);
            }
            let Ok((container, _)) = husk_bundle::parse(config.to_string().as_bytes(), Path::new("/bundle"))
            else {
                continue;
            };
            for host in [v1_root, v2_root, v2_rootless] {
                let memory = Bump::new();
                match create(&container, &host(&container), &Invocation::default(), &memory) {
                    Ok(plan) => {
                        planned += 1;
                        assert_eq!(plan.to_string().lines().count(), plan.steps.len(), "{config}");
                    }
                    Err(error) => assert!(!error.origin().field().is_empty(), "{error}: {config}"),
                }
            }
        }
    }
    // Otherwise only refusals would be tested.
    assert!(planned > RUNS, "{planned}");
}
