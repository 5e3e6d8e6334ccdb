//! D-Bus values, and their encoding (D-Bus specification, "Type System" and "Marshaling").
//!
//! Performs no I/O. Input is untrusted: lengths, nesting and alignment are checked.

use crate::error::Malformed;

/// The deepest nesting of containers (the specification: 32 arrays and 32 structures).
const DEEPEST: u32 = 64;

#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the types of D-Bus")]
pub enum Value {
    Byte(u8),
    Bool(bool),
    I16(i16),
    U16(u16),
    I32(i32),
    U32(u32),
    I64(i64),
    U64(u64),
    Double(f64),
    Text(String),
    Path(String),
    Signature(String),
    /// The signature of the elements, which an empty array needs too, and the elements.
    Array(String, Vec<Value>),
    Struct(Vec<Value>),
    /// An entry of a dictionary; a dictionary is an array of entries.
    Entry(Box<(Value, Value)>),
    Variant(Box<Value>),
}

impl Value {
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Returns the value's type signature.
    #[must_use]
    pub fn signature(&self) -> String {
        match self {
            Self::Byte(_) => "y".to_owned(),
            Self::Bool(_) => "b".to_owned(),
            Self::I16(_) => "n".to_owned(),
            Self::U16(_) => "q".to_owned(),
            Self::I32(_) => "i".to_owned(),
            Self::U32(_) => "u".to_owned(),
            Self::I64(_) => "x".to_owned(),
            Self::U64(_) => "t".to_owned(),
            Self::Double(_) => "d".to_owned(),
            Self::Text(_) => "s".to_owned(),
            Self::Path(_) => "o".to_owned(),
            Self::Signature(_) => "g".to_owned(),
            Self::Array(element, _) => format!("a{element}"),
            Self::Struct(members) => {
                format!("({})", members.iter().map(Self::signature).collect::<String>())
            }
            Self::Entry(entry) => format!("{{{}{}}}", entry.0.signature(), entry.1.signature()),
            Self::Variant(_) => "v".to_owned(),
        }
    }

    /// Returns the text of a string, path or signature, or of a variant with one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Path(text) | Self::Signature(text) => Some(text),
            Self::Variant(value) => value.as_text(),
            _ => None,
        }
    }

    /// Appends the encoded value. Alignment counts from the start of `out`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Byte(value) => out.push(*value),
            Self::Bool(value) => put(out, u32::from(*value).to_le_bytes()),
            Self::I16(value) => put(out, value.to_le_bytes()),
            Self::U16(value) => put(out, value.to_le_bytes()),
            Self::I32(value) => put(out, value.to_le_bytes()),
            Self::U32(value) => put(out, value.to_le_bytes()),
            Self::I64(value) => put(out, value.to_le_bytes()),
            Self::U64(value) => put(out, value.to_le_bytes()),
            Self::Double(value) => put(out, value.to_le_bytes()),
            Self::Text(text) | Self::Path(text) => {
                put(out, length(text.len()).to_le_bytes());
                out.extend(text.as_bytes());
                out.push(0);
            }
            Self::Signature(text) => {
                // Signatures have at most 255 bytes; ours have a few.
                out.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
                out.extend(text.as_bytes());
                out.push(0);
            }
            Self::Array(element, values) => {
                put(out, [0; 4]);
                let place = out.len() - 4;
                // Padding before the first element is not part of the length.
                align(out, alignment(element.as_bytes().first().copied()));
                let start = out.len();
                values.iter().for_each(|value| value.write(out));
                let bytes = length(out.len() - start).to_le_bytes();
                if let Some(room) = out.get_mut(place..place + 4) {
                    room.copy_from_slice(&bytes);
                }
            }
            Self::Struct(members) => {
                align(out, 8);
                members.iter().for_each(|member| member.write(out));
            }
            Self::Entry(entry) => {
                align(out, 8);
                entry.0.write(out);
                entry.1.write(out);
            }
            Self::Variant(value) => {
                Self::Signature(value.signature()).write(out);
                value.write(out);
            }
        }
    }
}

/// Converts a length to 32 bits. D-Bus messages are at most 128 MiB long.
fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn put<const N: usize>(out: &mut Vec<u8>, bytes: [u8; N]) {
    align(out, N);
    out.extend(bytes);
}

pub(crate) fn align(out: &mut Vec<u8>, alignment: usize) {
    out.resize(out.len().next_multiple_of(alignment), 0);
}

