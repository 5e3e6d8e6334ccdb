//! Unpacks one layer: reads its blob, decompresses it, checks both digests, and writes its entries.
//!
//! Three threads work on a layer. One reads the blob and decompresses it, one computes the digest of the uncompressed
//! bytes, and the caller's writes files. Nothing that was written counts until both digests are right: the caller then
//! renames the directory, or removes it.

pub(crate) mod decompress;
pub(crate) mod names;
mod sparse;
mod tree;

pub(crate) use tree::{OPAQUE, Owners, Tree, Whiteouts};

use crate::digest::{Digest, Hasher};
use crate::error::{Error, Problem};
use crate::limits::Budget;
use crate::manifest::Layer;
use crate::source::Blob;
use sparse::Sparse;
use std::cell::Cell;
use std::io::{self, BufReader, Read};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use tar::{Archive, EntryType};

/// The uncompressed bytes that pass between threads at a time.
const PART: usize = 256 << 10;
/// The parts that may wait for a slower thread.
const WAITING: usize = 8;
/// The bytes of all headers of one entry. Long names and extended attributes take a few kilobytes.
const LONGEST_HEADER: u64 = 1 << 20;

type Part = Arc<Vec<u8>>;

/// Unpacks a layer into a tree and checks its digests.
pub(crate) fn unpack(layer: &Layer, blob: Blob, budget: &Budget, tree: &mut Tree<'_>) -> Result<(), Error> {
    let (to_hasher, for_hasher) = sync_channel(WAITING);
    let (to_writer, for_writer) = sync_channel(WAITING);
    let failed = |reason| Error::Layer { layer: layer.diff_id, reason };
    let (written, read, diff_id) = thread::scope(|scope| {
        let reader = scope.spawn(move || read(blob, budget, [to_hasher, to_writer]));
        let hasher = scope.spawn(move || digest(for_hasher));
        let written = write(for_writer, budget, tree);
        (written, reader.join(), hasher.join())
    });
    // A thread that panics ends the whole process (`panic = "abort"`), so this does not happen.
    let ended = || failed(io::Error::other("a thread ended"));
    let (read, diff_id) = (read.map_err(|_| ended())?, diff_id.map_err(|_| ended())?);
    // The error of the first in line is the cause of the others.
    let blob = read.map_err(|error| match error {
        Failure::Reading(reason) => failed(reason),
        Failure::Entry(problem) => entry(layer, "", problem),
    })?;
    written.map_err(|error| match error {
        (_, Failure::Reading(reason)) => failed(reason),
        (name, Failure::Entry(problem)) => entry(layer, &String::from_utf8_lossy(&name), problem),
    })?;
    check(layer, blob, diff_id)
}

fn entry(layer: &Layer, name: &str, problem: Problem) -> Error {
    let entry = if name.is_empty() { "/" } else { name };
    Error::Entry { layer: layer.diff_id, entry: entry.to_owned(), problem }
}

fn check(layer: &Layer, (digest, size): (Digest, u64), diff_id: Digest) -> Result<(), Error> {
    if let Some((wanted, bytes)) = layer.blob {
        let part = || "the blob of a layer".to_owned();
        if size != bytes {
            return Err(Error::Size { part: part(), wanted: bytes, found: size });
        }
        if digest != wanted {
            return Err(Error::Digest { part: part(), wanted, found: digest });
        }
    }
    if diff_id != layer.diff_id {
        let part = "an uncompressed layer".to_owned();
        return Err(Error::Digest { part, wanted: layer.diff_id, found: diff_id });
    }
    Ok(())
}

/// Why a thread stopped.
enum Failure {
    /// The blob or the archive in it cannot be read.
    Reading(io::Error),
    /// An entry is refused or cannot be written.
    Entry(Problem),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Reading(error)
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::Entry(problem)
    }
}

