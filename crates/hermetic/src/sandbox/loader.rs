//! The loader of a dynamically linked program (elf(5), `PT_INTERP`).

use super::inside::Inside;
use crate::profile::Profile;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The type of the program header that names the loader.
const PT_INTERP: [u8; 4] = 3_u32.to_ne_bytes();

/// The size of a program header.
const HEADER: usize = 56;

/// Returns the loader of a profile's program that its image lacks. The kernel then says that the program does not exist.
pub(super) fn missing(profile: &Profile) -> Option<PathBuf> {
    let image = profile.image.as_ref()?;
    let program = Path::new(profile.args.first()?);
    let is_shown = image.shown.iter().any(|show| program.starts_with(&show.path));
    let loader = loader(program).filter(|_| is_shown)?;
    let is_there = Inside::of(image).is_ok_and(|inside| inside.has(&loader));
    (!is_there).then_some(loader)
}

/// Returns the loader of a program of this machine's kind.
fn loader(program: &Path) -> Option<PathBuf> {
    let mut file = File::open(program).ok()?;
    let mut header = [0; 64];
    file.read_exact(&mut header).ok()?;
    if !header.starts_with(b"\x7fELF\x02") {
        return None;
    }
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes).ok();
    let count = u16::from_ne_bytes(header[56..58].try_into().ok()?);
    file.seek(SeekFrom::Start(word(&header[32..40])?)).ok()?;
    for _ in 0..count {
        let mut header = [0; HEADER];
        file.read_exact(&mut header).ok()?;
        if header.starts_with(&PT_INTERP) {
            file.seek(SeekFrom::Start(word(&header[8..16])?)).ok()?;
            let mut path = Vec::new();
            file.take(word(&header[32..40])?.min(4096)).read_to_end(&mut path).ok()?;
            path.pop_if(|last| *last == 0);
            return Some(Path::new(OsStr::from_bytes(&path)).to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::loader;
    use std::path::Path;

    #[test]
    fn loader_is_that_of_the_program() {
        let here = std::env::current_exe().unwrap();
        let is_static = cfg!(target_feature = "crt-static");
        assert_eq!(loader(&here).is_some_and(|loader| loader.exists()), !is_static);
        assert_eq!(loader(Path::new("/proc/self/status")), None);
    }
}