/// Returns the alignment of the type that begins with this letter.
const fn alignment(first: Option<u8>) -> usize {
    match first {
        Some(b'y' | b'g' | b'v') => 1,
        Some(b'n' | b'q') => 2,
        Some(b'x' | b't' | b'd' | b'(' | b'{') => 8,
        _ => 4,
    }
}

/// Splits off the first complete type of a signature.
pub(crate) fn first_type(signature: &str) -> Option<(&str, &str)> {
    let end = type_end(signature.as_bytes(), 0)?;
    signature.split_at_checked(end)
}

fn type_end(signature: &[u8], depth: u32) -> Option<usize> {
    if depth > DEEPEST {
        return None;
    }
    let close = match signature.first()? {
        b'a' => return Some(1 + type_end(signature.get(1..)?, depth + 1)?),
        b'(' => b')',
        b'{' => b'}',
        b'y' | b'b' | b'n' | b'q' | b'i' | b'u' | b'x' | b't' | b'd' | b's' | b'o' | b'g' | b'v' | b'h' => {
            return Some(1);
        }
        _ => return None,
    };
    let mut end = 1;
    while *signature.get(end)? != close {
        end += type_end(signature.get(end..)?, depth + 1)?;
    }
    Some(end + 1)
}

/// Decodes values of a D-Bus message.
pub(crate) struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Reader<'b> {
    /// Creates a decoder. Alignment counts from the start of `bytes`.
    pub(crate) const fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) const fn position(&self) -> usize {
        self.at
    }

    /// Decodes the values of a whole signature.
    pub(crate) fn values(&mut self, mut signature: &str) -> Result<Vec<Value>, Malformed> {
        let mut values = Vec::new();
        while !signature.is_empty() {
            let (first, rest) = first_type(signature).ok_or(Malformed)?;
            values.push(self.value(first, 0)?);
            signature = rest;
        }
        Ok(values)
    }

    fn take(&mut self, count: usize) -> Result<&'b [u8], Malformed> {
        let end = self.at.checked_add(count).ok_or(Malformed)?;
        let bytes = self.bytes.get(self.at..end).ok_or(Malformed)?;
        self.at = end;
        Ok(bytes)
    }

    pub(crate) fn align(&mut self, alignment: usize) -> Result<(), Malformed> {
        let padding = self.at.next_multiple_of(alignment) - self.at;
        self.take(padding).map(drop)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.align(N)?;
        self.take(N)?.first_chunk().copied().ok_or(Malformed)
    }

    fn word(&mut self) -> Result<u32, Malformed> {
        self.fixed().map(u32::from_le_bytes)
    }

    fn string(&mut self, length: usize) -> Result<String, Malformed> {
        let text = core::str::from_utf8(self.take(length)?).map_err(|_| Malformed)?;
        match self.take(1)? {
            [0] => Ok(text.to_owned()),
            _ => Err(Malformed),
        }
    }

    fn value(&mut self, signature: &str, depth: u32) -> Result<Value, Malformed> {
        if depth > DEEPEST {
            return Err(Malformed);
        }
        let inner = || signature.get(1..signature.len() - 1).ok_or(Malformed);
        Ok(match signature.as_bytes().first() {
            Some(b'y') => Value::Byte(self.fixed().map(u8::from_le_bytes)?),
            Some(b'b') => match self.word()? {
                0 => Value::Bool(false),
                1 => Value::Bool(true),
                _ => return Err(Malformed),
            },
            Some(b'n') => Value::I16(self.fixed().map(i16::from_le_bytes)?),
            Some(b'q') => Value::U16(self.fixed().map(u16::from_le_bytes)?),
            Some(b'i') => Value::I32(self.fixed().map(i32::from_le_bytes)?),
            // A descriptor is an index into the descriptors that came with the message.
            Some(b'u' | b'h') => Value::U32(self.word()?),
            Some(b'x') => Value::I64(self.fixed().map(i64::from_le_bytes)?),
            Some(b't') => Value::U64(self.fixed().map(u64::from_le_bytes)?),
            Some(b'd') => Value::Double(self.fixed().map(f64::from_le_bytes)?),
            Some(letter @ (b's' | b'o')) => {
                let length = usize::try_from(self.word()?).map_err(|_| Malformed)?;
                let text = self.string(length)?;
                if *letter == b's' { Value::Text(text) } else { Value::Path(text) }
            }
            Some(b'g') => Value::Signature(self.signature()?),
            Some(b'v') => {
                let signature = self.signature()?;
                match first_type(&signature) {
                    Some((one, "")) => Value::Variant(Box::new(self.value(one, depth + 1)?)),
                    _ => return Err(Malformed),
                }
            }
            Some(b'a') => self.array(signature.get(1..).ok_or(Malformed)?, depth)?,
            Some(b'(') => {
                self.align(8)?;
                let mut members = Vec::new();
                let mut rest = inner()?;
                while let Some((first, after)) = first_type(rest) {
                    members.push(self.value(first, depth + 1)?);
                    rest = after;
                }
                Value::Struct(members)
            }
            Some(b'{') => {
                self.align(8)?;
                let (key, value) = first_type(inner()?).ok_or(Malformed)?;
                let key = self.value(key, depth + 1)?;
                Value::Entry(Box::new((key, self.value(value, depth + 1)?)))
            }
            _ => return Err(Malformed),
        })
    }

    fn signature(&mut self) -> Result<String, Malformed> {
        let [length] = self.fixed()?;
        self.string(length.into())
    }

    fn array(&mut self, element: &str, depth: u32) -> Result<Value, Malformed> {
        let length = usize::try_from(self.word()?).map_err(|_| Malformed)?;
        self.align(alignment(element.as_bytes().first().copied()))?;
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len()).ok_or(Malformed)?;
        let mut values = Vec::new();
        while self.at < end {
            values.push(self.value(element, depth + 1)?);
        }
        if self.at == end { Ok(Value::Array(element.to_owned(), values)) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_values_read_back() {
        let values = [
            Value::Byte(7),
            Value::Bool(true),
            Value::I16(-2),
            Value::U64(u64::MAX),
            Value::Double(1.5),
            Value::text("häusk"),
            Value::Path("/a".to_owned()),
            Value::Signature("a(sv)".to_owned()),
            Value::Array("t".to_owned(), vec![]),
            Value::Array("s".to_owned(), vec![Value::text("a"), Value::text("bcdef")]),
            Value::Struct(vec![
                Value::text("PIDs"),
                Value::Variant(Box::new(Value::Array("u".to_owned(), vec![Value::U32(1)]))),
            ]),
            Value::Array(
                "{sv}".to_owned(),
                vec![Value::Entry(Box::new((Value::text("k"), Value::Variant(Box::new(Value::I32(-5))))))],
            ),
            Value::Array("ay".to_owned(), vec![Value::Array("y".to_owned(), vec![Value::Byte(1)])]),
        ];
        // Every value at every alignment.
        for skew in 0..8 {
            let mut out = vec![0; skew];
            values.iter().for_each(|value| value.write(&mut out));
            let signature: String = values.iter().map(Value::signature).collect();
            let mut reader = Reader::new(&out);
            reader.take(skew).unwrap();
            assert_eq!(reader.values(&signature).unwrap(), values, "at {skew}");
            assert_eq!(reader.position(), out.len());
        }
    }

    #[test]
    fn value_bytes_match_the_specification() {
        // An array of 64-bit numbers: length, padding that is not part of it, number.
        let mut out = Vec::new();
        Value::Array("x".to_owned(), vec![Value::I64(5)]).write(&mut out);
        assert_eq!(out, [8, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        // A variant: signature with length and NUL, padding, value.
        let mut out = Vec::new();
        Value::Variant(Box::new(Value::text("foo"))).write(&mut out);
        assert_eq!(out, *b"\x01s\0\0\x03\0\0\0foo\0");
    }

    #[test]
    fn malformed_bytes_are_an_error() {
        let table: [(&str, &[u8]); 8] = [
            ("s", b"\xff\xff\xff\xff"),
            ("s", b"\x01\0\0\0ab"),
            ("b", b"\x02\0\0\0"),
            ("as", b"\x05\0\0\0\x01\0\0\0a"),
            ("v", b"\x02ss\0"),
            ("v", b"\x01(\0"),
            ("{s", b""),
            ("z", b"\0"),
        ];
        for (signature, bytes) in table {
            assert!(Reader::new(bytes).values(signature).is_err(), "{signature} {bytes:?}");
        }
        // Endlessly nested variants.
        assert!(Reader::new(&b"\x01v\0".repeat(100)).values("v").is_err());
        assert!(first_type(&"a".repeat(200)).is_none());
    }

    #[test]
    fn truncation_at_any_byte_is_an_error() {
        let value = Value::Struct(vec![
            Value::text("name"),
            Value::Variant(Box::new(Value::Array(
                "(ss)".to_owned(),
                vec![Value::Struct(vec![Value::text("a"), Value::text("b")])],
            ))),
        ]);
        let mut out = Vec::new();
        value.write(&mut out);
        for end in 0..out.len() {
            assert!(Reader::new(&out[..end]).values("(sv)").is_err(), "{end}");
        }
    }
}
