//! The part of protobuf's encoding that CRIU's messages need: numbers, and length-prefixed bytes (protobuf.dev,
//! "Encoding"). It knows no message types.

/// A message that is being encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProtobufMessage(Vec<u8>);

impl ProtobufMessage {
    /// Adds a number. A negative one is encoded in two's complement.
    pub(crate) fn number(&mut self, field: u32, value: impl Into<i64>) -> &mut Self {
        self.varint(u64::from(field) << 3 | NUMBER);
        self.varint(value.into().cast_unsigned());
        self
    }

    pub(crate) fn flag(&mut self, field: u32, value: bool) -> &mut Self {
        self.number(field, value)
    }

    pub(crate) fn bytes(&mut self, field: u32, value: impl AsRef<[u8]>) -> &mut Self {
        let value = value.as_ref();
        self.varint(u64::from(field) << 3 | BYTES);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    pub(crate) fn message(&mut self, field: u32, value: &Self) -> &mut Self {
        self.bytes(field, &value.0)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Writes seven bits at a time, the lowest first. All bytes except the last have the top bit set.
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(low_bits(value) | 0x80);
            value >>= 7;
        }
        self.0.push(low_bits(value));
    }
}

const NUMBER: u64 = 0;
const EIGHT: u64 = 1;
const BYTES: u64 = 2;
const FOUR: u64 = 5;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireValue<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> WireValue<'a> {
    /// Returns the value as a 32-bit number.
    pub(crate) fn number(self) -> Option<i32> {
        match self {
            // A negative number is sign-extended to 64 bits.
            Self::Number(value) => i32::try_from(value.cast_signed()).ok(),
            Self::Bytes(_) => None,
        }
    }

    pub(crate) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Number(_) => None,
        }
    }
}

/// Returns the fields of a message in order, or `None` if it is malformed. Skips fixed-length fields, which are not
/// used.
pub(crate) fn fields(mut bytes: &[u8]) -> Option<Vec<(u32, WireValue<'_>)>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = take_varint(&mut bytes)?;
        let field = u32::try_from(key >> 3).ok()?;
        match key & 7 {
            NUMBER => fields.push((field, WireValue::Number(take_varint(&mut bytes)?))),
            BYTES => {
                let length = usize::try_from(take_varint(&mut bytes)?).ok()?;
                fields.push((field, WireValue::Bytes(bytes.split_off(..length)?)));
            }
            EIGHT => drop(bytes.split_off(..8)?),
            FOUR => drop(bytes.split_off(..4)?),
            _ => return None,
        }
    }
    Some(fields)
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn low_bits(value: u64) -> u8 {
    value.to_le_bytes()[0] & 0x7f
}

#[cfg(test)]
mod tests {
    use super::{ProtobufMessage, WireValue, fields};

    #[test]
    fn written_fields_read_back() {
        let mut inner = ProtobufMessage::default();
        inner.bytes(1, "key").number(2, 300);
        let mut message = ProtobufMessage::default();
        message.number(1, -1).flag(12, true).message(23, &inner).bytes(50, "");
        let read = fields(message.as_bytes()).unwrap();
        assert_eq!(read[0], (1, WireValue::Number(u64::MAX)));
        assert_eq!(read[0].1.number(), Some(-1));
        assert_eq!(read[1], (12, WireValue::Number(1)));
        assert_eq!(read[3], (50, WireValue::Bytes(b"")));
        let inner = fields(read[2].1.bytes().unwrap()).unwrap();
        assert_eq!(inner, [(1, WireValue::Bytes(b"key")), (2, WireValue::Number(300))]);
    }

    #[test]
    fn encoding_matches_protobuf() {
        // The example of the specification of the encoding.
        let mut message = ProtobufMessage::default();
        message.number(1, 150).bytes(2, "testing");
        assert_eq!(message.as_bytes(), b"\x08\x96\x01\x12\x07testing");
        // Fixed-length numbers, which are skipped.
        assert_eq!(fields(b"\x09abcdefgh\x0dabcd\x08\x01"), Some(vec![(1, WireValue::Number(1))]));
    }

    #[test]
    fn malformed_message_is_refused() {
        for bytes in [&b"\x08"[..], b"\x08\x80", b"\x12\x05abc", b"\x0b", b"\x0dabc", &[0xff; 11]] {
            assert_eq!(fields(bytes), None, "{bytes:?}");
        }
    }
}
