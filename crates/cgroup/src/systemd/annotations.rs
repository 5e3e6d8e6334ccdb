//! Annotations `org.systemd.property.NAME`: unit properties with a value in GVariant's text format.
//!
//! Values are parsed to typed values and never inserted into another text, so they cannot inject anything. The
//! parser supports booleans, numbers, text, variants and arrays. `@TYPE` or the name of a type before a value
//! sets its type.

use super::properties::Property;
use super::value::{Value, first_type};
use crate::error::SystemdError as Error;
use std::collections::BTreeMap;

/// The prefix of these annotations' keys.
pub const ANNOTATIONS: &str = "org.systemd.property.";

/// The deepest nesting of arrays and variants.
const DEEPEST: u32 = 8;

/// Properties that set a unit's processes. Only our own process may be in the unit, and no other of the host.
const PROCESSES: [&str; 2] = ["PIDs", "PIDFDs"];

/// Returns the properties among the annotations.
///
/// # Errors
///
/// If a name or value is invalid. The error names the annotation.
pub fn from_annotations(annotations: &BTreeMap<String, String>) -> Result<Vec<Property>, Error> {
    let ours =
        annotations.iter().filter_map(|(key, value)| Some((key, key.strip_prefix(ANNOTATIONS)?, value)));
    ours.map(|(key, name, text)| {
        let wrong =
            |reason: &str| Error::Field { field: format!("annotations.{key}"), reason: reason.to_owned() };
        if name.len() < 3 || !name.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return Err(wrong(
                "is not the name of a property: it takes three or more letters, and no other characters",
            ));
        }
        if PROCESSES.contains(&name) {
            return Err(wrong("would move processes of the host into the container's unit"));
        }
        let value = parse(text)
            .ok_or_else(|| wrong(&format!("{text:?} is not a value in GVariant's text format")))?;
        // Unit files use seconds, and the bus uses microseconds.
        let seconds = name.strip_suffix("Sec");
        match seconds.filter(|name| name.ends_with(|letter: char| letter.is_ascii_lowercase())) {
            Some(name) => {
                let value = microseconds(&value).ok_or_else(|| wrong("not a number of seconds"))?;
                Ok(Property { name: format!("{name}USec"), value })
            }
            None => Ok(Property { name: name.to_owned(), value }),
        }
    })
    .collect()
}

fn microseconds(seconds: &Value) -> Option<Value> {
    const MILLION: u64 = 1_000_000;
    let whole = match *seconds {
        Value::Byte(value) => u64::from(value),
        Value::U16(value) => u64::from(value),
        Value::U32(value) => u64::from(value),
        Value::U64(value) => value,
        Value::I16(value) => u64::try_from(value).ok()?,
        Value::I32(value) => u64::try_from(value).ok()?,
        Value::I64(value) => u64::try_from(value).ok()?,
        Value::Double(value) if (0.0..1e12).contains(&value) => {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
            return Some(Value::U64((value * 1e6) as u64));
        }
        _ => return None,
    };
    whole.checked_mul(MILLION).map(Value::U64)
}

/// Parses the value of an annotation; returns `None` if it is not valid as a whole.
fn parse(text: &str) -> Option<Value> {
    let mut parser = Parser { rest: text };
    let value = parser.value(None, 0)?;
    parser.skip();
    parser.rest.is_empty().then_some(value)
}

struct Parser<'t> {
    rest: &'t str,
}