/// Reads and decompresses a blob, and sends the bytes to both threads. Returns the blob's digest and size.
fn read(blob: Blob, budget: &Budget, to: [SyncSender<Part>; 2]) -> Result<(Digest, u64), Failure> {
    let mut input = BufReader::with_capacity(PART, Hashed { blob, hasher: Hasher::default(), size: 0 });
    {
        let mut output = decompress::decompress(&mut input)?;
        loop {
            let mut part = Vec::with_capacity(PART);
            // Fills the part, so that neither thread wakes for a few bytes.
            let read = (&mut output).take(PART as u64).read_to_end(&mut part)?;
            if read == 0 {
                break;
            }
            budget.take_bytes(read as u64)?;
            let part = Arc::new(part);
            for to in &to {
                if to.send(part.clone()).is_err() {
                    // The other thread has ended with an error of its own.
                    return Ok((Digest::of(b""), 0));
                }
            }
        }
    }
    // Bytes after the compressed data belong to the blob.
    io::copy(&mut input, &mut io::sink())?;
    let Hashed { hasher, size, .. } = input.into_inner();
    Ok((hasher.finish(), size))
}

/// Computes the digest of what it reads.
struct Hashed {
    blob: Blob,
    hasher: Hasher,
    size: u64,
}

impl Read for Hashed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.blob.read(buffer)?;
        self.hasher.add(&buffer[..read]);
        self.size += read as u64;
        Ok(read)
    }
}

fn digest(parts: Receiver<Part>) -> Digest {
    let mut hasher = Hasher::default();
    parts.iter().for_each(|part| hasher.add(&part));
    hasher.finish()
}

/// Writes the entries of an archive. An error has the name of the entry.
fn write(parts: Receiver<Part>, budget: &Budget, tree: &mut Tree<'_>) -> Result<(), (Vec<u8>, Failure)> {
    let allowance = Rc::new(Cell::new(LONGEST_HEADER));
    let input = Parts { parts, part: Part::default(), at: 0, allowance: allowance.clone() };
    let mut archive = Archive::new(input);
    let nameless = |error: io::Error| (Vec::new(), Failure::from(error));
    for entry in archive.entries().map_err(nameless)? {
        let mut entry = entry.map_err(nameless)?;
        allowance.set(u64::MAX);
        let mut name = entry.path_bytes().into_owned();
        let outcome = budget.take_entry().map_err(Failure::from).and_then(|()| {
            let sparse = Sparse::of(&mut entry)?;
            // The holes of a sparse file are not in the archive.
            match &sparse {
                Some(sparse) => {
                    name.clone_from(&sparse.name);
                    budget.take_bytes(sparse.size)?;
                }
                None if entry.header().entry_type() == EntryType::GNUSparse => {
                    budget.take_bytes(entry.size())?
                }
                None => {}
            }
            tree.add(&name, &mut entry, sparse)?;
            Ok(io::copy(&mut entry, &mut io::sink()).map(drop)?)
        });
        outcome.map_err(|error| (name, error))?;
        allowance.set(LONGEST_HEADER);
    }
    allowance.set(u64::MAX);
    // The end of the archive is not the end of the bytes that the digest covers.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(nameless)?;
    tree.finish().map_err(|(name, problem)| (name, problem.into()))
}

/// The parts that arrive from the decompressing thread.
struct Parts {
    parts: Receiver<Part>,
    part: Part,
    at: usize,
    /// The bytes that may still be read. `tar` holds an entry's headers in memory, whatever their size.
    allowance: Rc<Cell<u64>>,
}

impl Read for Parts {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.part.len() {
            match self.parts.recv() {
                Ok(part) => (self.part, self.at) = (part, 0),
                Err(_) => return Ok(0),
            }
        }
        let read = buffer.len().min(self.part.len() - self.at);
        let left = self.allowance.get().checked_sub(read as u64);
        self.allowance.set(left.ok_or_else(|| io::Error::other("an entry has a header of more than 1 MiB"))?);
        buffer[..read].copy_from_slice(&self.part[self.at..self.at + read]);
        self.at += read;
        Ok(read)
    }
}

/// Removes a directory and everything below it.
pub(crate) fn remove_tree(parent: BorrowedFd<'_>, name: &[u8]) -> Result<(), Problem> {
    tree::remove::tree(parent, name, &mut |_| true)
}
