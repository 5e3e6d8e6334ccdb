//! The limits that keep a hostile image from filling the disk.

use crate::error::Problem;
use std::sync::atomic::{AtomicU64, Ordering};

/// How much an image may unpack to.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The bytes of all layers, uncompressed. Holes of sparse files count as well.
    pub bytes: u64,
    /// The entries of all layers.
    pub entries: u64,
}

impl Default for Limits {
    /// Fits the largest images in use, and less than a disk.
    fn default() -> Self {
        Self { bytes: 32 << 30, entries: 2_000_000 }
    }
}

/// The rest of the limits of one image. Layers that are unpacked at the same time share it.
pub(crate) struct Budget {
    limits: Limits,
    bytes: AtomicU64,
    entries: AtomicU64,
}

impl Budget {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, bytes: AtomicU64::new(limits.bytes), entries: AtomicU64::new(limits.entries) }
    }

    pub(crate) fn take_bytes(&self, count: u64) -> Result<(), Problem> {
        take(&self.bytes, count).ok_or(Problem::Limit {
            most: self.limits.bytes,
            what: "bytes",
            option: "--max-bytes",
        })
    }

    pub(crate) fn take_entry(&self) -> Result<(), Problem> {
        take(&self.entries, 1).ok_or(Problem::Limit {
            most: self.limits.entries,
            what: "files",
            option: "--max-files",
        })
    }
}

fn take(left: &AtomicU64, count: u64) -> Option<()> {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(count)).ok().map(drop)
}
