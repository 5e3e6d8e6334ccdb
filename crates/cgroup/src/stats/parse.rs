//! Parses the number formats of the kernel's files.

use super::{BlkioEntry, Pressure, Psi, RdmaEntry};
use crate::error::Error;
use crate::files;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::path::Path;

/// The files of a cgroup, which are read by name. This is for reports in another form than runc's, which
/// [`Stats`](super::Stats) has. A file that does not exist is read as empty.
#[derive(Clone, Copy, Debug)]
pub struct Files<'a> {
    pub(crate) directory: &'a OwnedFd,
    pub(crate) path: &'a Path,
}

impl<'a> Files<'a> {
    /// Returns the files of a directory that [`CgroupPaths::open`](crate::CgroupPaths::open) has opened. Error messages
    /// name `path`.
    #[must_use]
    pub const fn new(directory: &'a OwnedFd, path: &'a Path) -> Self {
        Self { directory, path }
    }

    /// Returns the contents of a file, if it exists.
    pub fn text(&self, name: &str) -> Result<Option<String>, Error> {
        self.found(name, files::text(self.directory.as_fd(), name))
    }

    /// Returns the number in a file, if it exists; `max` and -1 are `u64::MAX`.
    pub fn number(&self, name: &str) -> Result<Option<u64>, Error> {
        self.found(name, files::number(self.directory.as_fd(), name))
    }

    fn found<T>(&self, name: &str, read: Result<T, Errno>) -> Result<Option<T>, Error> {
        match read {
            Ok(found) => Ok(Some(found)),
            // The controller is missing, the cgroup is being removed, or pressure accounting is off.
            Err(Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP) => Ok(None),
            Err(errno) => Err(Error::Act { act: "read", path: self.path.join(name), errno }),
        }
    }

    /// Returns the error for text that does not have the usual form.
    pub(super) fn unexpected(&self, name: &str, text: &str) -> Error {
        Error::Unexpected { path: self.path.join(name), text: text.to_owned() }
    }

    /// Calls `each` for every `KEY VALUE` line of a file, if it exists.
    pub fn keyed(&self, name: &str, mut each: impl FnMut(&str, u64)) -> Result<(), Error> {
        let Some(text) = self.text(name)? else { return Ok(()) };
        for line in text.lines() {
            let value = line.split_once(' ').and_then(|(key, value)| Some((key, files::number_of(value)?)));
            let (key, value) = value.ok_or_else(|| self.unexpected(name, line))?;
            each(key, value);
        }
        Ok(())
    }

    /// Reads a pressure file, if it exists.
    pub fn psi(&self, name: &str) -> Result<Option<Psi>, Error> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        psi(&text).map(Some).ok_or_else(|| self.unexpected(name, &text))
    }

    /// Reads a file of RDMA devices, if it exists.
    pub fn rdma(&self, name: &str) -> Result<Vec<RdmaEntry>, Error> {
        Ok(self.text(name)?.map(|text| text.lines().filter_map(rdma).collect()).unwrap_or_default())
    }

    /// Returns the huge page sizes that the cgroup has files for. `end` is the end of the files' names.
    pub fn page_sizes(&self, end: &str) -> Result<Vec<String>, Error> {
        let mut sizes = Vec::new();
        let listed = files::each_file(self.directory, |name| {
            let size = name.strip_prefix("hugetlb.").and_then(|name| name.strip_suffix(end));
            sizes.extend(size.filter(|size| !size.contains('.')).map(ToOwned::to_owned));
        });
        listed.map_err(|errno| Error::Act { act: "list", path: self.path.to_owned(), errno })?;
        sizes.sort_unstable();
        Ok(sizes)
    }
}

pub(super) fn psi(text: &str) -> Option<Psi> {
    let mut psi = Psi::default();
    for line in text.lines() {
        let (kind, values) = line.split_once(' ')?;
        let pressure = match kind {
            "some" => &mut psi.some,
            "full" => &mut psi.full,
            _ => continue,
        };
        *pressure = pressure_of(values)?;
    }
    Some(psi)
}

fn pressure_of(values: &str) -> Option<Pressure> {
    let mut pressure = Pressure::default();
    for (key, value) in values.split(' ').filter_map(|pair| pair.split_once('=')) {
        match key {
            "avg10" => pressure.avg10 = value.parse().ok()?,
            "avg60" => pressure.avg60 = value.parse().ok()?,
            "avg300" => pressure.avg300 = value.parse().ok()?,
            "total" => pressure.total = value.parse().ok()?,
            _ => {}
        }
    }
    Some(pressure)
}