impl<'t> Parser<'t> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip();
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Reads a word, which ends at white space, `,`, `]` or `>`.
    fn word(&mut self) -> &'t str {
        self.skip();
        let end = self.rest.find(|letter: char| letter.is_whitespace() || ",]>".contains(letter));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    /// Parses a value, which must have the type `wanted` if that is given.
    fn value(&mut self, wanted: Option<&str>, depth: u32) -> Option<Value> {
        if depth > DEEPEST {
            return None;
        }
        self.skip();
        if self.eat("@") {
            let signature = self.word();
            let known =
                matches!(first_type(signature), Some((_, ""))) && wanted.is_none_or(|it| it == signature);
            return known.then(|| self.value(Some(signature), depth + 1))?;
        }
        if self.eat("[") {
            return self.array(wanted, depth);
        }
        if self.eat("<") {
            let value = self.value(None, depth + 1)?;
            let is_variant = self.eat(">") && wanted.is_none_or(|it| it == "v");
            return is_variant.then(|| Value::Variant(Box::new(value)));
        }
        if self.rest.starts_with(['\'', '"']) {
            let text = self.text()?;
            return match wanted {
                None | Some("s") => Some(Value::Text(text)),
                Some("o") if text.starts_with('/') => Some(Value::Path(text)),
                Some("g") => Some(Value::Signature(text)),
                _ => None,
            };
        }
        let word = self.word();
        match type_named(word) {
            Some(named) if wanted.is_none_or(|it| it == named) => self.value(Some(named), depth + 1),
            Some(_) => None,
            None => scalar(word, wanted),
        }
    }

    fn array(&mut self, wanted: Option<&str>, depth: u32) -> Option<Value> {
        let element = match wanted {
            Some(signature) => Some(signature.strip_prefix('a')?),
            None => None,
        };
        let mut values: Vec<Value> = Vec::new();
        while !self.eat("]") {
            if !values.is_empty() && !self.eat(",") {
                return None;
            }
            // All elements have the type of the first.
            let first = values.first().map(Value::signature);
            values.push(self.value(element.or(first.as_deref()), depth + 1)?);
        }
        let element = element.map(ToOwned::to_owned).or_else(|| values.first().map(Value::signature))?;
        Some(Value::Array(element, values))
    }

    /// Parses quoted text with escapes as in C.
    fn text(&mut self) -> Option<String> {
        let mut letters = self.rest.chars();
        let quote = letters.next()?;
        let mut text = String::new();
        loop {
            match letters.next()? {
                letter if letter == quote => break,
                '\\' => text.push(match letters.next()? {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    'u' => hexadecimal(&mut letters, 4)?,
                    'U' => hexadecimal(&mut letters, 8)?,
                    letter => letter,
                }),
                letter => text.push(letter),
            }
        }
        self.rest = letters.as_str();
        // D-Bus terminates text with NUL.
        (!text.contains('\0')).then_some(text)
    }
}

fn hexadecimal(letters: &mut core::str::Chars<'_>, count: usize) -> Option<char> {
    let (digits, rest) = letters.as_str().split_at_checked(count)?;
    *letters = rest.chars();
    char::from_u32(u32::from_str_radix(digits, 16).ok()?)
}

fn type_named(word: &str) -> Option<&'static str> {
    Some(match word {
        "boolean" => "b",
        "byte" => "y",
        "int16" => "n",
        "uint16" => "q",
        "int32" => "i",
        "uint32" => "u",
        "int64" => "x",
        "uint64" => "t",
        "double" => "d",
        "string" => "s",
        "objectpath" => "o",
        "signature" => "g",
        _ => return None,
    })
}

/// Parses a boolean or a number. An integer without a given type is `int32`.
fn scalar(word: &str, wanted: Option<&str>) -> Option<Value> {
    match (word, wanted) {
        ("true", None | Some("b")) => return Some(Value::Bool(true)),
        ("false", None | Some("b")) => return Some(Value::Bool(false)),
        _ => {}
    }
    let is_number =
        word.strip_prefix(['-', '+']).unwrap_or(word).starts_with(|digit: char| digit.is_ascii_digit());
    let is_hexadecimal = word.contains("0x");
    if !is_number {
        return None;
    }
    if wanted == Some("d") || (wanted.is_none() && !is_hexadecimal && word.contains(['.', 'e', 'E'])) {
        return word.parse().ok().filter(|value: &f64| value.is_finite()).map(Value::Double);
    }
    let number = whole(word)?;
    Some(match wanted {
        Some("y") => Value::Byte(number.try_into().ok()?),
        Some("n") => Value::I16(number.try_into().ok()?),
        Some("q") => Value::U16(number.try_into().ok()?),
        None | Some("i") => Value::I32(number.try_into().ok()?),
        Some("u") => Value::U32(number.try_into().ok()?),
        Some("x") => Value::I64(number.try_into().ok()?),
        Some("t") => Value::U64(number.try_into().ok()?),
        _ => return None,
    })
}

