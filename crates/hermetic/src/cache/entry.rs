//! An entry of the store: what is remembered of a run that passed.
//!
//! ```text
//! husk-cache 2
//! key      DIGEST
//! wall     MICROSECONDS
//! pieces   NUMBER      of the lines that follow
//! piece    BYTES       each followed by that many bytes and a line break
//! errors   BYTES
//! digest   DIGEST      of everything before this line
//! ```

use super::digest::Digest;
use std::time::Duration;

const MAGIC: &str = "husk-cache 2\n";

/// Longer times are not those of a test: some months, in microseconds. Sums of shorter ones do not overflow.
const MOST_MICROS: u64 = 10_000_000_000_000;

/// Output beyond this is not remembered, and neither is its test.
pub(crate) const MOST_OUTPUT: usize = 1 << 20;

/// The most bytes of the line before a piece, and of the line break after it.
const PIECE_LINE: usize = "piece 1048576\n\n".len();

/// A run that passed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Remembered {
    /// How long it took.
    pub(crate) wall: Duration,
    /// Standard output. Between two pieces was the token of that run.
    pub(crate) out: Vec<Vec<u8>>,
    pub(crate) errors: Vec<u8>,
}

impl Remembered {
    pub(crate) fn new(wall: Duration, out: &[u8], errors: Vec<u8>, token: Option<&str>) -> Self {
        let Some(token) = token.map(str::as_bytes).filter(|token| !token.is_empty()) else {
            return Self { wall, out: vec![out.to_vec()], errors };
        };
        let (mut pieces, mut rest) = (Vec::new(), out);
        while let Some(place) = rest.windows(token.len()).position(|window| window == token) {
            let (piece, after) = rest.split_at(place);
            pieces.push(piece.to_vec());
            rest = after.get(token.len()..).unwrap_or_default();
        }
        pieces.push(rest.to_vec());
        Self { wall, out: pieces, errors }
    }

    /// Returns standard output as if this had been the token of the run.
    pub(crate) fn out(&self, token: Option<&str>) -> Vec<u8> {
        self.out.join(token.unwrap_or_default().as_bytes())
    }

    pub(crate) fn is_small(&self) -> bool {
        // Each piece takes a line.
        let out = self.out.iter().fold(0, |sum, piece| sum + piece.len() + PIECE_LINE);
        out + self.errors.len() <= MOST_OUTPUT
    }

    pub(crate) fn to_bytes(&self, key: Digest) -> Vec<u8> {
        let Self { wall, out, errors } = self;
        let head = format!("{MAGIC}key {key}\nwall {}\npieces {}\n", wall.as_micros(), out.len());
        let mut bytes = head.into_bytes();
        let pieces = out.iter().map(|piece| ("piece", piece));
        for (name, value) in pieces.chain([("errors", errors)]) {
            bytes.extend_from_slice(format!("{name} {}\n", value.len()).as_bytes());
            bytes.extend_from_slice(value);
            bytes.push(b'\n');
        }
        let digest = Digest::of(&bytes);
        bytes.extend_from_slice(format!("digest {digest}\n").as_bytes());
        bytes
    }

    /// Returns `None` if the bytes are damaged or belong to another key.
    pub(crate) fn from_bytes(bytes: &[u8], key: Digest) -> Option<Self> {
        let last = format!("digest {}\n", Digest::of(&[])).len();
        let (content, digest) = bytes.split_at_checked(bytes.len().checked_sub(last)?)?;
        if digest != format!("digest {}\n", Digest::of(content)).as_bytes() {
            return None;
        }
        let rest = content.strip_prefix(format!("{MAGIC}key {key}\n").as_bytes())?;
        let (wall, rest) = number("wall", rest)?;
        let (count, mut rest) = number("pieces", rest)?;
        let mut out = Vec::new();
        for _ in 0..count {
            let (piece, after) = field("piece", rest)?;
            out.push(piece.to_vec());
            rest = after;
        }
        let (errors, rest) = field("errors", rest)?;
        let wall = Some(wall).filter(|wall| *wall <= MOST_MICROS).map(Duration::from_micros)?;
        rest.is_empty().then(|| Self { wall, out, errors: errors.to_vec() })
    }
}