/// Parses a line of version 2's `io.stat`: a device's bytes and operations, named as in version 1.
pub(super) fn io(line: &str, bytes: &mut Vec<BlkioEntry>, operations: &mut Vec<BlkioEntry>) -> Option<()> {
    let mut words = line.split_ascii_whitespace();
    let (major, minor) = words.next()?.split_once(':')?;
    // Removed devices have lines of another form.
    let (Ok(major), Ok(minor)) = (major.parse(), minor.parse()) else { return Some(()) };
    for (key, value) in words.filter_map(|word| word.split_once('=')) {
        let (entries, op) = match key {
            "rbytes" => (&mut *bytes, "Read"),
            "wbytes" => (&mut *bytes, "Write"),
            "rios" => (&mut *operations, "Read"),
            "wios" => (&mut *operations, "Write"),
            _ => continue,
        };
        entries.push(BlkioEntry { major, minor, op: op.to_owned(), value: value.parse().ok()? });
    }
    Some(())
}

/// Parses a line of version 1's `blkio.*`: `8:0 Read 4096` or `8:0 4096`. The total at the end is skipped.
pub(super) fn blkio(line: &str) -> Option<Option<BlkioEntry>> {
    let words: Vec<&str> = line.split([' ', ':']).collect();
    let (major, minor, op, value) = match *words.as_slice() {
        ["Total", _] => return Some(None),
        [major, minor, op, value] => (major, minor, op, value),
        [major, minor, value] => (major, minor, "", value),
        _ => return None,
    };
    Some(Some(BlkioEntry {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
        op: op.to_owned(),
        value: value.parse().ok()?,
    }))
}

fn rdma(line: &str) -> Option<RdmaEntry> {
    let mut words = line.split(' ');
    let mut entry = RdmaEntry { device: words.next()?.to_owned(), ..RdmaEntry::default() };
    for (key, value) in words.filter_map(|word| word.split_once('=')) {
        let value = if value == "max" { u32::MAX } else { value.parse().ok()? };
        match key {
            "hca_handle" => entry.hca_handles = value,
            "hca_object" => entry.hca_objects = value,
            _ => {}
        }
    }
    Some(entry)
}

/// Parses a list of numbers such as `0-2,5`; `None` if it is malformed.
pub(super) fn list(text: &str) -> Option<Vec<u16>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_has_some_and_full_lines() {
        let text = "some avg10=1.25 avg60=0.50 avg300=0.00 total=12345\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        let psi = psi(text).unwrap();
        assert_eq!(psi.some, Pressure { avg10: 1.25, avg60: 0.5, avg300: 0.0, total: 12345 });
        assert_eq!(psi.full.total, 7);
    }

    #[test]
    fn io_is_listed_by_device_and_direction() {
        let (mut bytes, mut operations) = (Vec::new(), Vec::new());
        let line = "8:16 rbytes=4096 wbytes=0 rios=1 wios=2 dbytes=3 dios=4";
        io(line, &mut bytes, &mut operations).unwrap();
        let entry = |op: &str, value| BlkioEntry { major: 8, minor: 16, op: op.to_owned(), value };
        assert_eq!(bytes, [entry("Read", 4096), entry("Write", 0)]);
        assert_eq!(operations, [entry("Read", 1), entry("Write", 2)]);
    }

    #[test]
    fn blkio_of_version_1_has_three_kinds_of_lines() {
        let entry = |op: &str| Some(BlkioEntry { major: 8, minor: 0, op: op.to_owned(), value: 5 });
        assert_eq!(blkio("8:0 Sync 5"), Some(entry("Sync")));
        assert_eq!(blkio("8:0 5"), Some(entry("")));
        assert_eq!(blkio("Total 5"), Some(None));
        assert_eq!(blkio("8:0"), None);
    }

    #[test]
    fn lists_and_rdma_limits_are_parsed() {
        assert_eq!(list("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(list("\n"), Some(vec![]));
        assert_eq!(list("x"), None);
        let entry = RdmaEntry { device: "mlx4_0".to_owned(), hca_handles: 2, hca_objects: u32::MAX };
        assert_eq!(rdma("mlx4_0 hca_handle=2 hca_object=max"), Some(entry));
    }
}
