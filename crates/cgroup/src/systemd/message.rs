//! D-Bus messages (D-Bus specification, "Message Format").

use super::value::{Reader, Value, align};
use crate::error::Malformed;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageType {
    Call = 1,
    Return = 2,
    Error = 3,
    Signal = 4,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Message {
    pub(crate) kind: MessageType,
    pub(crate) serial: u32,
    pub(crate) reply_to: Option<u32>,
    pub(crate) path: Option<String>,
    pub(crate) interface: Option<String>,
    pub(crate) member: Option<String>,
    pub(crate) error: Option<String>,
    pub(crate) destination: Option<String>,
    pub(crate) sender: Option<String>,
    pub(crate) body: Vec<Value>,
}

/// Codes of header fields.
mod field {
    pub(super) const PATH: u8 = 1;
    pub(super) const INTERFACE: u8 = 2;
    pub(super) const MEMBER: u8 = 3;
    pub(super) const ERROR_NAME: u8 = 4;
    pub(super) const REPLY_SERIAL: u8 = 5;
    pub(super) const DESTINATION: u8 = 6;
    /// The sender, which the bus sets for the receiver.
    pub(super) const SENDER: u8 = 7;
    pub(super) const SIGNATURE: u8 = 8;
}

/// The length of the header's fixed part, up to and including the length of its fields.
pub(crate) const FIXED: usize = 16;

/// The longest message: 128 MiB.
const LONGEST: usize = 1 << 27;

impl Message {
    pub(crate) const fn new(kind: MessageType) -> Self {
        Self {
            kind,
            serial: 0,
            reply_to: None,
            path: None,
            interface: None,
            member: None,
            error: None,
            destination: None,
            sender: None,
            body: Vec::new(),
        }
    }

    /// Returns the encoded message.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(512);
        self.body.iter().for_each(|value| value.write(&mut body));
        let entry = |code, value| Value::Struct(vec![Value::Byte(code), Value::Variant(Box::new(value))]);
        let text = |code, text: &Option<String>, make: fn(String) -> Value| {
            text.clone().map(|text| entry(code, make(text)))
        };
        let signature: String = self.body.iter().map(Value::signature).collect();
        let signature = (!signature.is_empty()).then_some(signature);
        let fields = [
            text(field::PATH, &self.path, Value::Path),
            text(field::INTERFACE, &self.interface, Value::Text),
            text(field::MEMBER, &self.member, Value::Text),
            text(field::ERROR_NAME, &self.error, Value::Text),
            self.reply_to.map(|serial| entry(field::REPLY_SERIAL, Value::U32(serial))),
            text(field::DESTINATION, &self.destination, Value::Text),
            text(field::SIGNATURE, &signature, Value::Signature),
        ];
        let mut out = Vec::with_capacity(256 + body.len());
        out.extend([b'l', self.kind as u8, 0, 1]);
        out.extend(u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend(self.serial.to_le_bytes());
        Value::Array("(yv)".to_owned(), fields.into_iter().flatten().collect()).write(&mut out);
        align(&mut out, 8);
        out.extend(body);
        out
    }

    /// Returns the length of the message that begins with these bytes; `None` if there are too few to tell.
    pub(crate) fn length(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        let Some(header) = bytes.first_chunk::<FIXED>() else { return Ok(None) };
        // Both ends are on one machine, so they use one byte order.
        let [b'l', _, _, 1, ..] = header else { return Err(Malformed) };
        let word = |at: usize| {
            let bytes = header.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
            usize::try_from(u32::from_le_bytes(bytes)).unwrap_or(usize::MAX)
        };
        let (body, fields) = (word(4), word(12));
        if body > LONGEST || fields > LONGEST {
            return Err(Malformed);
        }
        Ok(Some((FIXED + fields).next_multiple_of(8) + body))
    }

    /// Decodes a message; `None` if its kind is unknown, so that it must be ignored.
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        let mut reader = Reader::new(bytes);
        let head = reader.values("yyyyuua(yv)")?;
        let [_, Value::Byte(kind), _, _, _, Value::U32(serial), Value::Array(_, fields)] = head.as_slice()
        else {
            return Err(Malformed);
        };
        let kind = match kind {
            1 => MessageType::Call,
            2 => MessageType::Return,
            3 => MessageType::Error,
            4 => MessageType::Signal,
            _ => return Ok(None),
        };
        let mut message = Self { serial: *serial, ..Self::new(kind) };
        let mut signature = String::new();
        for entry in fields {
            let Value::Struct(entry) = entry else { return Err(Malformed) };
            let [Value::Byte(code), Value::Variant(value)] = entry.as_slice() else { return Err(Malformed) };
            let text = || value.as_text().map(ToOwned::to_owned);
            match *code {
                field::PATH => message.path = text(),
                field::INTERFACE => message.interface = text(),
                field::MEMBER => message.member = text(),
                field::ERROR_NAME => message.error = text(),
                field::DESTINATION => message.destination = text(),
                field::SENDER => message.sender = text(),
                field::SIGNATURE => signature = text().unwrap_or_default(),
                field::REPLY_SERIAL => match **value {
                    Value::U32(serial) => message.reply_to = Some(serial),
                    _ => return Err(Malformed),
                },
                _ => {}
            }
        }
        reader.align(8)?;
        // Alignment counts from the start of the body, which is aligned.
        message.body = Reader::new(bytes.get(reader.position()..).ok_or(Malformed)?).values(&signature)?;
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encoded by hand, field by field.
    const HELLO: &[u8] = b"l\x01\0\x01\0\0\0\0\x01\0\0\0\x6d\0\0\0\
        \x01\x01o\0\x15\0\0\0/org/freedesktop/DBus\0\0\0\
        \x02\x01s\0\x14\0\0\0org.freedesktop.DBus\0\0\0\0\
        \x03\x01s\0\x05\0\0\0Hello\0\0\0\
        \x06\x01s\0\x14\0\0\0org.freedesktop.DBus\0\0\0\0";

    #[test]
    fn call_bytes_match_the_specification() {
        let hello = Message {
            serial: 1,
            path: Some("/org/freedesktop/DBus".to_owned()),
            interface: Some("org.freedesktop.DBus".to_owned()),
            member: Some("Hello".to_owned()),
            destination: Some("org.freedesktop.DBus".to_owned()),
            ..Message::new(MessageType::Call)
        };
        assert_eq!(hello.bytes(), HELLO);
        assert_eq!(Message::length(HELLO), Ok(Some(HELLO.len())));
        assert_eq!(Message::read(HELLO), Ok(Some(hello)));
    }

    #[test]
    fn written_message_reads_back() {
        let message = Message {
            serial: 9,
            reply_to: Some(3),
            error: Some("a.b.C".to_owned()),
            body: vec![Value::text("why"), Value::U64(1)],
            ..Message::new(MessageType::Error)
        };
        let bytes = message.bytes();
        assert_eq!(Message::read(&bytes), Ok(Some(message)));
        for end in 0..FIXED {
            assert_eq!(Message::length(&bytes[..end]), Ok(None));
        }
    }
}
