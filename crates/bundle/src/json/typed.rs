//! Converts JSON to types, with errors that name the field.
//!
//! A failure collects the field's name on its way out: each enclosing value puts its own name before it. So
//! reading records nothing on the way in, and there is one layer of code between a type and its JSON.

use super::words;
use crate::error::{Error, ErrorKind, Field, UnknownName};
use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, Expected, IntoDeserializer as _, MapAccess,
    SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::Value;
use std::fmt::{self, Display, Formatter};
use std::iter::Enumerate;
use std::vec;

/// Reads the value of `field`. An empty field stands for the whole configuration.
pub(crate) fn read<T: DeserializeOwned>(value: Value, field: &Field) -> Result<T, Error> {
    T::deserialize(Node(value)).map_err(|Failure { way, kind }| {
        let whole = way.iter().rev().fold(field.to_string(), |whole, name| whole + name);
        match whole.trim_start_matches('.') {
            "" => Field::new("config.json").error(kind),
            name => Field::new(name).error(kind),
        }
    })
}

/// A value that does not fit its type.
#[derive(Debug)]
struct Failure {
    /// The names of the enclosing values, innermost first: `[3]`, `.mounts`.
    way: Vec<String>,
    kind: ErrorKind,
}

impl Failure {
    fn below(mut self, name: String) -> Self {
        self.way.push(name);
        self
    }
}

impl serde::de::Error for Failure {
    fn custom<T: Display>(message: T) -> Self {
        Self { way: Vec::new(), kind: ErrorKind::Json(message.to_string()) }
    }

    fn missing_field(field: &'static str) -> Self {
        Self { way: vec![format!(".{field}")], kind: ErrorKind::Missing }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let text = format!("{}, not {}", words::wanted(&expected.to_string()), words::found(&found));
        Self { way: Vec::new(), kind: ErrorKind::Type(text) }
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_variant(found: &str, known: &'static [&'static str]) -> Self {
        let name = UnknownName { found: found.to_owned(), known };
        Self { way: Vec::new(), kind: ErrorKind::NotOneOf(name.into()) }
    }
}

impl std::error::Error for Failure {}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

/// A value to deserialize.
struct Node(Value);

impl Node {
    fn unlike<'de, V: Visitor<'de>>(&self, visitor: &V) -> Failure {
        let found = match &self.0 {
            Value::Null => Unexpected::Other("null"),
            Value::Bool(value) => Unexpected::Bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), ..) => Unexpected::Unsigned(number),
                (None, Some(number), _) => Unexpected::Signed(number),
                (None, None, number) => Unexpected::Float(number.unwrap_or(f64::NAN)),
            },
            Value::String(text) => Unexpected::Str(text),
            Value::Array(_) => Unexpected::Seq,
            Value::Object(_) => Unexpected::Map,
        };
        Failure::invalid_type(found, visitor)
    }
}

impl<'de> Deserializer<'de> for Node {
    type Error = Failure;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.0 {
            Value::Null => Err(self.unlike(&visitor)),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), ..) => visitor.visit_u64(number),
                (None, Some(number), _) => visitor.visit_i64(number),
                (None, None, number) => visitor.visit_f64(number.unwrap_or(f64::NAN)),
            },
            Value::String(text) => visitor.visit_string(text),
            Value::Array(_) => self.deserialize_seq(visitor),
            Value::Object(_) => self.deserialize_map(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.0 {
            Value::Array(elements) => visitor.visit_seq(Elements(elements.into_iter().enumerate())),
            _ => Err(self.unlike(&visitor)),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.0 {
            Value::Object(members) => visitor.visit_map(Members { members: members.into_iter(), next: None }),
            _ => Err(self.unlike(&visitor)),
        }
    }

    /// Accepts objects only. serde would also accept an array of the field values, which no author intends.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.deserialize_map(visitor)
    }

    /// Accepts names only, because a configuration has no enum with data.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        match self.0 {
            Value::String(text) => visitor.visit_enum(text.into_deserializer()),
            _ => Err(self.unlike(&visitor)),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct tuple
        tuple_struct identifier
    }
}

struct Elements(Enumerate<vec::IntoIter<Value>>);

impl<'de> SeqAccess<'de> for Elements {
    type Error = Failure;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Failure> {
        let Some((index, value)) = self.0.next() else { return Ok(None) };
        seed.deserialize(Node(value)).map(Some).map_err(|failure| failure.below(format!("[{index}]")))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

struct Members {
    members: serde_json::map::IntoIter,
    /// The member whose key has been read but whose value has not.
    next: Option<(String, Value)>,
}

impl<'de> MapAccess<'de> for Members {
    type Error = Failure;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Failure> {
        self.next = self.members.next();
        let Some((key, _)) = &self.next else { return Ok(None) };
        seed.deserialize(StrDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Failure> {
        let (key, value) = self.next.take().ok_or_else(|| Failure::custom("a value without a key"))?;
        seed.deserialize(Node(value)).map_err(|failure| failure.below(format!(".{key}")))
    }
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::error::Field;
    use oci_spec::runtime::{LinuxResources, Spec};
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    fn said<T: DeserializeOwned>(value: Value, field: &Field) -> String {
        read::<T>(value, field).map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn field_of_the_wrong_type_is_named() {
        let mounts =
            |options: Value| json!({ "ociVersion": "1.3.0", "mounts": [{ "destination": "/" }, options] });
        let table = [
            (json!({ "ociVersion": "1.3.0" }), ""),
            (json!({ "ociVersion": 1 }), "ociVersion: must be a string, not 1"),
            (json!([1]), "config.json: must be an object, not an array"),
            (mounts(json!({})), "mounts[1].destination: is missing"),
            (mounts(json!(["/"])), "mounts[1]: must be an object, not an array"),
            (
                mounts(json!({ "destination": "/", "options": [null] })),
                "mounts[1].options[0]: must be a string, not null",
            ),
            (
                json!({ "ociVersion": "1", "annotations": { "a.b": true } }),
                "annotations.a.b: must be a string, not true",
            ),
        ];
        for (config, error) in table {
            assert_eq!(said::<Spec>(config, &Field::default()), error);
        }
        let resources = json!({ "pids": { "limit": 1.5 } });
        let error = "linux.resources.pids.limit: must be a whole number, not 1.5";
        assert_eq!(said::<LinuxResources>(resources, &Field::new("linux.resources")), error);
    }
}
