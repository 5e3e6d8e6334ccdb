//! An entry of the store: what is remembered of a run that passed.
//!
//! ```text
//! husk-cache 1
//! key      DIGEST
//! wall     MICROSECONDS
//! mode     BYTES       each followed by that many bytes and a line break
//! out      BYTES
//! errors   BYTES
//! digest   DIGEST      of everything before this line
//! ```

use super::digest::Digest;
use std::time::Duration;

const MAGIC: &str = "husk-cache 1\n";

/// Longer times are not those of a test: some months, in microseconds. Sums of shorter ones do not overflow.
const MOST_MICROS: u64 = 10_000_000_000_000;

/// libtest's notes on the kind of a test are shorter.
const MOST_MODE: usize = 100;

/// Output beyond this is not remembered, and neither is its test.
pub(crate) const MOST_OUTPUT: usize = 1 << 20;

/// A run that passed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Remembered {
    /// How long it took.
    pub(crate) wall: Duration,
    /// libtest's note on the kind of test.
    pub(crate) mode: Option<String>,
    pub(crate) out: Vec<u8>,
    pub(crate) errors: Vec<u8>,
}

impl Remembered {
    pub(crate) fn is_small(&self) -> bool {
        self.out.len() + self.errors.len() <= MOST_OUTPUT
    }

    pub(crate) fn to_bytes(&self, key: Digest) -> Vec<u8> {
        let Self { wall, mode, out, errors } = self;
        let mut bytes = format!("{MAGIC}key {key}\nwall {}\n", wall.as_micros()).into_bytes();
        let mode = mode.as_deref().unwrap_or_default().as_bytes();
        for (name, value) in [("mode", mode), ("out", out), ("errors", errors)] {
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
        let (mode, rest) = field("mode", rest)?;
        let (out, rest) = field("out", rest)?;
        let (errors, rest) = field("errors", rest)?;
        let mode = String::from_utf8(mode.to_vec()).ok()?;
        // It becomes part of a line of the results.
        if wall > MOST_MICROS || mode.len() > MOST_MODE || mode.chars().any(char::is_control) {
            return None;
        }
        let mode = Some(mode).filter(|mode| !mode.is_empty());
        let wall = Duration::from_micros(wall);
        rest.is_empty().then(|| Self { wall, mode, out: out.to_vec(), errors: errors.to_vec() })
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
        let entry = |wall: &str, mode: &str, out: &str| {
            let text = format!("husk-cache 1\nkey {key}\nwall {wall}\nmode {mode}\nout {out}\nerrors 0\n\n");
            let digest = Digest::of(text.as_bytes());
            Remembered::from_bytes(format!("{text}digest {digest}\n").as_bytes(), key)
        };
        assert!(entry("1", "0\n", "1\nx").is_some());
        for (wall, mode, out) in [
            ("18446744073709551615", "0\n", "0\n"),
            ("99999999999999999999", "0\n", "0\n"),
            ("-1", "0\n", "0\n"),
            ("1", "18446744073709551615\n", "0\n"),
            ("1", "0\n", "18446744073709551615\n"),
            ("1", "0\n", "99999999999999999999\nx"),
            ("1", "0\n", "0\nx"),
            // A result of another test in the name.
            ("1", "23\n ... ok\ntest other ... ok", "0\n"),
            ("1", "4\n\x1b[2J", "0\n"),
            ("1", "2\n\u{85}", "0\n"),
        ] {
            assert_eq!(entry(wall, mode, out), None, "{wall} {mode:?} {out:?}");
        }
        assert_eq!(entry("1", &format!("101\n{}", "m".repeat(101)), "0\n"), None);
    }

    #[test]
    fn entry_is_read_only_if_it_is_whole_and_its_own() {
        let entry = Remembered {
            wall: Duration::from_micros(1234),
            mode: Some("should panic".to_owned()),
            out: b"out\n3\0".to_vec(),
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
