//! Reads an entry's owner, permissions, times and extended attributes.

use super::super::Failure;
use crate::error::Problem;
use rustix::fs::{Mode, Timespec, Timestamps};
use std::io::Read;
use tar::Entry;

/// The prefix of extended attributes in PAX headers.
const ATTRIBUTE: &str = "SCHILY.xattr.";

pub(super) struct Metadata {
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) mode: Mode,
    pub(super) attributes: Vec<(String, Vec<u8>)>,
    modified: Timespec,
}

impl Metadata {
    pub(super) fn of(entry: &mut Entry<'_, impl Read>) -> Result<Self, Failure> {
        let header = entry.header();
        let seconds = i64::try_from(header.mtime()?).unwrap_or_default();
        let mut metadata = Self {
            uid: header.uid()?,
            gid: header.gid()?,
            mode: Mode::from_raw_mode(header.mode()? & 0o7777),
            attributes: Vec::new(),
            modified: Timespec { tv_sec: seconds, tv_nsec: 0 },
        };
        for record in entry.pax_extensions()?.into_iter().flatten() {
            let record = record?;
            // A key that is not UTF-8 is none of those below.
            let Ok(key) = record.key() else { continue };
            let number = || record.value().ok().and_then(|value| value.parse().ok());
            match key {
                "uid" => metadata.uid = number().ok_or(Problem::Refused("has an invalid owner"))?,
                "gid" => metadata.gid = number().ok_or(Problem::Refused("has an invalid group"))?,
                "mtime" => {
                    let time = record.value().ok().and_then(time);
                    metadata.modified = time.ok_or(Problem::Refused("has an invalid time"))?;
                }
                key => {
                    if let Some(name) = key.strip_prefix(ATTRIBUTE)
                        && is_kept(name)?
                    {
                        metadata.attributes.push((name.to_owned(), record.value_bytes().to_vec()));
                    }
                }
            }
        }
        Ok(metadata)
    }

    /// Returns the times to set. The time of the last access does not matter, so it is that of the last change.
    pub(super) fn times(&self) -> Timestamps {
        Timestamps { last_access: self.modified, last_modification: self.modified }
    }
}

/// Returns whether an extended attribute is set. Those of other namespaces concern the machine on which the image was
/// built, such as labels and signatures.
fn is_kept(name: &str) -> Result<bool, Problem> {
    if name.starts_with("user.overlay.") || name.starts_with("trusted.overlay.") {
        // The attribute could make overlayfs show another layer's files, or hide some.
        return Err(Problem::Refused("has an extended attribute of overlayfs"));
    }
    Ok(name == "security.capability" || name.starts_with("user.") && name.len() > "user.".len())
}

/// Reads a time: seconds, with a fraction of any length.
fn time(text: &str) -> Option<Timespec> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let (seconds, nanoseconds): (i64, i64) = (seconds.parse().ok()?, digits.parse().ok()?);
    // The fraction of a negative time counts downwards.
    Some(match text.starts_with('-') && nanoseconds > 0 {
        true => Timespec { tv_sec: seconds.checked_sub(1)?, tv_nsec: 1_000_000_000 - nanoseconds },
        false => Timespec { tv_sec: seconds, tv_nsec: nanoseconds },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_fractions() {
        let read = |text| time(text).map(|time| (time.tv_sec, time.tv_nsec));
        assert_eq!(read("12"), Some((12, 0)));
        assert_eq!(read("12.5"), Some((12, 500_000_000)));
        assert_eq!(read("12.1234567891"), Some((12, 123_456_789)));
        assert_eq!(read("-1.25"), Some((-2, 750_000_000)));
        assert_eq!((read("x"), read("1.x"), read("")), (None, None, None));
    }

    #[test]
    fn attributes_of_overlayfs_are_refused() {
        assert!(is_kept("user.overlay.redirect").is_err());
        assert!(is_kept("trusted.overlay.opaque").is_err());
        let kept = |name| is_kept(name).unwrap();
        assert!(kept("user.mime_type") && kept("security.capability"));
        assert!(!kept("trusted.md5") && !kept("security.selinux") && !kept("user."));
    }
}
