//! Sparse files in PAX archives, as GNU tar writes them (its manual, "Storing Sparse Files"): versions 0.1 and 1.0. The
//! holes are not in the archive.

use super::Failure;
use crate::error::Problem;
use std::collections::VecDeque;
use std::io::{self, Read};
use tar::Entry;

/// The prefix of the records.
const RECORD: &str = "GNU.sparse.";
/// The most pieces of data of one file.
const MOST_PIECES: usize = 1 << 20;
/// The longest decimal number of 64 bits.
const LONGEST_NUMBER: usize = 20;
const BLOCK: u64 = 512;

const UNKNOWN: Problem = Problem::Refused("is a sparse file in a format that husk does not read");
const WRONG: Problem = Problem::Refused("is a sparse file with a damaged map");

/// The records of an entry that describe a sparse file.
pub(super) struct Sparse {
    /// The name of the file; the entry itself has another one.
    pub(super) name: Vec<u8>,
    /// The size with the holes.
    pub(super) size: u64,
    /// The offsets and lengths of the data. `None` if they precede the data.
    map: Option<Vec<(u64, u64)>>,
}

impl Sparse {
    /// Returns `None` if the entry is not a sparse file.
    pub(super) fn of(entry: &mut Entry<'_, impl Read>) -> Result<Option<Self>, Failure> {
        let (mut name, mut sizes, mut map) = (None, [None; 2], None);
        let mut version = [None; 2];
        let mut is_sparse = false;
        for record in entry.pax_extensions()?.into_iter().flatten() {
            let record = record?;
            let Some(key) = record.key().ok().and_then(|key| key.strip_prefix(RECORD)) else { continue };
            is_sparse = true;
            let number = || record.value().ok().and_then(|value| value.parse::<u64>().ok());
            match key {
                "major" => version[0] = number(),
                "minor" => version[1] = number(),
                "name" => name = Some(record.value_bytes().to_vec()),
                "size" => sizes[0] = number(),
                "realsize" => sizes[1] = number(),
                "map" => map = Some(pairs(record.value().map_err(|_| WRONG)?)?),
                "numblocks" => {}
                _ => return Err(UNKNOWN.into()),
            }
        }
        if !is_sparse {
            return Ok(None);
        }
        let name = name.ok_or(UNKNOWN)?;
        match (version, map) {
            ([Some(1), Some(0)], None) => {
                Ok(Some(Self { name, size: sizes[1].or(sizes[0]).ok_or(WRONG)?, map: None }))
            }
            ([None, None] | [Some(0), Some(1)], Some(map)) => {
                Ok(Some(Self { name, size: sizes[0].or(sizes[1]).ok_or(WRONG)?, map: Some(map) }))
            }
            _ => Err(UNKNOWN.into()),
        }
    }

    /// Returns the content of the file, with zeros for the holes.
    pub(super) fn content<R: Read>(self, mut entry: R, stored: u64) -> Result<Expanded<R>, Failure> {
        let mut left = stored;
        let map = match self.map {
            Some(map) => map,
            None => read_map(&mut entry, &mut left)?,
        };
        let mut end = 0;
        let mut data = 0_u64;
        for (offset, length) in &map {
            if *offset < end {
                return Err(WRONG.into());
            }
            end = offset.checked_add(*length).ok_or(WRONG)?;
            data = data.checked_add(*length).ok_or(WRONG)?;
        }
        if end > self.size || data != left {
            return Err(WRONG.into());
        }
        Ok(Expanded { entry, map: map.into(), at: 0, size: self.size })
    }
}

/// Reads offsets and lengths, separated by commas.
fn pairs(text: &str) -> Result<Vec<(u64, u64)>, Problem> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let numbers = text.split(',').map(|number| number.parse().map_err(|_| WRONG));
    let numbers: Vec<u64> = numbers.collect::<Result<_, _>>()?;
    if !numbers.len().is_multiple_of(2) {
        return Err(WRONG);
    }
    Ok(numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
}

/// Reads the map before the data: lines of decimal numbers, of which the first is the number of pairs, filled up to a block.
fn read_map(entry: &mut impl Read, left: &mut u64) -> Result<Vec<(u64, u64)>, Failure> {
    let mut block = Vec::new();
    let mut next = || -> Result<u64, Failure> {
        let mut digits = Vec::new();
        loop {
            if block.is_empty() {
                *left = left.checked_sub(BLOCK).ok_or(WRONG)?;
                block.resize(512, 0);
                entry.read_exact(&mut block)?;
                block.reverse();
            }
            match block.pop() {
                Some(b'\n') => break,
                Some(digit) if digit.is_ascii_digit() && digits.len() < LONGEST_NUMBER => digits.push(digit),
                _ => return Err(WRONG.into()),
            }
        }
        let number = String::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        Ok(number.ok_or(WRONG)?)
    };
    let count = usize::try_from(next()?).ok().filter(|count| *count <= MOST_PIECES).ok_or(WRONG)?;
    (0..count).map(|_| Ok((next()?, next()?))).collect()
}

/// The content of a sparse file.
pub(super) struct Expanded<R> {
    entry: R,
    map: VecDeque<(u64, u64)>,
    at: u64,
    size: u64,
}

impl<R: Read> Read for Expanded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.map.front().is_some_and(|(offset, length)| offset + length <= self.at) {
            self.map.pop_front();
        }
        let (is_data, end) = match self.map.front() {
            Some((offset, length)) if *offset <= self.at => (true, offset + length),
            Some((offset, _)) => (false, *offset),
            None => (false, self.size),
        };
        let most = usize::try_from(end - self.at).unwrap_or(usize::MAX).min(buffer.len());
        let part = &mut buffer[..most];
        let read = if is_data {
            match self.entry.read(part)? {
                0 if !part.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => read,
            }
        } else {
            part.fill(0);
            part.len()
        };
        self.at += read as u64;
        Ok(read)
    }
}
