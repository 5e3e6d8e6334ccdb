//! Parses hostile configurations. Each value of a complete configuration is replaced by every other type, one at a
//! time; a seeded generator makes more.
//!
//! The generator complements `fuzz/`, which needs a nightly compiler. It is bounded and the same in every run.

use husk_bundle::{parse, parse_for_exec, problems_in};
use serde_json::{Value, json};
use std::path::Path;

fn everything() -> Value {
    serde_json::from_str(include_str!("everything.json")).unwrap()
}

/// Returns the error of a configuration, if there is one.
fn wrong(config: &Value) -> Option<String> {
    let parsed = parse(config.to_string().as_bytes(), Path::new("/bundle"));
    parsed.err().map(|error| error.to_string())
}

/// Collects every value in a tree, as a JSON pointer and as the field name in errors.
fn places(value: &Value, pointer: &str, field: &str, found: &mut Vec<(String, String)>) {
    if !field.is_empty() {
        found.push((pointer.to_owned(), field.to_owned()));
    }
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                let field = if field.is_empty() { key.clone() } else { format!("{field}.{key}") };
                places(member, &format!("{pointer}/{key}"), &field, found);
            }
        }
        Value::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                places(element, &format!("{pointer}/{index}"), &format!("{field}[{index}]"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn value_of_the_wrong_type_is_refused_with_its_field() {
    let base = everything();
    let refused_anyway = wrong(&base);
    let mut found = Vec::new();
    places(&base, "", "", &mut found);
    assert!(found.len() > 250, "{}", found.len());
    let others = [
        json!({}),
        json!([]),
        json!("nonsense"),
        json!(""),
        json!(true),
        json!(-1),
        json!(0.5),
        json!(u64::MAX),
        json!(i64::MIN),
        json!([[[]]]),
        json!({ "a": {} }),
        json!([null]),
    ];
    for (pointer, field) in &found {
        for other in &others {
            let mut config = base.clone();
            *config.pointer_mut(pointer).unwrap() = other.clone();
            let Some(error) = wrong(&config).filter(|error| Some(error) != refused_anyway.as_ref()) else {
                continue;
            };
            let named = error.split_once(": ").map_or("", |(named, _)| named);
            // The error may name the value itself, something in it, or the object that contains it.
            let parent = field.rsplit_once(['.', '[']).map_or(field.as_str(), |(parent, _)| parent);
            let is_named = named.starts_with(field) || named == parent;
            assert!(is_named, "{field} = {other}: {error}");
        }
    }
}

#[test]
fn string_with_a_nul_is_refused_with_its_field() {
    let base = everything();
    let mut found = Vec::new();
    places(&base, "", "", &mut found);
    let is_string = |pointer: &str| base.pointer(pointer).unwrap().is_string();
    for (pointer, field) in found.iter().filter(|(pointer, _)| is_string(pointer)) {
        let mut config = base.clone();
        *config.pointer_mut(pointer).unwrap() = json!("/a\0b");
        assert_eq!(wrong(&config).unwrap(), format!("{field}: contains a NUL byte"));
    }
}

#[test]
fn last_of_duplicate_keys_counts() {
    let text = r#"{ "root": { "path": "a" }, "root": { "path": "b" },
        "process": { "user": { "uid": 0, "gid": 0 }, "args": ["sh"], "cwd": "/", "cwd": "/b" } }"#;
    let text = text.replacen('{', "{ \"ociVersion\": \"1.3.0\",", 1);
    let (container, _) = parse(text.as_bytes(), Path::new("/bundle")).unwrap();
    assert_eq!(container.rootfs, Path::new("/bundle/b"));
    assert_eq!(container.process.unwrap().cwd, Path::new("/b"));
}

#[test]
fn invalid_json_is_refused() {
    let refused = |bytes: &[u8]| parse(bytes, Path::new("/bundle")).unwrap_err().to_string();
    for bytes in
        [&b""[..], b"{", b"null", b"[]", b"\xff\xfe", b"{\"a\":\"\xff\"}", b"{}{}", b"\0", b"1e999999"]
    {
        let error = refused(bytes);
        assert!(error.starts_with("config.json: "), "{error}");
        let of_exec = parse_for_exec(bytes, Path::new("/bundle")).unwrap_err().to_string();
        assert_eq!(of_exec, error);
    }
    // Deep nesting must not overflow the stack.
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let deep = format!("{}1{}", open.repeat(1_000_000), close.repeat(1_000_000));
        assert!(refused(deep.as_bytes()).contains("recursion limit exceeded"));
    }
}

