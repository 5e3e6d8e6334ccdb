//! SHA-256 digests, by which images name their blobs.

use sha2::{Digest as _, Sha256};
use std::fmt::{self, Display, Formatter, Write as _};

/// A SHA-256 digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

/// Computes a digest of bytes that arrive in parts.
#[derive(Default)]
pub(crate) struct Hasher(Sha256);

impl Digest {
    /// Reads `sha256:` and 64 lower-case hexadecimal digits. Other text and other algorithms are `None`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix("sha256:")?.as_bytes();
        let mut digest = [0; 32];
        if hex.len() != 2 * digest.len() {
            return None;
        }
        for (byte, pair) in digest.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Some(Self(digest))
    }

    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Returns the 64 digits.
    #[must_use]
    pub fn hex(&self) -> String {
        self.0.iter().fold(String::new(), |mut text, byte| {
            // Writing to a `String` cannot fail.
            let written = write!(text, "{byte:02x}");
            debug_assert!(written.is_ok());
            text
        })
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl Display for Digest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl Hasher {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_is_read_as_it_is_written() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), empty);
        assert_eq!(Digest::parse(empty), Some(Digest::of(b"")));
        let mut hasher = Hasher::default();
        hasher.add(b"a");
        hasher.add(b"b");
        assert_eq!(hasher.finish(), Digest::of(b"ab"));
        for wrong in ["", "sha256:", &empty[..70], &empty.to_uppercase(), "sha256:../../../../etc/passwd"] {
            assert_eq!(Digest::parse(wrong), None, "{wrong}");
        }
    }
}
