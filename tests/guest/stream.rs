//! Many bytes that both sides know.

/// Eight bytes of the stream.
fn word(index: u64) -> [u8; 8] {
    index.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

/// The first bytes of the stream, a multiple of eight.
pub(crate) fn stream(length: u64) -> Vec<u8> {
    (0..length / 8).flat_map(word).collect()
}
