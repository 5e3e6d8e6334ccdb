//! A long byte stream that both sides know.

use std::io::{self, Read, Write};

/// Returns the repeated part of the stream. Its length is neither a buffer's nor a multiple of one.
fn period() -> Vec<u8> {
    (0..65_521_u64).flat_map(|index| index.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect()
}

/// Writes `length` bytes of the stream.
pub(crate) fn produce(to: &mut impl Write, length: u64) -> io::Result<()> {
    let period = period();
    let mut left = usize::try_from(length).map_err(io::Error::other)?;
    while left > 0 {
        let part = left.min(period.len());
        to.write_all(&period[..part])?;
        left -= part;
    }
    Ok(())
}

/// Returns how many bytes match the stream, up to the end or the first difference.
pub(crate) fn recognize(from: &mut impl Read) -> io::Result<u64> {
    let period = period();
    let (mut room, mut known) = (vec![0; period.len()], 0);
    loop {
        let at = usize::try_from(known % period.len() as u64).unwrap_or(0);
        // Reads at most to the end of the period, so that one comparison suffices.
        match from.read(&mut room[..period.len() - at])? {
            0 => return Ok(known),
            length if room[..length] == period[at..at + length] => known += length as u64,
            _ => return Ok(known),
        }
    }
}
