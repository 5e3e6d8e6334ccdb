//! Reads the blobs of an image from a directory or from a tar archive.

use crate::error::Error;
use crate::layer::{decompress, names};
use crate::limits::Limits;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tar::{Archive, EntryType};

/// The longest index, manifest or configuration. The specification asks registries for 4 MiB.
const LONGEST_DOCUMENT: u64 = 16 << 20;
/// The most files of an archive of an image. Each layer has at most three.
const MOST_MEMBERS: usize = 100_000;
/// The headers of one file of such an archive.
const LONGEST_HEADER: u64 = 1 << 20;

/// The files of an image.
pub(crate) enum Source {
    Directory(PathBuf),
    Archive { path: PathBuf, file: Arc<File>, members: HashMap<Vec<u8>, Member> },
}

/// A file of an archive.
pub(crate) enum Member {
    File {
        offset: u64,
        size: u64,
    },
    /// Another name of this file. Old versions of `docker save` write equal layers so.
    Link(Vec<u8>),
}

/// A file that is read from the start.
pub(crate) struct Blob {
    file: Arc<File>,
    at: u64,
    left: u64,
}

impl Read for Blob {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}

impl Source {
    pub(crate) fn directory(path: &Path) -> Self {
        Self::Directory(path.to_owned())
    }

    /// Opens an archive and notes where its files are.
    pub(crate) fn archive(path: &Path) -> Result<Self, Error> {
        let failed = |reason| Error::file("read", path, reason);
        let file = unpacked(open(path)?).map_err(failed)?;
        let reader = file.try_clone().map_err(failed)?;
        let members = scan(reader).map_err(failed)?;
        Ok(Self::Archive { path: path.to_owned(), file: Arc::new(file), members })
    }

    /// Returns the place as messages name it.
    pub(crate) fn place(&self) -> &Path {
        match self {
            Self::Directory(path) | Self::Archive { path, .. } => path,
        }
    }

    pub(crate) fn open(&self, name: &str) -> Result<Blob, Error> {
        match self {
            Self::Directory(path) => {
                let path = path.join(name);
                let file = open(&path)?;
                let left = file.metadata().map_err(|reason| Error::file("open", path, reason))?.len();
                Ok(Blob { file: Arc::new(file), at: 0, left })
            }
            Self::Archive { path, file, members } => {
                let missing = || Error::file("find", path.join(name), Errno::NOENT);
                let member = match members.get(name.as_bytes()).ok_or_else(missing)? {
                    Member::Link(target) => members.get(target).ok_or_else(missing)?,
                    member => member,
                };
                match member {
                    Member::File { offset, size } => {
                        Ok(Blob { file: file.clone(), at: *offset, left: *size })
                    }
                    Member::Link(_) => Err(Error::file("find", path.join(name), Errno::LOOP)),
                }
            }
        }
    }

    /// Returns the content of a file that is not a layer.
    pub(crate) fn read(&self, name: &str) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        let read = self.open(name)?.take(LONGEST_DOCUMENT + 1).read_to_end(&mut bytes);
        read.map_err(|reason| Error::file("read", self.place().join(name), reason))?;
        if bytes.len() as u64 > LONGEST_DOCUMENT {
            return Err(Error::malformed(name, "is longer than 16 MiB"));
        }
        Ok(bytes)
    }
}

/// Opens a regular file. Opening a FIFO would block, and opening a device may have effects.
fn open(path: &Path) -> Result<File, Error> {
    let open = || {
        let found = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        match FileType::from_raw_mode(fstat(&found)?.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Errno::ISDIR),
            _ => return Err(Errno::INVAL),
        }
        let own = format!("/proc/self/fd/{}", found.as_raw_fd());
        openat(CWD, own, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
    };
    open().map(File::from).map_err(|errno| Error::file("open", path, errno))
}

/// Returns a file in which each entry of the archive has a position: the archive itself, or an unpacked copy if it is
/// compressed.
fn unpacked(file: File) -> io::Result<File> {
    let mut input = BufReader::with_capacity(256 << 10, file);
    if !decompress::is_compressed(input.fill_buf()?) {
        return Ok(input.into_inner());
    }
    let most = Limits::default().bytes;
    let mut plain = temporary()?;
    let written = io::copy(&mut decompress::decompress(input)?.take(most + 1), &mut plain)?;
    if written > most {
        return Err(io::Error::other(format!("unpacks to more than {most} bytes")));
    }
    Ok(plain)
}

/// Opens a temporary file and removes its name.
fn temporary() -> io::Result<File> {
    let asked = std::env::var_os("TMPDIR").filter(|path| !path.is_empty()).map(PathBuf::from);
    let usual = || ["/var/tmp", "/tmp"].map(PathBuf::from).into_iter().find(|path| path.is_dir());
    let directory = asked.or_else(usual).ok_or(Errno::NOENT)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for number in 0.. {
        let path = directory.join(format!("husk-{}-{number}", std::process::id()));
        match openat(CWD, &path, flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::EXIST) => {}
            file => {
                let file = file?;
                std::fs::remove_file(path)?;
                return Ok(file.into());
            }
        }
    }
    Err(Errno::EXIST.into())
}

/// Returns the files of an archive. A name that occurs twice is the later file's, as for tar(1).
fn scan(mut file: File) -> io::Result<HashMap<Vec<u8>, Member>> {
    file.rewind()?;
    let mut members = HashMap::new();
    let mut archive = Archive::new(Bounded { input: BufReader::new(file), left: LONGEST_HEADER });
    for entry in archive.entries_with_seek()? {
        let entry = entry?;
        let Ok(name) = names::clean(&entry.path_bytes()) else { continue };
        if members.len() == MOST_MEMBERS {
            return Err(io::Error::other("an archive of an image has no more than 100,000 files"));
        }
        match entry.header().entry_type() {
            EntryType::Regular | EntryType::Continuous => {
                let member = Member::File { offset: entry.raw_file_position(), size: entry.size() };
                members.insert(name, member);
            }
            EntryType::Symlink | EntryType::Link => {
                let is_hard = entry.header().entry_type() == EntryType::Link;
                let target = entry.link_name_bytes().unwrap_or_default();
                let from = if is_hard { b"" } else { names::split(&name).0 };
                if let Some(target) = resolve(from, &target) {
                    members.insert(name, Member::Link(target));
                }
            }
            _ => {}
        }
    }
    Ok(members)
}

/// Resolves the target of a link in an archive. It is only a name in the archive, never a path of the host.
fn resolve(from: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    let mut parts: Vec<&[u8]> = from.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join(&b'/'))
}

/// A file whose headers have a limit: seeking over the content does not count.
struct Bounded {
    input: BufReader<File>,
    left: u64,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        let left = self.left.checked_sub(read as u64);
        self.left = left.ok_or_else(|| io::Error::other("a file has a header of more than 1 MiB"))?;
        Ok(read)
    }
}

impl Seek for Bounded {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.left = LONGEST_HEADER;
        match to {
            SeekFrom::Current(offset) => {
                self.input.seek_relative(offset)?;
                self.input.stream_position()
            }
            to => self.input.seek(to),
        }
    }
}
