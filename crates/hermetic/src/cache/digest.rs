//! SHA-256 over fields. Each field has its length before it, so different lists of fields have different digests.

use sha2::{Digest as _, Sha256};
use std::fmt::{self, Display, Formatter};
use std::io::Read;

/// A SHA-256 digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Digest(pub(crate) [u8; 32]);

#[derive(Clone, Default)]
pub(crate) struct Fields(Sha256);

impl Fields {
    pub(crate) fn add(&mut self, field: impl AsRef<[u8]>) -> &mut Self {
        let field = field.as_ref();
        let length = u64::try_from(field.len()).unwrap_or(u64::MAX);
        self.0.update(length.to_le_bytes());
        self.0.update(field);
        self
    }

    pub(crate) fn add_all(&mut self, fields: impl IntoIterator<Item = impl AsRef<[u8]>>) {
        fields.into_iter().for_each(|field| {
            self.add(field);
        });
    }

    pub(crate) fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

impl Digest {
    /// Returns the digest of these bytes, without a length.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Reads to the end. Also returns the number of bytes.
    pub(crate) fn of_stream(mut stream: impl Read) -> std::io::Result<(Self, u64)> {
        let (mut hasher, mut count, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 17]);
        loop {
            let read = match stream.read(&mut buffer) {
                Ok(0) => return Ok((Self(hasher.finalize().into()), count)),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            hasher.update(buffer.get(..read).unwrap_or_default());
            count += u64::try_from(read).unwrap_or(u64::MAX);
        }
    }
}

impl Display for Digest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::{Digest, Fields};

    #[test]
    fn fields_do_not_run_into_each_other() {
        let of = |fields: &[&str]| {
            let mut digest = Fields::default();
            digest.add_all(fields);
            digest.finish()
        };
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_ne!(of(&["ab"]), of(&["ab", ""]));
        assert_eq!(of(&["ab"]), of(&["ab"]));
    }

    #[test]
    fn stream_has_the_digest_of_its_bytes() {
        let bytes = vec![7; 300_000];
        assert_eq!(Digest::of_stream(&*bytes).unwrap(), (Digest::of(&bytes), 300_000));
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), empty);
    }
}