#[test]
fn exec_reads_everything_but_the_files_of_a_container() {
    let directory = Path::new("/bundle");
    let read = |config: &Value| parse_for_exec(config.to_string().as_bytes(), directory);
    for config in [json!({ "linux": null }), json!({ "root": [] }), json!({ "linux": [], "Mounts": 1 })] {
        assert_eq!(read(&config).err().map(|error| error.to_string()), wrong(&config));
    }
    let mut config = everything();
    // These are valid one by one, but not together.
    config["process"]["scheduler"] = json!({ "policy": "SCHED_IDLE" });
    config["linux"]["seccomp"]["syscalls"] = json!([]);
    let (mut whole, _) = parse(config.to_string().as_bytes(), directory).unwrap();
    for place in ["/mounts/0/type", "/hooks/poststop", "/linux/devices/0/major", "/linux/maskedPaths"] {
        *config.pointer_mut(place).unwrap() = json!({ "wrong": true });
    }
    whole.mounts.clear();
    whole.hooks = Default::default();
    whole.devices.clear();
    whole.masked_paths.clear();
    whole.readonly_paths.clear();
    whole.net_devices.clear();
    assert_eq!(read(&config).unwrap().0, whole);
}

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

#[test]
fn mutated_configurations_cause_no_panic() {
    const RUNS: usize = 600;
    let base = include_bytes!("everything.json");
    let words: Vec<&[u8]> = [
        "null",
        "true",
        "-1",
        "1e308",
        "18446744073709551615",
        "9223372036854775808",
        "\"\"",
        "[]",
        "{}",
        ",",
        ":",
        "\"\\u0000\"",
        "\"/\"",
        "\"..\"",
        "\"\u{fffd}\"",
        "\\ud800",
        "\"0-70000\"",
        "\"-\"",
        "\"1-\"",
        "\"RTMIN\"",
    ]
    .iter()
    .map(|word| word.as_bytes())
    .collect();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut parsed = 0;
    for _ in 0..RUNS {
        let mut bytes = base.to_vec();
        for _ in 0..=dice.below(4) {
            let at = dice.below(bytes.len());
            match dice.below(6) {
                0 => bytes[at] = u8::try_from(dice.below(256)).unwrap(),
                1 => drop(bytes.remove(at)),
                2 => bytes.truncate(at.max(1)),
                // Copies a piece to another position.
                3 => {
                    let end = (at + dice.below(64)).min(bytes.len());
                    let (piece, to) = (bytes[at..end].to_vec(), dice.below(bytes.len()));
                    drop(bytes.splice(to..to, piece));
                }
                4 => drop(bytes.splice(at..at, words[dice.below(words.len())].iter().copied())),
                // Replaces one value by another.
                _ => {
                    let is_end = |byte: &u8| b",]}\n".contains(byte);
                    let end = bytes[at..].iter().position(is_end).map_or(bytes.len(), |length| at + length);
                    drop(bytes.splice(at..end, words[dice.below(words.len())].iter().copied()));
                }
            }
        }
        let first = parse(&bytes, Path::new("/bundle")).err().map(|error| error.to_string());
        parsed += usize::from(first.is_none());
        // The list of all problems starts with the one at which parsing stops.
        let all = problems_in(&bytes, Path::new("/bundle")).errors;
        assert_eq!(all.first().map(ToString::to_string), first);
    }
    // Contents are refused here as well as syntax, so this bound is weak.
    assert!(parsed < RUNS);
}
