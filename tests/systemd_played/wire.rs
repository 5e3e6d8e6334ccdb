//! D-Bus as far as a bus with one service needs it (D-Bus specification, "Marshaling" and "Message Format"). It shares
//! no code with the runtime, so an error in one is not hidden by the same error in the other.

use serde_json::{Value, json};
use std::io::{self, Read};

/// A received message.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) serial: u32,
    pub(super) member: String,
    pub(super) body: Vec<Value>,
}

/// The second byte of a D-Bus message.
#[derive(Clone, Copy)]
pub(super) enum MessageType {
    Return = 2,
    Error = 3,
    Signal = 4,
}

/// Codes of header fields.
pub(super) const PATH: u8 = 1;
pub(super) const INTERFACE: u8 = 2;
pub(super) const MEMBER: u8 = 3;
pub(super) const ERROR_NAME: u8 = 4;
pub(super) const REPLY_SERIAL: u8 = 5;
const SIGNATURE: u8 = 8;

/// Reads the next message.
pub(super) fn read(from: &mut impl Read) -> io::Result<Message> {
    let mut fixed = [0; 16];
    from.read_exact(&mut fixed)?;
    assert_eq!((fixed[0], fixed[3]), (b'l', 1), "little-endian, version 1");
    let [body, serial, fields] =
        [4, 8, 12].map(|at| u32::from_le_bytes(fixed[at..at + 4].try_into().unwrap()));
    let length = fields.next_multiple_of(8);
    let mut rest = vec![0; length as usize + body as usize];
    from.read_exact(&mut rest)?;
    // Alignment counts from the beginning of the message. Header and body both begin at a multiple of eight.
    let (header, body) = rest.split_at(length as usize);
    let mut header = Reader { bytes: &header[..fields as usize], at: 0 };
    let (mut member, mut signature) = (String::new(), String::new());
    while header.at < header.bytes.len() {
        let field = header.value(&mut "(yv)");
        let text = || field[1].as_str().unwrap_or_default().to_owned();
        match field[0].as_u64() {
            Some(3) => member = text(),
            Some(8) => signature = text(),
            _ => {}
        }
    }
    let (mut reader, mut signature) = (Reader { bytes: body, at: 0 }, signature.as_str());
    let mut body = Vec::new();
    while !signature.is_empty() {
        body.push(reader.value(&mut signature));
    }
    assert_eq!(reader.at, reader.bytes.len(), "the body has the announced length");
    Ok(Message { serial, member, body })
}

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Reader<'_> {
    fn take(&mut self, alignment: usize, length: usize) -> &[u8] {
        let start = self.at.next_multiple_of(alignment);
        assert!(self.bytes[self.at..start].iter().all(|byte| *byte == 0), "padding is zero");
        self.at = start + length;
        &self.bytes[start..self.at]
    }

    fn number(&mut self, length: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes[..length].copy_from_slice(self.take(length, length));
        u64::from_le_bytes(bytes)
    }

    fn text(&mut self, length: u64) -> String {
        let bytes = self.take(1, length as usize + 1).to_vec();
        let (text, end) = bytes.split_at(length as usize);
        assert_eq!(end, [0]);
        String::from_utf8(text.to_vec()).unwrap()
    }

    /// Reads a value of the first type in the signature, and removes that type. A variant yields the value in it.
    fn value(&mut self, signature: &mut &str) -> Value {
        let (first, rest) = signature.split_at(1);
        *signature = rest;
        match first {
            "y" => json!(self.number(1)),
            "b" => json!(self.number(4) == 1),
            "u" => json!(self.number(4)),
            "t" => json!(self.number(8)),
            "s" | "o" => {
                let length = self.number(4);
                json!(self.text(length))
            }
            "g" => {
                let length = self.number(1);
                json!(self.text(length))
            }
            "v" => {
                let inner = self.value(&mut "g");
                self.value(&mut inner.as_str().unwrap())
            }
            "a" => {
                let length = self.number(4) as usize;
                let alignment = match rest.as_bytes()[0] {
                    b'(' | b't' => 8,
                    b'y' | b'g' | b'v' => 1,
                    _ => 4,
                };
                self.take(alignment, 0);
                let end = self.at + length;
                let mut values = Vec::new();
                while self.at < end {
                    values.push(self.value(&mut &*rest));
                }
                *signature = &rest[complete(rest)..];
                Value::Array(values)
            }
            "(" => {
                self.take(8, 0);
                let mut values = Vec::new();
                while !signature.starts_with(')') {
                    values.push(self.value(signature));
                }
                *signature = &signature[1..];
                Value::Array(values)
            }
            other => panic!("a value of type {other}"),
        }
    }
}

/// Returns the length of the first complete type.
fn complete(signature: &str) -> usize {
    match signature.as_bytes()[0] {
        b'a' => 1 + complete(&signature[1..]),
        b'(' => {
            let mut at = 1;
            while signature.as_bytes()[at] != b')' {
                at += complete(&signature[at..]);
            }
            at + 1
        }
        _ => 1,
    }
}

/// Encodes a message from its header fields, and its values with their types.
pub(super) fn message(kind: MessageType, fields: &[(u8, char, Value)], body: &[(char, Value)]) -> Vec<u8> {
    let mut written = Vec::new();
    body.iter().for_each(|(kind, value)| write(&mut written, *kind, value));
    let signature: String = body.iter().map(|(kind, _)| kind).collect();
    let mut header = Vec::new();
    let signature = (SIGNATURE, 'g', json!(signature));
    for (code, kind, value) in fields.iter().chain([&signature]) {
        pad(&mut header, 8);
        header.push(*code);
        write(&mut header, 'g', &json!(kind));
        write(&mut header, *kind, value);
    }
    let mut bytes = vec![b'l', kind as u8, 0, 1];
    for number in [written.len(), 1, header.len()] {
        write(&mut bytes, 'u', &json!(number));
    }
    bytes.extend(header);
    pad(&mut bytes, 8);
    bytes.extend(written);
    bytes
}

fn pad(out: &mut Vec<u8>, alignment: usize) {
    out.resize(out.len().next_multiple_of(alignment), 0);
}

fn write(out: &mut Vec<u8>, kind: char, value: &Value) {
    let text = value.as_str().unwrap_or_default();
    match kind {
        'u' => {
            pad(out, 4);
            out.extend(u32::try_from(value.as_u64().unwrap()).unwrap().to_le_bytes());
        }
        'g' => {
            out.push(u8::try_from(text.len()).unwrap());
            out.extend(text.bytes().chain([0]));
        }
        // A variant always contains a string.
        'v' => {
            write(out, 'g', &json!("s"));
            write(out, 's', value);
        }
        _ => {
            write(out, 'u', &json!(text.len()));
            out.extend(text.bytes().chain([0]));
        }
    }
}