fn whole(word: &str) -> Option<i128> {
    let (sign, digits) = match word.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, word.strip_prefix('+').unwrap_or(word)),
    };
    let number = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    number.ok().map(|number| sign * i128::from(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotation_that_moves_processes_is_refused() {
        for name in ["PIDs", "PIDFDs"] {
            let annotation = (format!("{ANNOTATIONS}{name}"), "[uint32 1]".to_owned());
            let error = from_annotations(&[annotation].into()).unwrap_err().to_string();
            let expected = format!("annotations.{ANNOTATIONS}{name}: would move processes");
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn annotation_values_are_parsed_by_type() {
        let texts = |texts: &[&str]| {
            Value::Array("s".to_owned(), texts.iter().map(|text| Value::text(*text)).collect())
        };
        let table = [
            ("true", Some(Value::Bool(true))),
            ("5", Some(Value::I32(5))),
            ("-0x10", Some(Value::I32(-16))),
            ("uint64 5", Some(Value::U64(5))),
            ("@t 5", Some(Value::U64(5))),
            ("byte 255", Some(Value::Byte(255))),
            ("1.5", Some(Value::Double(1.5))),
            ("double 2", Some(Value::Double(2.0))),
            ("'it\\'s'", Some(Value::text("it's"))),
            ("\"a\\u00e4\"", Some(Value::text("aä"))),
            ("objectpath '/a'", Some(Value::Path("/a".to_owned()))),
            ("['a', 'b']", Some(texts(&["a", "b"]))),
            ("@as []", Some(texts(&[]))),
            ("[uint32 1, 2]", Some(Value::Array("u".to_owned(), vec![Value::U32(1), Value::U32(2)]))),
            ("[['a'], ['b']]", Some(Value::Array("as".to_owned(), vec![texts(&["a"]), texts(&["b"])]))),
            ("<'a'>", Some(Value::Variant(Box::new(Value::text("a"))))),
            ("[]", None),
            ("[1, 'a']", None),
            ("byte 256", None),
            ("uint32 -1", None),
            ("9999999999", None),
            ("'a", None),
            ("'a' 'b'", None),
            ("", None),
            ("yes", None),
            ("@as 5", None),
            ("'a\\u0000'", None),
            ("nan", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse(text), expected, "{text}");
        }
        assert_eq!(parse(&"[".repeat(1000)), None);
    }

    #[test]
    fn annotations_become_properties() {
        let of = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            from_annotations(&pairs.collect())
        };
        let properties = of(&[
            ("other", "1"),
            ("org.systemd.property.CollectMode", "'inactive-or-failed'"),
            ("org.systemd.property.TimeoutStopSec", "uint64 90"),
            ("org.systemd.property.RestartSec", "1.5"),
        ]);
        let expected = [
            Property::new("CollectMode", Value::text("inactive-or-failed")),
            Property::new("RestartUSec", Value::U64(1_500_000)),
            Property::new("TimeoutStopUSec", Value::U64(90_000_000)),
        ];
        assert_eq!(properties.unwrap(), expected);
        for (name, value) in [
            ("X1", "1"),
            ("Ab", "1"),
            ("Job Mode", "1"),
            ("Abc", "maybe"),
            ("RunSec", "'x'"),
            ("RunSec", "-1"),
        ] {
            let error = of(&[(&format!("org.systemd.property.{name}"), value)]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("annotations.org.systemd.property.{name}: ")), "{error}");
        }
    }
}
