//! Finds duplicate keys in JSON objects.
//!
//! RFC 8259 leaves open which of them counts; here, as in Go, it is the last one. A reader of the file may see
//! only the first, and another program may use it.

use crate::error::{Field, Warning};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;

/// Returns a warning for each duplicate key in valid JSON, at most `most` of them.
pub(crate) fn keys(json: &str, most: usize) -> Vec<Warning> {
    let mut search = Search { json, most, found: Vec::new() };
    search.look(json, &Field::default());
    search.found
}

struct Search<'j> {
    json: &'j str,
    most: usize,
    found: Vec<Warning>,
}

impl<'j> Search<'j> {
    /// Searches a value and everything in it. Invalid JSON is skipped, because the caller has already reported it.
    fn look(&mut self, value: &'j str, field: &Field) {
        match value.trim_start().as_bytes().first() {
            Some(b'{') => {
                let Ok(Members(members)) = serde_json::from_str(value) else { return };
                let mut seen = BTreeMap::new();
                for (key, value) in members {
                    let field = field.key_or_top(&key);
                    if let Some(first) = seen.insert(key, value) {
                        self.tell(&field, first, value);
                    }
                    self.look(value.get(), &field);
                }
            }
            Some(b'[') => {
                let Ok(elements) = serde_json::from_str::<Vec<&RawValue>>(value) else { return };
                for (index, element) in elements.into_iter().enumerate() {
                    self.look(element.get(), &field.index(index));
                }
            }
            _ => {}
        }
    }

    fn tell(&mut self, field: &Field, first: &'j RawValue, last: &'j RawValue) {
        if self.found.len() < self.most {
            let [first, last] = [first, last].map(|value| self.line(value));
            let text = format!("occurs twice, in lines {first} and {last}; the last value is used");
            self.found.push(Warning::new(field.clone(), text));
        }
    }

    /// Returns the number of the line on which a value starts. The value must be part of `json`.
    fn line(&self, value: &RawValue) -> usize {
        let place = value.get().as_ptr().addr().saturating_sub(self.json.as_ptr().addr());
        let before = self.json.as_bytes().get(..place).unwrap_or_default();
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }
}

/// The members of an object in order, including duplicates.
pub(super) struct Members<'j>(pub(super) Vec<(String, &'j RawValue)>);

impl<'j> Deserialize<'j> for Members<'j> {
    fn deserialize<D: Deserializer<'j>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'j> Visitor<'j> for Each {
            type Value = Members<'j>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'j>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

#[cfg(test)]
mod tests {
    use super::keys;

    fn told(json: &str) -> Vec<String> {
        keys(json, 5).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn unique_keys_are_not_reported() {
        assert_eq!(told(r#"{ "a": { "a": [{ "a": 1 }, { "a": 1 }] }, "b": "{\"a\":1,\"a\":2}" }"#), [""; 0]);
    }

    #[test]
    fn each_duplicate_is_reported_with_its_path_and_both_lines() {
        let json = "{ \"a\": 1,\n\"b\": [{},\n { \"c\": {\"d\": 1},\n\n \"c\": {\"d\": 2, \"\\u0064\": 3} }],\n\"a\": 2, \"a\": 3 }";
        let wanted = [
            "b[1].c: occurs twice, in lines 3 and 5; the last value is used",
            "b[1].c.d: occurs twice, in lines 5 and 5; the last value is used",
            "a: occurs twice, in lines 1 and 6; the last value is used",
            "a: occurs twice, in lines 6 and 6; the last value is used",
        ];
        assert_eq!(told(json), wanted);
    }

    #[test]
    fn number_of_reported_duplicates_is_limited() {
        assert_eq!(told(&format!("{{{}\"a\":0}}", "\"a\":0,".repeat(1000))).len(), 5);
    }
}
