//! Names the types and values of JSON as their authors do. serde's names are those of Rust.

use serde::de::Unexpected;

/// The most characters of a string that a message repeats.
const MOST: usize = 60;

/// Returns what was found, as it is written in JSON.
pub(super) fn found(value: &Unexpected<'_>) -> String {
    match value {
        Unexpected::Bool(value) => value.to_string(),
        Unexpected::Unsigned(number) => number.to_string(),
        Unexpected::Signed(number) => number.to_string(),
        Unexpected::Float(number) => number.to_string(),
        Unexpected::Str(text) if text.chars().count() > MOST => {
            format!("{:?}...", text.chars().take(MOST).collect::<String>())
        }
        Unexpected::Str(text) => format!("{text:?}"),
        Unexpected::Seq => "an array".to_owned(),
        Unexpected::Map => "an object".to_owned(),
        other => other.to_string(),
    }
}

/// Returns what would be right, from the words of the type's reader.
pub(super) fn wanted(expected: &str) -> String {
    let range = |least: &dyn std::fmt::Display, most: &dyn std::fmt::Display| {
        format!("a whole number from {least} to {most}")
    };
    match expected {
        "a sequence" => "an array".to_owned(),
        "a map" => "an object".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "path string" => "a string".to_owned(),
        "u8" => range(&u8::MIN, &u8::MAX),
        "u16" => range(&u16::MIN, &u16::MAX),
        "u32" => range(&u32::MIN, &u32::MAX),
        "u64" | "usize" => range(&u64::MIN, &u64::MAX),
        "i32" => range(&i32::MIN, &i32::MAX),
        "i64" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        structure if structure.starts_with("struct ") => "an object".to_owned(),
        names if names.starts_with("enum ") => "a string".to_owned(),
        other => other.to_owned(),
    }
}