/// Reads a line of a name and a number. Also returns the bytes after it.
fn number<'b>(name: &str, bytes: &'b [u8]) -> Option<(u64, &'b [u8])> {
    let rest = bytes.strip_prefix(name.as_bytes())?.strip_prefix(b" ")?;
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let (number, rest) = rest.split_at(end);
    Some((std::str::from_utf8(number).ok()?.parse().ok()?, rest.get(1..)?))
}

fn field<'b>(name: &str, bytes: &'b [u8]) -> Option<(&'b [u8], &'b [u8])> {
    let (length, rest) = number(name, bytes)?;
    let (value, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    Some((value, rest.strip_prefix(b"\n")?))
}

#[cfg(test)]
mod tests {
    use super::{Digest, Remembered};
    use std::time::Duration;

    #[test]
    fn hostile_entry_with_the_right_digest_is_absent() {
        let key = Digest::of(b"key");
        let entry = |wall: &str, count: &str, piece: &str| {
            let text =
                format!("husk-cache 2\nkey {key}\nwall {wall}\npieces {count}\npiece {piece}\nerrors 0\n\n");
            let digest = Digest::of(text.as_bytes());
            Remembered::from_bytes(format!("{text}digest {digest}\n").as_bytes(), key)
        };
        assert!(entry("1", "1", "1\nx").is_some());
        for (wall, count, piece) in [
            ("18446744073709551615", "1", "0\n"),
            ("99999999999999999999", "1", "0\n"),
            ("-1", "1", "0\n"),
            ("1", "0", "0\n"),
            ("1", "2", "0\n"),
            ("1", "18446744073709551615", "0\n"),
            ("1", "1", "18446744073709551615\n"),
            ("1", "1", "99999999999999999999\nx"),
            ("1", "1", "0\nx"),
        ] {
            assert_eq!(entry(wall, count, piece), None, "{wall} {count} {piece:?}");
        }
    }

    #[test]
    fn token_of_a_run_is_replaced_by_that_of_a_later_one() {
        let entry = Remembered::new(Duration::ZERO, b"ab12ab\nab", Vec::new(), Some("ab"));
        assert_eq!(entry.out, [&b""[..], b"12", b"\n", b""]);
        assert_eq!(entry.out(Some("xyz")), b"xyz12xyz\nxyz");
        let plain = Remembered::new(Duration::ZERO, b"ab", Vec::new(), None);
        assert_eq!((plain.out.len(), plain.out(None)), (1, b"ab".to_vec()));
        // Output of many pieces takes more space than the pieces.
        let many = "ab".repeat(1 << 17);
        assert!(!Remembered::new(Duration::ZERO, many.as_bytes(), Vec::new(), Some("ab")).is_small());
    }

    #[test]
    fn entry_is_read_only_if_it_is_whole_and_its_own() {
        let entry = Remembered {
            wall: Duration::from_micros(1234),
            out: vec![b"out\n3\0".to_vec(), Vec::new(), b"piece 9".to_vec()],
            errors: Vec::new(),
        };
        let key = Digest::of(b"key");
        let bytes = entry.to_bytes(key);
        assert_eq!(Remembered::from_bytes(&bytes, key), Some(entry));
        assert_eq!(Remembered::from_bytes(&bytes, Digest::of(b"another")), None);
        for length in 0..bytes.len() {
            assert_eq!(Remembered::from_bytes(&bytes[..length], key), None, "{length}");
        }
        for place in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[place] ^= 1;
            assert_eq!(Remembered::from_bytes(&damaged, key), None, "{place}");
        }
        assert_eq!(Remembered::from_bytes(&[bytes, b"\n".to_vec()].concat(), key), None);
    }
}
