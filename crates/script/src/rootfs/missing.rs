//! Creates the missing part of a path below a root.
//!
//! The kernel can find an existing path, but has no call that creates all missing components. So this code walks the
//! path one component at a time, like the kernel. It follows symlinks, even to missing targets, but never above the
//! root. It opens or creates each component relative to the descriptor of its parent directory. Only for `..` does it
//! open the parent anew from the root, by a path without symlinks.

use crate::sys::at::{
    FileType, Mode, kind, mkdirat, mknodat_file, openat2_entry_nofollow, openat2_no_symlinks, readlinkat,
};
use crate::sys::clone::InChild;
use crate::sys::{Errno, Fd, Result, file};
use core::ffi::CStr;

/// The required kind of a path's last component.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    Directory,
    /// Any file that is not a directory.
    File,
    /// Any file that is neither a directory nor a symlink.
    Entry,
}

/// The mode of a directory that the image lacks.
const DIRECTORY_MODE: u32 = 0o755;

/// The mode of a file that the image lacks, to be mounted over.
const FILE_MODE: u32 = 0o644;

/// How many symlinks are followed, the same as in the kernel (MAXSYMLINKS).
const MOST_LINKS: u32 = 40;

/// Creates the missing part of `path`, and opens it.
// Not inlined: its paths would enlarge the stack frame of the step loop.
#[inline(never)]
pub(crate) fn make(child: &InChild, root: Fd, path: &CStr, last: Last) -> Result<Fd> {
    let mut rest = Path::new();
    rest.append(path.to_bytes())?;
    let mut walk = Walk { child, root, here: openat2_no_symlinks(root, c".")?, resolved: Path::new() };
    match walk.whole(&mut rest, last) {
        Ok(()) => Ok(walk.here),
        Err(errno) => {
            file::close(child, walk.here);
            Err(errno)
        }
    }
}

/// The position in the tree.
struct Walk<'a> {
    child: &'a InChild,
    root: Fd,
    /// The descriptor of the last component found.
    here: Fd,
    /// Its path relative to the root, without symlinks.
    resolved: Path,
}

impl Walk<'_> {
    fn whole(&mut self, rest: &mut Path, last: Last) -> Result {
        let mut links = 0_u32;
        let mut component = Name::new();
        while rest.take_component(&mut component)? {
            match component.as_bytes() {
                b"" | b"." => {}
                b".." => self.up()?,
                _ => {
                    let wanted = if rest.is_empty() { last } else { Last::Directory };
                    if let Some(link) = self.down(component.as_cstr()?, wanted)? {
                        if wanted == Last::Entry {
                            return Err(Errno::LOOP);
                        }
                        links = links.wrapping_add(1);
                        if links > MOST_LINKS {
                            return Err(Errno::LOOP);
                        }
                        self.follow(&link, rest)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Enters `name`, which is created if it is missing. If it is a symlink, returns its target instead.
    fn down(&mut self, name: &CStr, wanted: Last) -> Result<Option<Path>> {
        let found = match openat2_entry_nofollow(self.here, name) {
            Err(Errno::NOENT) => {
                match wanted {
                    Last::Directory => mkdirat(self.here, name, Mode::from_raw_mode(DIRECTORY_MODE))?,
                    Last::File | Last::Entry => {
                        mknodat_file(self.here, name, Mode::from_raw_mode(FILE_MODE))?
                    }
                }
                openat2_entry_nofollow(self.here, name)?
            }
            found => found?,
        };
        if kind(found)? == FileType::Symlink {
            let mut link = Path::new();
            let read = link.read(found);
            file::close(self.child, found);
            return read.map(|()| Some(link));
        }
        self.go_to(found);
        self.resolved.append(b"/")?;
        self.resolved.append(name.to_bytes())?;
        Ok(None)
    }

    /// Enters the parent directory; the parent of the root is the root.
    fn up(&mut self) -> Result {
        self.resolved.cut_last();
        self.again()
    }

    /// Inserts a symlink's target before the rest of the path.
    fn follow(&mut self, link: &Path, rest: &mut Path) -> Result {
        if link.as_bytes().first() == Some(&b'/') {
            self.resolved.cut(0);
            self.again()?;
        }
        let mut whole = Path::new();
        whole.append(link.as_bytes())?;
        whole.append(b"/")?;
        whole.append(rest.as_bytes())?;
        // A path that ended with the symlink still ends there.
        if rest.is_empty() {
            whole.cut_end();
        }
        *rest = whole;
        Ok(())
    }

    fn again(&mut self) -> Result {
        let found = if self.resolved.is_empty() {
            openat2_no_symlinks(self.root, c".")?
        } else {
            openat2_no_symlinks(self.root, self.resolved.as_cstr()?)?
        };
        self.go_to(found);
        Ok(())
    }

    fn go_to(&mut self, found: Fd) {
        file::close(self.child, self.here);
        self.here = found;
    }
}

/// A path in a buffer of fixed size.
struct Text<const ROOM: usize> {
    bytes: [u8; ROOM],
    /// Less than `ROOM`; the byte there is NUL.
    length: usize,
}

/// Fits every path with its NUL (PATH_MAX).
type Path = Text<4096>;

/// Fits every component with its NUL (NAME_MAX).
type Name = Text<256>;

impl<const ROOM: usize> Text<ROOM> {
    const fn new() -> Self {
        Self { bytes: [0; ROOM], length: 0 }
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    fn as_cstr(&self) -> Result<&CStr> {
        CStr::from_bytes_until_nul(&self.bytes).map_err(|_| Errno::NAMETOOLONG)
    }

    fn is_empty(&self) -> bool {
        self.length == 0
    }

    fn append(&mut self, more: &[u8]) -> Result {
        for byte in more {
            let next = self.length.wrapping_add(1);
            *self.bytes.get_mut(next).ok_or(Errno::NAMETOOLONG)? = 0;
            *self.bytes.get_mut(self.length).ok_or(Errno::NAMETOOLONG)? = *byte;
            self.length = next;
        }
        Ok(())
    }

    /// Reads the target of a symlink.
    fn read(&mut self, link: Fd) -> Result {
        self.length = readlinkat(link, c"", &mut self.bytes)?.to_bytes().len();
        Ok(())
    }

    fn cut(&mut self, length: usize) {
        if let Some(end) = self.bytes.get_mut(length) {
            *end = 0;
            self.length = length;
        }
    }

    /// Removes the last component and the slash before it.
    fn cut_last(&mut self) {
        let end = self.as_bytes().iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        self.cut(end);
    }

    /// Removes trailing slashes.
    fn cut_end(&mut self) {
        while self.as_bytes().last() == Some(&b'/') {
            self.cut(self.length.wrapping_sub(1));
        }
    }

    /// Moves the first component to `component`. Returns whether there was one.
    fn take_component(&mut self, component: &mut Name) -> Result<bool> {
        if self.is_empty() {
            return Ok(false);
        }
        let bytes = self.as_bytes();
        let end = bytes.iter().position(|byte| *byte == b'/').unwrap_or(bytes.len());
        component.cut(0);
        component.append(bytes.get(..end).unwrap_or_default())?;
        let left = self.length.saturating_sub(end.wrapping_add(1));
        let begin = self.length.wrapping_sub(left);
        for index in 0..left {
            let byte = self.bytes.get(begin.wrapping_add(index)).copied();
            if let (Some(place), Some(byte)) = (self.bytes.get_mut(index), byte) {
                *place = byte;
            }
        }
        self.cut(left);
        Ok(true)
    }
}
